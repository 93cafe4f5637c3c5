//! Whether a shard answers this process, and when it is tried again if not.

use crate::clock::Micros;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{Mutex, lock};

/// The first time between two tries of a shard that is sick, and the longest, in µs. It doubles in between, and is drawn anew
/// between the half and the whole for each: processes that lost a master together do not come back together.
const TRIES: (Micros, Micros) = (50_000, 250_000);
/// A shard that nobody tried for so long after he might have counts as sound: who comes then finds out by himself.
const FORGOTTEN: Micros = 1_000_000;

/// Healthy until a request has no answer, and again with the next one that has. While it is sick no call waits for it: one in a
/// while has it tried, without waiting for what comes of it.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// When it is tried next, by this process's clock; zero while it answers.
    again: AtomicU64,
    /// How often in a row it had no answer.
    failures: AtomicU32,
    /// What happened the last time.
    why: Mutex<Box<str>>,
}

impl Health {
    pub(super) fn failed(&self, now: Micros, why: &str) {
        *lock(&self.why) = why.into();
        self.wait(now);
    }

    /// A call was let go before it had an answer. That says less than what happened before, if anything did.
    pub(super) fn overdue(&self, now: Micros) {
        if self.again.load(Ordering::Relaxed) == 0 {
            *lock(&self.why) = Box::default();
        }
        self.wait(now);
    }

    fn wait(&self, now: Micros) {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed);
        let wait = (TRIES.0 << failures.min(16)).min(TRIES.1);
        self.again.store(now + rand::random_range(wait / 2..=wait), Ordering::Relaxed);
    }

    /// What happened the last time, if it has not answered since, and is known.
    pub(super) fn why(&self) -> Option<Box<str>> {
        let is_sick = self.again.load(Ordering::Relaxed) > 0;
        is_sick.then(|| lock(&self.why).clone()).filter(|why| !why.is_empty())
    }

    /// Says whether it was sick.
    pub(super) fn answered(&self) -> bool {
        if self.again.load(Ordering::Relaxed) == 0 {
            return false;
        }
        self.failures.store(0, Ordering::Relaxed);
        self.again.swap(0, Ordering::Relaxed) > 0
    }

    /// Nothing was asked of it that it has not answered.
    pub(super) fn has_answered(&self) -> bool {
        self.again.load(Ordering::Relaxed) == 0
    }

    /// Whether it is of use to ask it for something, now or by way of a try.
    pub(super) fn is_worth_a_try(&self, now: Micros) -> bool {
        now >= self.again.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn is_sick(&self, now: Micros) -> bool {
        let again = self.again.load(Ordering::Relaxed);
        again > 0 && now < again + FORGOTTEN
    }

    pub(super) fn tried_in(&self, now: Micros) -> Micros {
        self.again.load(Ordering::Relaxed).saturating_sub(now).max(1)
    }

    /// Whether it is to be tried now; says so to one caller only, and not again before the try has come to its end: within
    /// `timeout`.
    pub(super) fn is_to_be_tried(&self, now: Micros, timeout: Micros) -> bool {
        let again = self.again.load(Ordering::Relaxed);
        again > 0
            && now >= again
            && self.again.compare_exchange(again, now + timeout, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_tried_less_and_less_often_by_one_caller_at_a_time() {
        let health = Health::default();
        let mut now = 1_000_000_000;
        assert!(!health.is_sick(now) && !health.is_to_be_tried(now, 1));
        for tries in 0..20 {
            health.failed(now, "gone");
            let wait = health.tried_in(now);
            let longest = (50_000 << tries).min(250_000);
            assert!((longest / 2..=longest).contains(&wait), "{wait} after {tries}");
            assert!(health.is_sick(now) && !health.is_to_be_tried(now + wait - 1, 500_000));
            now += wait;
            assert!(health.is_sick(now) && health.is_to_be_tried(now, 500_000));
            assert!(!health.is_to_be_tried(now, 500_000) && !health.is_to_be_tried(now + 499_999, 500_000));
        }
        assert_eq!(health.why().as_deref(), Some("gone"));
        assert!(health.answered() && !health.answered() && !health.is_sick(now));
        assert_eq!(health.why(), None);
        health.overdue(now);
        assert_eq!((health.why(), health.is_sick(now)), (None, true), "that it is late is no reason");
        assert!(health.answered());
        health.failed(now, "gone");
        assert!(health.tried_in(now) <= 50_000, "it begins anew");
    }

    #[test]
    fn one_that_nobody_tries_is_forgotten() {
        let health = Health::default();
        health.failed(5, "gone");
        let again = health.tried_in(5) + 5;
        assert!(health.is_sick(again + 999_999) && !health.is_sick(again + 1_000_000));
    }
}
