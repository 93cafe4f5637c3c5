//! The answer to a call, and what a refund needs.

use std::time::Duration;

use crate::clock::Micros;
use crate::kernel::{Header, Refund, Verdict};
use crate::limit::Share;

/// Allowed or denied, with the facts.
///
/// ```
/// use shardlimit::{Decision, Limiter};
///
/// # fn main() -> Result<(), shardlimit::Error> {
/// let limit = Limiter::local().define("api", "1/s burst 1".parse()?)?;
/// for _ in 0..2 {
///     match limit.try_acquire("alice", 1)?.expect("the embedded store always knows") {
///         Decision::Allowed(allowed) => println!("go, {} left", allowed.remaining().permits),
///         Decision::Denied(denied) => println!("not before {:?}", denied.retry_after()),
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a denial limits nothing unless the caller acts on it"]
pub enum Decision {
    /// The permits are charged: go on.
    Allowed(Allowed),
    /// Not yet. Nothing was charged.
    Denied(Denied),
}

/// A call that got its permits.
///
/// ```
/// # use shardlimit::{Decision, Limiter};
/// # fn main() -> Result<(), shardlimit::Error> {
/// # let limit = Limiter::local().define("api", "10/s burst 10".parse()?)?;
/// if let Some(Decision::Allowed(allowed)) = limit.try_acquire("alice", 4)? {
///     assert_eq!(allowed.remaining().permits, 6);
///     assert!(allowed.wait().is_zero());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Allowed {
    facts: Facts,
    /// What has to drain before the call's turn in a pacing queue, in units of refill.
    line: i64,
    receipt: Receipt,
}

/// A call that did not get its permits, and was charged nothing.
///
/// ```
/// # use shardlimit::{Decision, Limiter};
/// # fn main() -> Result<(), shardlimit::Error> {
/// # let limit = Limiter::local().define("api", "10/s burst 1".parse()?)?;
/// # let _ = limit.try_acquire("alice", 1)?;
/// if let Some(Decision::Denied(denied)) = limit.try_acquire("alice", 1)? {
///     assert!(denied.retry_after().as_millis() <= 100);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Denied {
    facts: Facts,
    /// What has to come back first, in units of refill.
    lack: i64,
}

/// What the reply said, as it came: most callers ask for one figure of it or for none, so the divisions wait.
#[derive(Clone, Copy, Debug)]
struct Facts {
    level: i64,
    cost: i64,
    missing: i64,
    /// Units of refill a microsecond.
    rate: i64,
    /// How far the clock was behind the state.
    behind: Micros,
    decided_by: DecidedBy,
}

/// What is left of a limit for a key.
///
/// ```
/// # use shardlimit::Limiter;
/// # fn main() -> Result<(), shardlimit::Error> {
/// # let limit = Limiter::local().define("api", "10/s burst 10".parse()?)?;
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
            Self::Fallback => "fallback",
        }
    }
}

/// Proof of a charge: what a refund or a settlement needs. Dropping it keeps the charge.
///
/// It is plain data, good for one refund at the limit and key that gave it.
///
/// ```
/// # use shardlimit::{Decision, Limiter};
/// # pollster::block_on(async {
/// # let limit = Limiter::local().define("api", "10/s".parse()?)?;
/// if let Decision::Allowed(allowed) = limit.acquire_n("alice", 5).await? {
///     let receipt = allowed.into_receipt();
///     assert_eq!(receipt.permits(), 5);
///     limit.refund("alice", receipt).await?; // the work was not done after all
/// }
/// # Ok::<(), shardlimit::Error>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct Receipt {
    /// The hash of the key, seeded anew for each named limit.
    pub(crate) owner: u64,
    pub(crate) permits: u64,
    pub(crate) at: Micros,
    pub(crate) line: i64,
}

/// What a key has left, as [`peek`](crate::NamedLimit::peek) saw it.
///
/// ```
/// # use shardlimit::Limiter;
/// # pollster::block_on(async {
/// # let limit = Limiter::local().define("api", "10/s burst 10".parse()?)?;
/// let peek = limit.peek("alice").await?;
/// assert_eq!(peek.remaining().permits, 10);
/// assert!(peek.reset_after().is_zero());
/// # Ok::<(), shardlimit::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Peek {
    facts: Facts,
}

