//! How often, and how soon, something is tried again.

use std::time::Duration;

use crate::error::{Error, ErrorKind};

/// The time between two tries of the same: it grows with each that fails.
///
/// ```
/// use shardlimit::{Backoff, Limiter};
/// use std::time::Duration;
///
/// let mut reconnect = Backoff::default();
/// reconnect.most = Duration::from_millis(500);
/// let limiter = Limiter::builder().redis(["redis://10.0.0.1:6379"]).reconnect(reconnect).build()?;
/// # Ok::<(), shardlimit::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Backoff {
    /// After the first one that failed. Default: 20 ms.
    pub first: Duration,
    /// The longest. Default: 2 s.
    pub most: Duration,
    /// How much longer each is than the one before. Default: 2.
    pub multiplier: f64,
    /// The part of it that is left to chance, so that clients that failed together do not try again together: from 0 to 1.
    /// Default: 0.5, so that it is drawn between the half and the whole.
    pub jitter: f64,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_millis(20), most: Duration::from_secs(2), multiplier: 2.0, jitter: 0.5 }
    }
}

impl Backoff {
    pub(crate) fn check(self, field: &'static str) -> Result<Self, Error> {
        let bad = |why: &str| Err(Error::new(ErrorKind::InvalidSetting, field, why));
        match self {
            _ if self.first.is_zero() || self.first > self.most || self.most > Duration::from_secs(3_600) => {
                bad("its first wait must be longer than 0 and at most the longest, and that at most an hour")
            }
            _ if !(1.0..=100.0).contains(&self.multiplier) => bad("its multiplier must be from 1 to 100"),
            _ if !(0.0..=1.0).contains(&self.jitter) => bad("its jitter must be from 0 to 1"),
            backoff => Ok(backoff),
        }
    }

    /// The wait after so many tries that failed, counted from 1.
    pub(crate) fn wait(&self, failed: u32) -> Duration {
        let growth = self.multiplier.powi(failed.saturating_sub(1).min(1_000) as i32);
        let whole = (self.first.as_secs_f64() * growth).min(self.most.as_secs_f64());
        Duration::from_secs_f64(whole * (1.0 - self.jitter * rand::random_range(0.0..=1.0)))
    }
}

/// When a request is sent again. Only one of which the server proved that it did not run it ever is, and each redirect to another
/// master is proof; this is about those that the server could not take *now*: a slot on its way, a cluster without a majority.
///
/// There is a budget for them instead of a number: each request earns a part of a retry, so that retries are never more than that
/// part of the load, whatever fails.
///
/// ```
/// use shardlimit::{Limiter, Retries};
///
/// let mut retries = Retries::default();
/// retries.budget = 0.05;
/// let limiter = Limiter::builder().redis(["redis://10.0.0.1:6379"]).retries(retries).build()?;
/// # Ok::<(), shardlimit::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Retries {
    /// Retries that a request earns: from 0 to 10. Default: 0.2.
    pub budget: f64,
    /// Retries that are free in each second, so that a client with little to do can try again too. Default: 10.
    pub free: u32,
    /// The time before each. Default: 5 ms at first, 100 ms at the most.
    pub backoff: Backoff,
}

impl Default for Retries {
    fn default() -> Self {
        let (first, most) = (Duration::from_millis(5), Duration::from_millis(100));
        Self { budget: 0.2, free: 10, backoff: Backoff { first, most, ..Backoff::default() } }
    }
}

impl Retries {
    pub(crate) fn check(self) -> Result<Self, Error> {
        if !(0.0..=10.0).contains(&self.budget) {
            return Err(Error::new(ErrorKind::InvalidSetting, "retries", "its budget must be from 0 to 10"));
        }
        Ok(Self { backoff: self.backoff.check("retries")?, ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_the_longest() {
        let backoff = Backoff { jitter: 0.0, ..Backoff::default() };
        let waits: Vec<u128> = (1..=9).map(|failed| backoff.wait(failed).as_millis()).collect();
        assert_eq!(waits, [20, 40, 80, 160, 320, 640, 1_280, 2_000, 2_000]);
        assert_eq!(backoff.wait(u32::MAX).as_millis(), 2_000);
    }

    #[test]
    fn waits_are_drawn() {
        let waits: Vec<Duration> = (0..1_000).map(|_| Backoff::default().wait(2)).collect();
        assert!(waits.iter().all(|wait| (20..=40).contains(&wait.as_millis())), "{waits:?}");
        let (least, most) = (waits.iter().min().unwrap(), waits.iter().max().unwrap());
        assert!(*most - *least > Duration::from_millis(15), "{least:?} to {most:?}");
    }

    #[test]
    fn settings_have_bounds() {
        type Change = fn(&mut Retries);
        let bad: [Change; 7] = [
            |retries| retries.budget = -0.1,
            |retries| retries.budget = f64::NAN,
            |retries| retries.backoff.first = Duration::ZERO,
            |retries| retries.backoff.most = Duration::from_millis(1),
            |retries| retries.backoff.multiplier = 0.9,
            |retries| retries.backoff.jitter = 1.1,
            |retries| retries.backoff.jitter = f64::NAN,
        ];
        for change in bad {
            let mut retries = Retries::default();
            change(&mut retries);
            assert_eq!(retries.check().unwrap_err().field(), "retries", "{retries:?}");
        }
        assert!(Retries::default().check().is_ok());
    }
}
