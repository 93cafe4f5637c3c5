//! What a reply said, and the figures that are drawn from it.

use std::time::Duration;

use crate::clock::Micros;
use crate::kernel::Header;
use crate::limit::Share;

/// What the reply said, as it came: most callers ask for one figure of it or for none, so the divisions wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub(super) level: i64,
    pub(super) cost: i64,
    pub(super) missing: i64,
    /// Units of refill a microsecond.
    pub(super) rate: i64,
    /// How far the clock was behind the state.
    pub(super) behind: Micros,
    pub(super) decided_by: DecidedBy,
    /// Whether what is left is the whole truth.
    pub(super) exact: bool,
    /// The part of a composite limit that denied, counted from 1; 0 where that is not known.
    pub(super) part: u8,
}

/// What a shared store said, in permits and microseconds: its shards may count in different units.
#[cfg(feature = "redis")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreFacts {
    pub remaining: u64,
    pub reset_after: Micros,
    pub exact: bool,
    pub decided_by: DecidedBy,
    /// The part of a composite limit that lacks the most, counted from 1; 0 where that is not known.
    pub part: u8,
}

/// What is left of a limit for a key.
///
/// ```
/// # use shardlimit::Limiter;
/// # fn main() -> Result<(), shardlimit::Error> {
/// # let limit = Limiter::local().define("api", "10/day".parse()?)?;
/// let decision = limit.try_acquire("alice", 3)?.unwrap();
/// assert_eq!(decision.remaining().permits, 7);
/// assert!(decision.remaining().exact);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Remaining {
    /// Permits that a call could have had right after this one.
    pub permits: u64,
    /// Whether that is the whole truth. An estimate is drawn from a part of the limit or from an older reply.
    pub exact: bool,
}

/// Who made a decision.
///
/// ```
/// # use shardlimit::{DecidedBy, Limiter};
/// # fn main() -> Result<(), shardlimit::Error> {
/// # let limit = Limiter::local().define("api", "10/s".parse()?)?;
/// let decision = limit.try_acquire("alice", 1)?.unwrap();
/// assert_eq!(decision.decided_by(), DecidedBy::Local);
/// assert_eq!(DecidedBy::Local.name(), "local");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DecidedBy {
    /// A shared store.
    Store,
    /// The embedded store.
    Local,
    /// A permit leased ahead.
    Lease,
    /// A ceiling: no shard could have had enough.
    Ceiling,
    /// The line: others of this process wait for the key already.
    Line,
    /// The failure policy, while the store could not be reached.
    Fallback,
}

impl DecidedBy {
    /// The word for it in logs, metrics and JSON.
    ///
    /// ```
    /// assert_eq!(shardlimit::DecidedBy::Ceiling.name(), "ceiling");
    /// ```
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Local => "local",
            Self::Lease => "lease",
            Self::Ceiling => "ceiling",
            Self::Line => "line",
            Self::Fallback => "fallback",
        }
    }
}

macro_rules! facts_accessors {
    ($($facts:tt)+) => {
        /// What is left after this decision, or was seen by this look.
        ///
        /// ```
        /// # use shardlimit::Limiter;
        /// # pollster::block_on(async {
        /// let limit = Limiter::local().define("api", "10/day".parse()?)?;
        /// assert_eq!(limit.acquire_n("alice", 4).await?.remaining().permits, 6);
        /// assert_eq!(limit.peek("alice").await?.remaining().permits, 6);
        /// # Ok::<(), shardlimit::Error>(())
        /// # }).unwrap();
        /// ```
        #[must_use]
        pub fn remaining(&self) -> $crate::Remaining {
            let facts = self.$($facts)+;
            $crate::Remaining { permits: facts.remaining(), exact: facts.exact }
        }

        /// How long until the key is as new, if nobody takes anything meanwhile.
        ///
        /// ```
        /// # use shardlimit::{FakeClock, Limiter}; use std::time::Duration;
        /// # pollster::block_on(async {
        /// # let limiter = Limiter::builder().clock(&FakeClock::new()).build()?;
        /// let limit = limiter.define("api", "10/s".parse()?)?;
        /// assert_eq!(limit.acquire_n("alice", 4).await?.reset_after(), Duration::from_millis(400));
        /// assert_eq!(limit.peek("alice").await?.reset_after(), Duration::from_millis(400));
        /// # Ok::<(), shardlimit::Error>(())
        /// # }).unwrap();
        /// ```
        #[must_use]
        pub fn reset_after(&self) -> std::time::Duration {
            let facts = self.$($facts)+;
            facts.time_for(facts.missing)
        }

        /// Who knew.
        ///
        /// ```
        /// # use shardlimit::{DecidedBy, Limiter};
        /// # pollster::block_on(async {
        /// let limit = Limiter::local().define("api", "10/s".parse()?)?;
        /// assert_eq!(limit.acquire("alice").await?.decided_by(), DecidedBy::Local);
        /// # Ok::<(), shardlimit::Error>(())
        /// # }).unwrap();
        /// ```
        #[must_use]
        pub fn decided_by(&self) -> $crate::DecidedBy {
            self.$($facts)+.decided_by
        }
    };
}

impl Facts {
    #[inline(always)]
    pub(super) fn local(share: &Share, header: &Header) -> Self {
        Self {
            level: header.level,
            cost: share.cost(),
            missing: header.missing,
            rate: share.rate(),
            behind: header.at - header.now,
            decided_by: DecidedBy::Local,
            exact: true,
            part: 0,
        }
    }

    /// Of a call that nobody could decide.
    pub(super) fn unknown() -> Self {
        Self {
            level: 0,
            cost: 1,
            missing: 0,
            rate: 1,
            behind: 0,
            decided_by: DecidedBy::Fallback,
            exact: false,
            part: 0,
        }
    }

    #[cfg(feature = "redis")]
    pub(super) fn by_store(facts: StoreFacts) -> Self {
        let StoreFacts { remaining, reset_after, exact, decided_by, part } = facts;
        let (level, missing) = (remaining as i64, reset_after as i64);
        Self { level, cost: 1, missing, rate: 1, behind: 0, decided_by, exact, part }
    }

    /// Whole permits; none when the level is a debt.
    pub(super) fn remaining(&self) -> u64 {
        self.level.max(0) as u64 / self.cost as u64
    }

    /// How long until so many units have come back, rounded up to a microsecond.
    pub(super) fn time_for(&self, units: i64) -> Duration {
        if units <= 0 {
            return Duration::ZERO;
        }
        Duration::from_micros(self.behind + (units as u64).div_ceil(self.rate as u64))
    }
}

pub(super) use facts_accessors;
