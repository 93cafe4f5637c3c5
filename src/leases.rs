//! Leases: permits that a process takes ahead, and spends without asking.

use std::time::Duration;

use crate::error::{Error, ErrorKind};
use crate::limit::{Algorithm, Limit};

/// The longest that permits may be held.
const LONGEST: Duration = Duration::from_secs(10);

/// How [leased](crate::Limiter::define_leased) limits take permits ahead. Needs the feature `redis`.
///
/// A process takes as many as it had use for in the last [`horizon`](Leases::horizon), never more than a quarter of the burst, nor of any
/// share, and gives back what it has not spent within their [`ttl`](Leases::ttl). The long-run rate is never exceeded. Admissions in any
/// interval of length t are at most burst + rate · t + what all processes hold when it begins. As long as nothing is given
/// back that is at most rate · ttl, however many processes there are; with [`within_burst`](Leases::within_burst) it is nothing.
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

    /// Has shards keep room for what is leased of them: what a shard has and what processes hold of it is never more than its
    /// burst, whatever is given back when. So no interval of length t sees more than burst + rate · t, as without leases.
    ///
    /// For buckets. A shard is not told what was spent, so it keeps the room for two to four times the [`ttl`](Leases::ttl): a burst
    /// below rate · (4 · ttl + horizon) is refused, for then the rate could not be had. All processes that lease from the limit have to have it, with the
    /// same ttl: by that the shard judges what is given back. A fixed window needs no such thing: its leases end with it. A sliding window
    /// has no burst in which there could be room.
    ///
    /// ```
    /// # use shardlimit::{Leases, Limiter}; use std::time::Duration;
    /// # let limiter = Limiter::builder().redis(["redis://10.0.0.1:6379"]).build()?;
    /// let leases = Leases::new().ttl(Duration::from_millis(20)).within_burst();
    /// let strict = limiter.define_leased("checkout", "500000/s burst 50000".parse()?, leases)?;
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    pub fn within_burst(mut self) -> Self {
        self.within_burst = true;
        self
    }

    /// For how long permits may be held: what [`ttl`](Self::ttl) set.
    ///
    /// ```
    /// # use shardlimit::Leases; use std::time::Duration;
    /// assert_eq!(Leases::new().held_for(), Duration::from_millis(50));
    /// ```
    #[must_use]
    pub fn held_for(&self) -> Duration {
        self.ttl
    }

    /// Whether shards keep room for them: what [`within_burst`](Self::within_burst) set.
    ///
    /// ```
    /// # use shardlimit::Leases;
    /// assert!(Leases::new().within_burst().is_within_burst());
    /// ```
    #[must_use]
    pub fn is_within_burst(&self) -> bool {
        self.within_burst
    }

    /// For how long a shard keeps room for what is leased of it, at the least: what expires comes back within half a ttl more, and a
    /// request. At the most it is twice as long.
    pub(crate) fn room_for(&self) -> Duration {
        2 * self.ttl
    }

    /// Whether a bucket of so many units, of which so many come back each microsecond, has room for all that leases may take of it.
    /// Its limit may be another than the one that was defined with them.
    pub(crate) fn have_room_in(&self, capacity: i64, rate: i64) -> bool {
        !self.within_burst || i128::from(capacity) >= i128::from(rate) * (2 * self.room_for()).as_micros() as i128
    }

    /// Whether they fit the limit.
    pub(crate) fn check(&self, limit: Limit) -> Result<(), Error> {
        if self.horizon < Duration::from_micros(100) || self.horizon > self.ttl {
            let message = format!("must be 100 µs to the ttl, {:?}, got {:?}", self.ttl, self.horizon);
            return Err(Error::new(ErrorKind::InvalidSetting, "horizon", message));
        }
        if self.ttl > LONGEST {
            let message = format!("must be at most {LONGEST:?}, got {:?}", self.ttl);
            return Err(Error::new(ErrorKind::InvalidSetting, "ttl", message));
        }
        if !self.within_burst {
            return Ok(());
        }
        match limit.algorithm() {
            Algorithm::FixedWindow | Algorithm::PacingQueue | Algorithm::Composite => Ok(()),
            Algorithm::TokenBucket | Algorithm::LeakyBucket => self.check_room(limit),
            Algorithm::SlidingWindow | Algorithm::SlidingLog => {
                let message = format!("\"{limit}\" has no burst to keep room in; use a bucket, or leases without it");
                Err(Error::new(ErrorKind::InvalidSetting, "within_burst", message))
            }
        }
    }

    /// As many as come back while they are counted, at the longest, have to have room, and those that come back until the next lease.
    fn check_room(&self, limit: Limit) -> Result<(), Error> {
        let (rate, period) = (u128::from(limit.permits()), limit.period().as_micros());
        let (room_for, horizon) = (2 * self.room_for(), self.horizon);
        let most = ((room_for + horizon).as_micros() * rate).div_ceil(period);
        if u128::from(limit.burst()) >= most {
            return Ok(());
        }
        let all = Duration::from_micros((u128::from(limit.burst()) * period / rate) as u64);
        let message = format!(
            "four times the ttl and the horizon, {:?}, of \"{limit}\" are {most} permits, more than its burst, which is {all:?} of it; use \
             a shorter ttl, or a larger burst",
            room_for + horizon
        );
        Err(Error::new(ErrorKind::InvalidSetting, "ttl", message))
    }
}

impl Default for Leases {
    fn default() -> Self {
        Self::new()
    }
}
