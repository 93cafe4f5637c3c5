//! Where counters live: what a limiter gives to those that it makes.

#[cfg(feature = "redis")]
use std::time::Duration;

use crate::clock::Clock;
#[cfg(feature = "redis")]
use crate::store::cluster::Engine;
#[cfg(feature = "redis")]
use crate::sync::Arc;

#[derive(Clone, Copy)]
pub(crate) enum Place<'a> {
    Local {
        clock: &'a Clock,
        max_keys: usize,
    },
    #[cfg(feature = "redis")]
    Shared {
        engine: &'a Arc<Engine>,
        prefix: &'a Arc<str>,
        deadline: Duration,
        /// Script runs a second from which a key is hot.
        hot: u64,
    },
}
