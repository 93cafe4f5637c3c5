//! Time: what reads it, what waits for it, and a fake of both for tests.

mod alarm;
mod fake;
mod system;

pub(crate) use alarm::Alarm;
pub use fake::FakeClock;

use std::task::Waker;

use crate::sync::Arc;
use system::SystemClock;

/// Microseconds: an instant since 1970 (UTC), or a length of time.
pub(crate) type Micros = u64;

/// The clock of a limiter: the machine's, or a [`FakeClock`].
///
/// ```
/// use shardlimit::{Clock, FakeClock, Limiter};
///
/// let real = Limiter::builder().clock(Clock::system()).build()?;
/// let time = FakeClock::new();
/// let fake = Limiter::builder().clock(&time).build()?;
/// # Ok::<(), shardlimit::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    System(Arc<SystemClock>),
    Fake(FakeClock),
}

impl Clock {
    /// The machine's clock: the wall clock's time when it was made, steady from then on. Later steps of the wall
    /// clock do not touch it.
    ///
    /// ```
    /// # use shardlimit::{Clock, Limiter};
    /// let limiter = Limiter::builder().clock(Clock::system()).build()?; // the default
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    #[must_use]
    pub fn system() -> Self {
        Self(Source::System(Arc::new(SystemClock::new())))
    }

    pub(crate) fn now(&self) -> Micros {
        match &self.0 {
            Source::System(clock) => clock.now(),
            Source::Fake(clock) => clock.now(),
        }
    }

    /// Wakes `waker` once, at or soon after `at`, unless the alarm is dropped before.
    pub(crate) fn wake_at(&self, at: Micros, waker: &Waker) -> Alarm {
        match &self.0 {
            Source::System(clock) => clock.wake_at(at, waker),
            Source::Fake(clock) => clock.wake_at(at, waker),
        }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}

impl From<FakeClock> for Clock {
    fn from(fake: FakeClock) -> Self {
        Self(Source::Fake(fake))
    }
}

impl From<&FakeClock> for Clock {
    fn from(fake: &FakeClock) -> Self {
        Self(Source::Fake(fake.clone()))
    }
}
