//! Tells when the cluster has come to rest: plans follow it only then.

use std::time::{Duration, Instant};

use crate::sync::atomic::{AtomicU64, Ordering};

/// So long nothing may have changed. Slots that are moved one after the other come faster than this.
const QUIET: Duration = Duration::from_secs(1);

pub(super) struct Rest {
    began: Instant,
    /// Counts changes.
    state: AtomicU64,
    /// When the last one was, in µs after it began.
    changed: AtomicU64,
}

impl Rest {
    pub(super) fn new() -> Self {
        Self { began: Instant::now(), state: AtomicU64::new(0), changed: AtomicU64::new(0) }
    }

    /// A slot has another owner, or a master came or went.
    pub(super) fn disturb(&self) {
        self.changed.store(self.began.elapsed().as_micros() as u64, Ordering::Relaxed);
        self.state.fetch_add(1, Ordering::Release);
    }

    /// The state of the cluster, once it has been the same for a while; never 0.
    pub(super) fn settled(&self) -> Option<u64> {
        let state = self.state.load(Ordering::Acquire);
        let changed = Duration::from_micros(self.changed.load(Ordering::Relaxed));
        (state > 0 && self.began.elapsed().saturating_sub(changed) >= QUIET).then_some(state)
    }
}
