//! The budget that retries are paid from.

use std::time::{Duration, Instant};

use crate::retries::Retries;
use crate::sync::{Mutex, lock};

/// What is earned is kept for so many retries at the most: a quiet hour does not pay for a storm.
const MOST: f64 = 100.0;

/// Requests earn retries.
pub(super) struct Budget {
    retries: Retries,
    inner: Mutex<Inner>,
}

struct Inner {
    earned: f64,
    /// Free ones that were taken in this second.
    taken: u32,
    second: Instant,
}

impl Budget {
    pub(super) fn new(retries: Retries) -> Self {
        Self { retries, inner: Mutex::new(Inner { earned: 0.0, taken: 0, second: Instant::now() }) }
    }

    /// A request is sent for the first time.
    pub(super) fn earn(&self) {
        let inner = &mut *lock(&self.inner);
        inner.earned = (inner.earned + self.retries.budget).min(MOST);
    }

    /// Takes a retry for a request that had `failed` so often already, and says how long it waits; none if there is none left.
    pub(super) fn take(&self, failed: u32, now: Instant) -> Option<Duration> {
        let inner = &mut *lock(&self.inner);
        if now.saturating_duration_since(inner.second) >= Duration::from_secs(1) {
            (inner.second, inner.taken) = (now, 0);
        }
        if inner.taken < self.retries.free {
            inner.taken += 1;
        } else if inner.earned >= 1.0 {
            inner.earned -= 1.0;
        } else {
            return None;
        }
        Some(self.retries.backoff.wait(failed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(budget: &Budget, now: Instant) -> usize {
        std::iter::from_fn(|| budget.take(1, now)).count()
    }

    #[test]
    fn retries_are_a_part_of_the_load_and_some() {
        let budget = Budget::new(Retries::default());
        let now = Instant::now();
        assert_eq!(taken(&budget, now), 10, "the free ones");
        for _ in 0..200 {
            budget.earn();
        }
        assert_eq!(taken(&budget, now), 40, "a fifth of 200");
        assert_eq!(taken(&budget, now + Duration::from_secs(1)), 10, "another second");
        for _ in 0..100_000 {
            budget.earn();
        }
        assert_eq!(taken(&budget, now + Duration::from_secs(1)), 100, "what is kept has an end");
    }
}
