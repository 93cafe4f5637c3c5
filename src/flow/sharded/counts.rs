//! What this process had of a shard. It outlives the lane: the next one to the same slot goes on with it.

use std::time::Duration;

use super::crowd::Crowd;
use super::fallback::Fallback;
use super::health::Health;
use super::meter::Meter;
use crate::clock::Micros;
use crate::sync::Arc;
use crate::sync::atomic::AtomicU64;

/// What this process had of one shard, and goes by without it.
#[derive(Debug)]
pub(crate) struct Counts {
    /// What the limiter has under way in all.
    pub crowd: Arc<Crowd>,
    pub runs: AtomicU64,
    pub allowed: AtomicU64,
    pub denied: AtomicU64,
    pub health: Health,
    pub fallback: Fallback,
}

impl Counts {
    /// Of a shard of a limit of so long a period, that granted this lately.
    pub(super) fn new(crowd: &Arc<Crowd>, period: Duration, lately: Meter) -> Self {
        Self {
            crowd: Arc::clone(crowd),
            runs: AtomicU64::new(0),
            allowed: AtomicU64::new(0),
            denied: AtomicU64::new(0),
            health: Health::default(),
            fallback: Fallback::new(period, lately),
        }
    }

    /// Whether calls are decided without the shard, or were a moment ago.
    pub(super) fn is_in_use(&self, now: Micros) -> bool {
        self.health.is_sick(now) || self.fallback.is_in_use(now)
    }
}

#[cfg(any(test, races))]
impl Default for Counts {
    fn default() -> Self {
        Self::new(&Arc::default(), Duration::from_secs(1), Meter::default())
    }
}
