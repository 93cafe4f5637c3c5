//! SIGINT as a flag: a command that runs for a while ends early and still gives its one answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::SIGINT;

use crate::error::Failure;

/// Whether the run was told to stop. Clones share the flag.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on SIGINT sets the flag and does nothing else.
    pub(crate) fn install() -> Result<Self, Failure> {
        let interrupt = Self::default();
        signal_hook::flag::register(SIGINT, Arc::clone(&interrupt.0))
            .map_err(|error| Failure::system("signal", "SIGINT can't be handled", &error))?;
        Ok(interrupt)
    }

    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
