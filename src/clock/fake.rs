//! A clock that only moves when a test moves it.

use std::task::Waker;
use std::time::Duration;

use super::Micros;
use super::alarm::{Alarm, Alarms};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering};

/// 2001-09-09 01:46:40 UTC: on the edge of a second, so that fixed windows of one are easy to reason about in tests.
const START: Micros = 1_000_000_000_000_000;

/// The year 2255: where exact arithmetic in doubles, and so every store, ends.
const END: Micros = 1 << 53;

/// A clock for tests: time stands still until it is [advanced](FakeClock::advance). Clones show the same time.
///
/// ```
/// use std::time::Duration;
/// use shardlimit::{FakeClock, Limiter};
///
/// # fn main() -> Result<(), shardlimit::Error> {
/// let time = FakeClock::new();
/// let limiter = Limiter::builder().clock(&time).build()?;
/// let limit = limiter.define("login", "1/min burst 1".parse()?)?;
///
/// assert!(limit.try_acquire("alice", 1)?.unwrap().is_allowed());
/// assert!(!limit.try_acquire("alice", 1)?.unwrap().is_allowed());
/// time.advance(Duration::from_secs(60));
/// assert!(limit.try_acquire("alice", 1)?.unwrap().is_allowed());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct FakeClock {
    now: Arc<AtomicU64>,
    alarms: Arc<Alarms>,
}

impl FakeClock {
    /// A clock that shows a fixed time, on the edge of a second.
    ///
    /// ```
    /// # use shardlimit::FakeClock;
    /// let time = FakeClock::new();
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self { now: Arc::new(AtomicU64::new(START)), alarms: Arc::default() }
    }

    /// Moves time forward, and wakes the calls whose time has come.
    ///
    /// ```
    /// # use shardlimit::FakeClock; use std::time::Duration;
    /// FakeClock::new().advance(Duration::from_millis(5));
    /// ```
    pub fn advance(&self, by: Duration) {
        self.change(|now| now.saturating_add(micros(by)).min(END));
        self.alarms.ring(self.now());
    }

    /// Moves time back, as a server's clock may do when it is corrected.
    ///
    /// ```
    /// # use shardlimit::FakeClock; use std::time::Duration;
    /// FakeClock::new().step_back(Duration::from_secs(30));
    /// ```
    pub fn step_back(&self, by: Duration) {
        self.change(|now| now.saturating_sub(micros(by)));
        // Whoever sleeps until a time of the old clock has to look again.
        self.alarms.ring(Micros::MAX);
    }

    fn change(&self, to: impl Fn(Micros) -> Micros) {
        // Never refused: the closure always has a new time.
        let _ = self.now.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |now| Some(to(now)));
    }

    pub(super) fn now(&self) -> Micros {
        self.now.load(Ordering::SeqCst)
    }

    pub(super) fn wake_at(&self, at: Micros, waker: &Waker) -> Alarm {
        let alarm = self.alarms.set(at, waker);
        // Somebody may have moved the clock between the caller's look at it and the alarm.
        if self.now() >= at {
            self.alarms.ring(self.now());
        }
        alarm
    }
}

fn micros(duration: Duration) -> Micros {
    Micros::try_from(duration.as_micros()).unwrap_or(Micros::MAX)
}

impl Default for FakeClock {
    fn default() -> Self {
        Self::new()
    }
}
