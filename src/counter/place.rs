//! Where counters live: what a limiter gives to those that it makes.

#[cfg(feature = "redis")]
use std::time::Duration;

use crate::clock::Clock;
#[cfg(feature = "redis")]
use crate::store::cluster::Engine;
#[cfg(feature = "redis")]
use crate::sync::{Arc, atomic::AtomicUsize};

#[derive(Clone, Copy)]
pub(crate) enum Place<'a> {
    Local {
        clock: &'a Clock,
        max_keys: usize,
    },
    #[cfg(feature = "redis")]
    Shared(SharedPlace<'a>),
}

#[cfg(feature = "redis")]
#[derive(Clone, Copy)]
pub(crate) struct SharedPlace<'a> {
    pub engine: &'a Arc<Engine>,
    pub prefix: &'a Arc<str>,
    pub deadline: Duration,
    /// Script runs a second from which a key is hot.
    pub hot: u64,
    /// The requests of all counters of the limiter, and how many there may be.
    pub under_way: &'a Arc<AtomicUsize>,
    pub max_in_flight: usize,
}
