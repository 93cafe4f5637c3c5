//! What can be seen of a run while it goes on.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock::Nanos;

/// How far a run is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Since its start.
    pub elapsed: Nanos,
    /// `None` where the calls are made by other processes.
    pub calls: Option<Calls>,
}

/// Calls so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Calls {
    pub offered: u64,
    pub allowed: u64,
}

/// What one worker has published. It does so a few times a second, not with each call: its counters stay
/// its own, and a call costs the same whether somebody watches or not.
#[derive(Debug, Default)]
pub(super) struct Live {
    offered: AtomicU64,
    allowed: AtomicU64,
}

impl Live {
    pub(super) fn publish(&self, calls: Calls) {
        self.offered.store(calls.offered, Ordering::Relaxed);
        self.allowed.store(calls.allowed, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> Calls {
        Calls { offered: self.offered.load(Ordering::Relaxed), allowed: self.allowed.load(Ordering::Relaxed) }
    }
}

impl std::iter::Sum for Calls {
    fn sum<I: Iterator<Item = Self>>(calls: I) -> Self {
        calls.fold(Self::default(), |sum, calls| Self {
            offered: sum.offered + calls.offered,
            allowed: sum.allowed + calls.allowed,
        })
    }
}
