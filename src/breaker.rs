//! What users see of breakers.

use std::time::Duration;

use crate::error::{Error, ErrorKind};

/// When the breaker of a master opens: then nobody waits for that master, and the calls of its shards are decided by the
/// [failure policy](crate::FailurePolicy) at once. After a while some requests are let through, and if they go well it closes.
///
/// It opens also when a call has reached its deadline and the master has answered nothing else for [`slow`](Self::slow): then the
/// master hangs, and there is nothing to count.
///
/// ```
/// use shardlimit::{BreakerSettings, Limiter};
///
/// let mut breaker = BreakerSettings::default();
/// breaker.error_ratio = 0.3;
/// let limiter = Limiter::builder().redis(["redis://10.0.0.1:6379"]).breaker(breaker).build()?;
/// # Ok::<(), shardlimit::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct BreakerSettings {
    /// It opens when this part of the requests of a window had no answer. Default: 0.5.
    pub error_ratio: f64,
    /// Or when this part of them was slow. Default: 0.8.
    pub slow_ratio: f64,
    /// What is slow. Default: none was given, and then what takes 50 ms, or as long as the limiter's
    /// [`deadline`](crate::Builder::deadline) if that is more: an answer that is in time is not slow.
    pub slow: Option<Duration>,
    /// How long a request counts. Default: 1 s.
    pub window: Duration,
    /// How many of them it takes. Default: 10.
    pub least: u32,
    /// How long it stays open at first, and at the most; it doubles in between, and is drawn anew between the half and the whole.
    /// Default: 50 ms and 500 ms.
    pub open: Duration,
    /// The longest that it stays open.
    pub longest_open: Duration,
}

impl Default for BreakerSettings {
    fn default() -> Self {
        Self {
            error_ratio: 0.5,
            slow_ratio: 0.8,
            slow: None,
            window: Duration::from_secs(1),
            least: 10,
            open: Duration::from_millis(50),
            longest_open: Duration::from_millis(500),
        }
    }
}

/// What is slow, unless a call may take longer.
const SLOW: Duration = Duration::from_millis(50);

impl BreakerSettings {
    /// As they are where calls have this deadline.
    pub(crate) fn by(self, deadline: Duration) -> Self {
        Self { slow: Some(self.slow.unwrap_or(SLOW.max(deadline))), ..self }
    }

    pub(crate) fn slowness(&self) -> Duration {
        self.slow.unwrap_or(SLOW)
    }

    pub(crate) fn check(self) -> Result<Self, Error> {
        let bad =
            |field: &str, why: &str| Err(Error::new(ErrorKind::InvalidSetting, "breaker", format!("{field} {why}")));
        let is_ratio = |ratio: f64| ratio > 0.0 && ratio <= 1.0;
        let hour = Duration::from_secs(3_600);
        match self {
            _ if !is_ratio(self.error_ratio) => bad("error_ratio", "must be above 0 and at most 1"),
            _ if !is_ratio(self.slow_ratio) => bad("slow_ratio", "must be above 0 and at most 1"),
            _ if self.slowness().is_zero() || self.slowness() > hour => {
                bad("slow", "must be longer than 0 and at most an hour")
            }
            _ if self.window.is_zero() || self.window > hour => {
                bad("window", "must be longer than 0 and at most an hour")
            }
            _ if self.least == 0 => bad("least", "must be at least 1"),
            _ if self.open.is_zero() || self.open > self.longest_open || self.longest_open > hour => {
                bad("open", "must be longer than 0, at most longest_open, and that at most an hour")
            }
            settings => Ok(settings),
        }
    }
}

/// What a breaker does.
///
/// ```
/// assert_eq!(shardlimit::BreakerState::HalfOpen.name(), "half-open");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BreakerState {
    /// The master is asked.
    Closed,
    /// It is not.
    Open,
    /// A few requests are let through, to see how they fare.
    HalfOpen,
}

impl BreakerState {
    /// The word for it in logs and metrics.
    ///
    /// ```
    /// assert_eq!(shardlimit::BreakerState::Open.name(), "open");
    /// ```
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half-open",
        }
    }
}

/// Whether a breaker goes by what it counts, or by what it was told.
///
/// ```no_run
/// # fn run(limiter: shardlimit::Limiter) -> Result<(), shardlimit::Error> {
/// use shardlimit::BreakerForce;
///
/// limiter.force_breaker("10.0.0.3:6379", BreakerForce::Open)?; // for as long as it is repaired
/// limiter.force_breaker("10.0.0.3:6379", BreakerForce::Off)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BreakerForce {
    /// By what it counts.
    Off,
    /// The master is not asked.
    Open,
    /// It is asked, whatever comes of it.
    Closed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_bounds() {
        type Change = fn(&mut BreakerSettings);
        let bad: [(&str, Change); 7] = [
            ("error_ratio", |settings| settings.error_ratio = 0.0),
            ("error_ratio", |settings| settings.error_ratio = f64::NAN),
            ("slow_ratio", |settings| settings.slow_ratio = 1.5),
            ("slow ", |settings| settings.slow = Some(Duration::ZERO)),
            ("window", |settings| settings.window = Duration::from_secs(7_200)),
            ("least", |settings| settings.least = 0),
            ("open", |settings| settings.open = Duration::from_secs(1)),
        ];
        for (field, change) in bad {
            let mut settings = BreakerSettings::default();
            change(&mut settings);
            let error = settings.check().unwrap_err();
            assert!(error.to_string().contains(field), "{error}");
        }
        assert!(BreakerSettings::default().check().is_ok());
    }

    /// With a deadline of 200 ms on a link of 60 ms, every answer was in time, and the breaker open.
    #[test]
    fn what_is_in_time_is_not_slow_unless_somebody_says_so() {
        let millis = Duration::from_millis;
        let slow =
            |slow, deadline| BreakerSettings { slow, ..BreakerSettings::default() }.by(millis(deadline)).slowness();
        assert_eq!([1, 50, 200].map(|deadline| slow(None, deadline)), [millis(50), millis(50), millis(200)]);
        assert_eq!([1, 200].map(|deadline| slow(Some(millis(20)), deadline)), [millis(20); 2]);
    }
}