macro_rules! facts_accessors {
    ($($facts:tt)+) => {
        /// What is left after this decision, or was seen by this look.
        ///
        /// ```
        /// # use shardlimit::Limiter;
        /// # pollster::block_on(async {
        /// let limit = Limiter::local().define("api", "10/s".parse()?)?;
        /// assert_eq!(limit.acquire_n("alice", 4).await?.remaining().permits, 6);
        /// assert_eq!(limit.peek("alice").await?.remaining().permits, 6);
        /// # Ok::<(), shardlimit::Error>(())
        /// # }).unwrap();
        /// ```
        #[must_use]
        pub fn remaining(&self) -> Remaining {
            let facts = self.$($facts)+;
            Remaining { permits: facts.remaining(), exact: facts.decided_by == DecidedBy::Local }
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
        pub fn reset_after(&self) -> Duration {
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
        pub fn decided_by(&self) -> DecidedBy {
            self.$($facts)+.decided_by
        }
    };
}

impl Decision {
    facts_accessors!(facts());

    /// Whether the permits were charged.
    ///
    /// ```
    /// # use shardlimit::Limiter;
    /// # fn main() -> Result<(), shardlimit::Error> {
    /// # let limit = Limiter::local().define("api", "10/s".parse()?)?;
    /// assert!(limit.try_acquire("alice", 1)?.unwrap().is_allowed());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed(_))
    }

    fn facts(&self) -> &Facts {
        match self {
            Self::Allowed(allowed) => &allowed.facts,
            Self::Denied(denied) => &denied.facts,
        }
    }

    /// The decision of the embedded store for a call that was alone in its batch.
    #[inline(always)]
    pub(crate) fn local(share: &Share, owner: u64, permits: u64, header: &Header, verdict: &Verdict) -> Self {
        let facts = Facts::local(share, header);
        if verdict.granted == 0 {
            return Self::Denied(Denied { facts, lack: verdict.lack });
        }
        let line = if share.is_paced() { verdict.line } else { 0 };
        let receipt = Receipt { owner, permits, at: header.at, line: verdict.line + permits as i64 * facts.cost };
        Self::Allowed(Allowed { facts, line, receipt })
    }

    pub(crate) fn denied(share: &Share, header: &Header, lack: i64) -> Self {
        Self::Denied(Denied { facts: Facts::local(share, header), lack })
    }
}

impl Facts {
    #[inline(always)]
    fn local(share: &Share, header: &Header) -> Self {
        Self {
            level: header.level,
            cost: share.cost(),
            missing: header.missing,
            rate: share.rate(),
            behind: header.at - header.now,
            decided_by: DecidedBy::Local,
        }
    }

    /// Whole permits; none when the level is a debt.
    fn remaining(&self) -> u64 {
        self.level.max(0) as u64 / self.cost as u64
    }

    /// How long until so many units have come back, rounded up to a microsecond.
    fn time_for(&self, units: i64) -> Duration {
        if units <= 0 {
            return Duration::ZERO;
        }
        Duration::from_micros(self.behind + (units as u64).div_ceil(self.rate as u64))
    }
}

impl Allowed {
    facts_accessors!(facts);

    /// How long to wait before going on: a pacing queue spaces its calls; elsewhere it is zero.
    ///
    /// ```
    /// # use shardlimit::{Decision, Limiter};
    /// # fn main() -> Result<(), shardlimit::Error> {
    /// let limit = Limiter::local().define("mail", "pacing-queue 10/s capacity 5".parse()?)?;
    /// let waits: Vec<_> = (0..2)
    ///     .filter_map(|_| match limit.try_acquire("smtp", 1) {
    ///         Ok(Some(Decision::Allowed(allowed))) => Some(allowed.wait()),
    ///         _ => None,
    ///     })
    ///     .collect();
    /// assert!(waits[0].is_zero());
    /// assert!(waits[1].as_millis() > 90 && waits[1].as_millis() <= 100);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn wait(&self) -> Duration {
        self.facts.time_for(self.line)
    }

    /// What a refund or a settlement needs.
    ///
    /// ```
    /// # use shardlimit::{Decision, Limiter};
    /// # fn main() -> Result<(), shardlimit::Error> {
    /// # let limit = Limiter::local().define("api", "10/s".parse()?)?;
    /// if let Some(Decision::Allowed(allowed)) = limit.try_acquire("alice", 2)? {
    ///     assert_eq!(allowed.into_receipt().permits(), 2);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn into_receipt(self) -> Receipt {
        self.receipt
    }

    pub(crate) fn receipt(&self) -> &Receipt {
        &self.receipt
    }

    /// The same, after its turn in a pacing queue has come.
    pub(crate) fn waited(mut self) -> Self {
        self.line = 0;
        self
    }
}

impl Denied {
    facts_accessors!(facts);

    /// Not before this long from now. A refund or a reset may make room earlier, other callers may take it.
    ///
    /// ```
    /// # use shardlimit::{Decision, Limiter};
    /// # fn main() -> Result<(), shardlimit::Error> {
    /// # let limit = Limiter::local().define("api", "1/s burst 1".parse()?)?;
    /// # let _ = limit.try_acquire("alice", 1)?;
    /// if let Some(Decision::Denied(denied)) = limit.try_acquire("alice", 1)? {
    ///     assert!(denied.retry_after().as_secs_f64() <= 1.0);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn retry_after(&self) -> Duration {
        self.facts.time_for(self.lack)
    }
}

impl Peek {
    facts_accessors!(facts);

    pub(crate) fn local(share: &Share, header: &Header) -> Self {
        Self { facts: Facts::local(share, header) }
    }
}

impl Receipt {
    pub(crate) fn refund(&self, permits: u64) -> Refund {
        Refund { permits, at: self.at, line: self.line }
    }

    /// How many permits were charged.
    ///
    /// ```
    /// # use shardlimit::{Decision, Limiter};
    /// # fn main() -> Result<(), shardlimit::Error> {
    /// # let limit = Limiter::local().define("api", "10/s".parse()?)?;
    /// if let Some(Decision::Allowed(allowed)) = limit.try_acquire("alice", 2)? {
    ///     assert_eq!(allowed.into_receipt().permits(), 2);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn permits(&self) -> u64 {
        self.permits
    }
}
