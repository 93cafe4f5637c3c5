//! What becomes of adds.

/// What became of an add.
///
/// ```
/// # use shardlimit::{Limiter, counter::{Added, CounterSettings}}; use std::time::Duration;
/// # pollster::block_on(async {
/// # let clicks = Limiter::local().counters("clicks", CounterSettings::new(Duration::from_secs(86_400)))?;
/// match clicks.add("item:42", 1).await? {
///     Added::Counted { total } => assert_eq!(total, Some(1)),
///     Added::Queued => println!("the store does not answer; it is delivered later"),
///     _ => {}
/// }
/// # Ok::<(), shardlimit::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Added {
    /// It is counted.
    Counted {
        /// The total right after this add; where its first answer was lost, as of the later one. None: the counter has several
        /// shards, and only a read knows.
        total: Option<i64>,
    },
    /// The store did not answer by the deadline, or 100,000 callers wait for it already. It is kept, and delivered once the store
    /// answers, exactly once.
    Queued,
}

/// What became of an add that has a bound.
///
/// ```
/// # use shardlimit::{Limiter, counter::{CounterSettings, Within}}; use std::time::Duration;
/// # pollster::block_on(async {
/// # let seats = Limiter::local().counters("seats", CounterSettings::new(Duration::from_secs(86_400)))?;
/// assert_eq!(seats.add_within("hall", 90, 100).await?, Within::Counted { total: 90 });
/// assert_eq!(seats.add_within("hall", 11, 100).await?, Within::Above { total: 90 });
/// # Ok::<(), shardlimit::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a bound binds nobody unless the caller looks"]
pub enum Within {
    /// It is counted.
    Counted {
        /// The total right after it; where its first answer was lost, as of the later one.
        total: i64,
    },
    /// Nothing was counted: the total would be above the bound.
    Above {
        /// As it stays.
        total: i64,
    },
}

/// Adds that were given up.
///
/// ```
/// # use shardlimit::{Limiter, counter::CounterSettings}; use std::time::Duration;
/// let clicks = Limiter::local().counters("clicks", CounterSettings::new(Duration::from_secs(86_400)))?;
/// assert_eq!(clicks.dropped().unknown, 0);
/// # Ok::<(), shardlimit::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dropped {
    /// Surely not counted: the queue was full, the total would have been too large, or the store refused one with a bound.
    pub refused: u64,
    /// Counted once or not at all, and nobody can tell: no answer within the horizon, or the limiter ended meanwhile.
    pub unknown: u64,
}

/// Calls of this process on counters of a shared store that had no answer.
///
/// ```
/// # use shardlimit::{Limiter, counter::CounterSettings}; use std::time::Duration;
/// let clicks = Limiter::local().counters("clicks", CounterSettings::new(Duration::from_secs(86_400)))?;
/// assert_eq!((clicks.unanswered().late, clicks.unanswered().crowded), (0, 0));
/// # Ok::<(), shardlimit::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unanswered {
    /// Calls that the store did not answer by their deadline. Of several keys at once, each counts. Adds are [queued](Added::Queued)
    /// then, unless they have a bound.
    pub late: u64,
    /// Calls that were not taken because too many were under way already. Adds were queued at once, unless they have a bound.
    pub crowded: u64,
}
