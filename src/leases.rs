//! Leases: permits that a process takes ahead, and spends without asking.

use std::time::Duration;

use crate::error::{Error, ErrorKind};
use crate::limit::{Algorithm, Limit};

/// The longest that permits may be held.
const LONGEST: Duration = Duration::from_secs(10);

/// How [leased](crate::Limiter::define_leased) limits take permits ahead. Needs the feature `redis`.
///
/// A process takes as many as it had use for in the last [`horizon`](Leases::horizon), never more than a quarter of the burst, and
/// gives back what it has not spent within their [`ttl`](Leases::ttl). The long-run rate is never exceeded. Admissions in any
/// interval of length t are at most burst + rate · t + what all processes hold when it begins. As long as nothing is given
/// back that is at most rate · ttl, however many processes there are; [`within_burst`](Leases::within_burst) takes this
/// much out of the burst.
///
/// ```
/// use shardlimit::{Leases, Limiter};
/// use std::time::Duration;
///
/// let limiter = Limiter::builder().redis(["redis://10.0.0.1:6379"]).build()?;
/// let leases = Leases::new().horizon(Duration::from_millis(10)).ttl(Duration::from_millis(30));
/// let checkout = limiter.define_leased("checkout", "500000/s burst 50000".parse()?, leases)?;
/// # Ok::<(), shardlimit::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "settings do nothing until a limit is defined with them"]
pub struct Leases {
    pub(crate) horizon: Duration,
    pub(crate) ttl: Duration,
    pub(crate) within_burst: bool,
}

impl Leases {
    /// The defaults: 20 ms of use, held for up to 50 ms.
    ///
    /// ```
    /// assert_eq!(shardlimit::Leases::new(), shardlimit::Leases::default());
    /// ```
    pub fn new() -> Self {
        Self { horizon: Duration::from_millis(20), ttl: Duration::from_millis(50), within_burst: false }
    }

    /// How much of its own recent use a process takes ahead. Default: 20 ms, a hundred round trips: the store is asked
    /// rarely, and little is held that others could use.
    ///
    /// ```
    /// # use shardlimit::Leases; use std::time::Duration;
    /// let leases = Leases::new().horizon(Duration::from_millis(5));
    /// ```
    pub fn horizon(mut self, horizon: Duration) -> Self {
        self.horizon = horizon;
        self
    }

    /// For how long permits may be held before they are given back, counted from when they were asked for. Default: 50 ms. At
    /// least the horizon, at most 10 s.
    ///
    /// ```
    /// # use shardlimit::Leases; use std::time::Duration;
    /// let leases = Leases::new().ttl(Duration::from_millis(40));
    /// ```
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Takes what leases can add to an interval out of the burst: the store then holds a burst that is smaller by rate · ttl,
    /// and as long as nothing is given back no interval sees more than the burst that was defined. All processes have to
    /// define the limit alike.
    ///
    /// For buckets. A fixed window needs no such thing: its leases end with it. A sliding window has no burst to take from.
    ///
    /// ```
    /// # use shardlimit::{Leases, Limiter};
    /// # let limiter = Limiter::builder().redis(["redis://10.0.0.1:6379"]).build()?;
    /// let leases = Leases::new().within_burst();
    /// let strict = limiter.define_leased("checkout", "500000/s burst 50000".parse()?, leases)?;
    /// assert_eq!(strict.limit().burst(), 25_000); // 50,000 less the 25,000 of 50 ms
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    pub fn within_burst(mut self) -> Self {
        self.within_burst = true;
        self
    }

    /// The limit as the store is to hold it.
    pub(crate) fn carve(&self, limit: Limit) -> Result<Limit, Error> {
        if self.horizon < Duration::from_micros(100) || self.horizon > self.ttl {
            let message = format!("must be 100 µs to the ttl, {:?}, got {:?}", self.ttl, self.horizon);
            return Err(Error::new(ErrorKind::InvalidSetting, "horizon", message));
        }
        if self.ttl > LONGEST {
            let message = format!("must be at most {LONGEST:?}, got {:?}", self.ttl);
            return Err(Error::new(ErrorKind::InvalidSetting, "ttl", message));
        }
        if !self.within_burst {
            return Ok(limit);
        }
        let held = (u128::from(limit.permits()) * self.ttl.as_micros()).div_ceil(limit.period().as_micros());
        let burst = u128::from(limit.burst()).checked_sub(held).filter(|burst| *burst > 0);
        match (limit.algorithm(), burst) {
            (Algorithm::FixedWindow | Algorithm::PacingQueue | Algorithm::Composite, _) => Ok(limit),
            (Algorithm::TokenBucket, Some(burst)) => Limit::token_bucket(limit.permits(), limit.period(), burst as u64),
            (Algorithm::LeakyBucket, Some(burst)) => Limit::leaky_bucket(limit.permits(), limit.period(), burst as u64),
            (Algorithm::TokenBucket | Algorithm::LeakyBucket, None) => {
                let message = format!(
                    "{:?} of \"{limit}\" are {held} permits, no less than its burst; use a shorter ttl or a larger burst",
                    self.ttl
                );
                Err(Error::new(ErrorKind::InvalidSetting, "ttl", message))
            }
            (Algorithm::SlidingWindow | Algorithm::SlidingLog, _) => {
                let message =
                    format!("\"{limit}\" has no burst to take leases from; use a bucket, or leases without it");
                Err(Error::new(ErrorKind::InvalidSetting, "within_burst", message))
            }
        }
    }
}

impl Default for Leases {
    fn default() -> Self {
        Self::new()
    }
}
