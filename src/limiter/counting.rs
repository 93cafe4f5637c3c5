//! Where counters get their names.

use super::{Limiter, Store};
use std::time::Duration;

#[cfg(feature = "redis")]
use crate::counter::SharedPlace;
use crate::counter::{ApproximateCounters, CounterSettings, Counters, DistinctCounters, Place, SlidingCounters};
use crate::error::Error;

impl Limiter {
    /// Counters by key, under a name of their own: a limit may have the same name, and never meets them.
    ///
    /// The same name with the same settings gives the counters that are there.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`](crate::ErrorKind::InvalidName) as of a [limit](Limiter::define);
    /// [`ErrorKind::InvalidSetting`](crate::ErrorKind::InvalidSetting);
    /// [`ErrorKind::NameTaken`](crate::ErrorKind::NameTaken) if it stands for other settings already.
    ///
    /// ```
    /// use shardlimit::{Limiter, counter::CounterSettings};
    /// use std::time::Duration;
    ///
    /// # pollster::block_on(async {
    /// let limiter = Limiter::local();
    /// let clicks = limiter.counters("clicks", CounterSettings::new(Duration::from_secs(86_400)))?;
    /// clicks.add("item:42", 1).await?;
    /// # Ok::<(), shardlimit::Error>(())
    /// # }).unwrap();
    /// ```
    pub fn counters(&self, name: &str, settings: CounterSettings) -> Result<Counters, Error> {
        Counters::make(&self.0.counting, self.place(), name, settings)
    }

    /// Counters of events in sliding windows, 1 to 8 of them side by side, each from a millisecond to ten years.
    ///
    /// Other windows may be given to the same name later: a window that was not there before begins empty.
    ///
    /// # Errors
    /// As [`counters`](Self::counters).
    ///
    /// ```
    /// use shardlimit::Limiter;
    /// use std::time::Duration;
    ///
    /// # pollster::block_on(async {
    /// let windows = [Duration::from_secs(60), Duration::from_secs(3_600)];
    /// let logins = Limiter::local().sliding_counters("logins", windows)?;
    /// assert_eq!(logins.add("alice", 1).await?, [1, 1]);
    /// # Ok::<(), shardlimit::Error>(())
    /// # }).unwrap();
    /// ```
    pub fn sliding_counters(
        &self,
        name: &str,
        windows: impl IntoIterator<Item = Duration>,
    ) -> Result<SlidingCounters, Error> {
        SlidingCounters::make(&self.0.counting, self.place(), name, windows)
    }

    /// Counters of distinct values in a sliding window, from a millisecond to ten years, exactly. A key's values are dealt to so
    /// many shards, 1 to 128: a value always to the same one. Every process has to use the same number, and it can't be changed
    /// while they count. The embedded store has no use for them.
    ///
    /// # Errors
    /// As [`counters`](Self::counters).
    ///
    /// ```
    /// use shardlimit::Limiter;
    /// use std::time::Duration;
    ///
    /// # pollster::block_on(async {
    /// let visitors = Limiter::local().distinct_counters("visitors", Duration::from_secs(3_600), 3)?;
    /// assert!(visitors.add("page", "alice").await?);
    /// # Ok::<(), shardlimit::Error>(())
    /// # }).unwrap();
    /// ```
    pub fn distinct_counters(&self, name: &str, window: Duration, shards: u16) -> Result<DistinctCounters, Error> {
        DistinctCounters::make(&self.0.counting, self.place(), name, window, shards)
    }

    /// Counters of about how many distinct values there were in a sliding window, from a millisecond to ten years.
    ///
    /// # Errors
    /// As [`counters`](Self::counters).
    ///
    /// ```
    /// use shardlimit::Limiter;
    /// use std::time::Duration;
    ///
    /// # pollster::block_on(async {
    /// let visitors = Limiter::local().approximate_counters("visitors", Duration::from_secs(3_600))?;
    /// visitors.add("page", "alice").await?;
    /// # Ok::<(), shardlimit::Error>(())
    /// # }).unwrap();
    /// ```
    pub fn approximate_counters(&self, name: &str, window: Duration) -> Result<ApproximateCounters, Error> {
        ApproximateCounters::make(&self.0.counting, self.place(), name, window)
    }

    fn place(&self) -> Place<'_> {
        match &self.0.store {
            Store::Local { clock, max_keys, .. } => Place::Local { clock, max_keys: *max_keys },
            #[cfg(feature = "redis")]
            Store::Shared(shared) => Place::Shared(SharedPlace {
                engine: &shared.engine,
                prefix: &shared.prefix,
                deadline: shared.deadline,
                hot: shared.hot,
                // As many again as limits have: neither keeps the other out.
                under_way: &self.0.counting.under_way,
                max_in_flight: shared.crowd.most,
            }),
        }
    }
}
