//! The settings of counters, each with its default and the reason for it.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::kernel::{LARGEST, Terms};
use crate::clock::Micros;
use crate::error::{Error, ErrorKind};

/// Ten years: whole microseconds stay exact for centuries after.
pub(super) const LONGEST: Duration = Duration::from_secs(10 * 365 * 86_400);

/// How a set of [`Counters`](super::Counters) counts.
///
/// ```
/// use shardlimit::counter::CounterSettings;
/// use std::time::Duration;
///
/// let settings = CounterSettings::new(Duration::from_secs(86_400)).shards(4);
/// # assert!(shardlimit::Limiter::local().counters("clicks", settings).is_ok());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "settings do nothing until counters are made with them"]
pub struct CounterSettings {
    ttl: Duration,
    renew: bool,
    horizon: Duration,
    pub(super) shards: u16,
    pub(super) queue: usize,
}

impl CounterSettings {
    /// Counters that begin anew this long after their first add: from a millisecond to ten years.
    ///
    /// ```
    /// # use shardlimit::counter::CounterSettings; use std::time::Duration;
    /// let daily = CounterSettings::new(Duration::from_secs(86_400));
    /// ```
    pub fn new(ttl: Duration) -> Self {
        // A restart with a large append-only file takes tens of seconds; a state is the larger, the more clients it remembers.
        Self { ttl, renew: false, horizon: Duration::from_secs(60), shards: 1, queue: 100_000 }
    }

    /// Counters that begin anew this long after their *last* add. Default: after the first. They have one shard.
    ///
    /// ```
    /// # use shardlimit::counter::CounterSettings; use std::time::Duration;
    /// let session = CounterSettings::new(Duration::from_secs(1_800)).renew();
    /// ```
    pub fn renew(mut self) -> Self {
        self.renew = true;
        self
    }

    /// For how long the store remembers which adds it has counted: from a second to a day. Default: a minute.
    ///
    /// An add without an answer is sent again, and counted once, for nine tenths of this; one that is older is given up, and
    /// [`dropped`](super::Counters::dropped) tells. Every client that added within the horizon takes 25 bytes in the counter.
    ///
    /// ```
    /// # use shardlimit::counter::CounterSettings; use std::time::Duration;
    /// let patient = CounterSettings::new(Duration::from_secs(86_400)).horizon(Duration::from_secs(600));
    /// ```
    pub fn horizon(mut self, horizon: Duration) -> Self {
        self.horizon = horizon;
        self
    }

    /// How many shards a counter is split into: from 1 to 128. Default: 1.
    ///
    /// An add goes to a key's first shard, until that says that the key is hot: all processes together run more scripts there a second than
    /// [`hot`](crate::Builder::hot) says. Then adds go to any of them, until there are less than a quarter of that. A read asks all of them
    /// at once and sums them up. Every process has to use the same number. It may be doubled while counters live: the old shards are
    /// among the new ones. The embedded store has no use for them.
    ///
    /// ```
    /// # use shardlimit::counter::CounterSettings; use std::time::Duration;
    /// let hot = CounterSettings::new(Duration::from_secs(86_400)).shards(8);
    /// ```
    pub fn shards(mut self, shards: u16) -> Self {
        self.shards = shards;
        self
    }

    /// How many shards of keys may have undelivered adds, in this process: at least 1. Default: 100,000.
    ///
    /// Adds of one shard are summed up while they wait, so their number needs no bound; that of their callers is 100,000. An add that
    /// finds no room in the queue is refused.
    ///
    /// ```
    /// # use shardlimit::counter::CounterSettings; use std::time::Duration;
    /// let small = CounterSettings::new(Duration::from_secs(86_400)).queue(1_000);
    /// ```
    pub fn queue(mut self, shards_of_keys: usize) -> Self {
        self.queue = shards_of_keys;
        self
    }

    pub(super) fn check(self) -> Result<Self, Error> {
        check_time("ttl", self.ttl, Duration::from_millis(1)..=LONGEST)?;
        check_time("horizon", self.horizon, Duration::from_secs(1)..=Duration::from_secs(86_400))?;
        check_shards(self.shards)?;
        if self.renew && self.shards > 1 {
            let message = "a counter that every add renews needs 1 shard: no other one would hear of it";
            return Err(Error::new(ErrorKind::InvalidSetting, "renew", message));
        }
        if self.queue == 0 {
            return Err(Error::new(ErrorKind::InvalidSetting, "queue", "must be at least 1, got 0"));
        }
        Ok(self)
    }

    pub(super) fn terms(&self) -> Terms {
        let micros = |time: Duration| time.as_micros() as Micros;
        Terms {
            ttl: micros(self.ttl),
            renew: self.renew,
            horizon: micros(self.horizon),
            shards: 1,
            hot: LARGEST as u64,
        }
    }
}

pub(super) fn check_time(field: &'static str, time: Duration, range: RangeInclusive<Duration>) -> Result<(), Error> {
    if range.contains(&time) {
        return Ok(());
    }
    let message = format!("must be from {:?} to {:?}, got {time:?}", range.start(), range.end());
    Err(Error::new(ErrorKind::InvalidSetting, field, message))
}

pub(super) fn check_shards(shards: u16) -> Result<(), Error> {
    if (1..=128).contains(&shards) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::InvalidSetting, "shards", format!("must be from 1 to 128, got {shards}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_bounds() {
        let day = || CounterSettings::new(Duration::from_secs(86_400));
        assert!(day().check().is_ok());
        for (field, bad) in [
            ("ttl", CounterSettings::new(Duration::from_micros(999))),
            ("ttl", CounterSettings::new(LONGEST + Duration::from_nanos(1))),
            ("horizon", day().horizon(Duration::from_millis(999))),
            ("horizon", day().horizon(Duration::from_secs(86_401))),
            ("shards", day().shards(0)),
            ("renew", day().shards(2).renew()),
            ("shards", day().shards(129)),
            ("queue", day().queue(0)),
        ] {
            assert_eq!(bad.check().unwrap_err().field(), field);
        }
    }
}
