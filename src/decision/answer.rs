//! Allowed or denied.

use std::time::Duration;

#[cfg(feature = "redis")]
use super::facts::StoreFacts;
use super::facts::{Facts, facts_accessors};
use super::receipt::Receipt;
use crate::kernel::{Header, Verdict};
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
/// # let limit = Limiter::local().define("api", "10/day".parse()?)?;
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
            return Self::Denied(Denied { facts: Facts { part: verdict.part(share), ..facts }, lack: verdict.lack });
        }
        let line = if share.is_paced() { verdict.line } else { 0 };
        let receipt = Receipt::local(owner, permits, header.at, verdict.line + permits as i64 * facts.cost);
        Self::Allowed(Allowed { facts, line, receipt })
    }

    pub(crate) fn denied(share: &Share, header: &Header, lack: i64) -> Self {
        Self::Denied(Denied { facts: Facts::local(share, header), lack })
    }
}

/// What shadow mode makes of calls that were not allowed.
impl Decision {
    /// The same call, allowed and charged nothing, with the denial that it was.
    pub(crate) fn spared(&self) -> Self {
        let (facts, line) = match self {
            Self::Denied(Denied { facts, lack }) => (*facts, *lack),
            Self::Allowed(Allowed { facts, line, .. }) => (*facts, *line),
        };
        Self::Allowed(Allowed { facts, line, receipt: Receipt::of_nothing() })
    }

    /// A call that ended in an error, allowed and charged nothing.
    pub(crate) fn spared_from_error() -> Self {
        Self::Allowed(Allowed { facts: Facts::unknown(), line: 0, receipt: Receipt::of_nothing() })
    }
}

/// Decisions of a shared store: times are in microseconds already, levels in permits.
#[cfg(feature = "redis")]
impl Decision {
    pub(crate) fn allowed_by_store(facts: StoreFacts, wait: u64, receipt: Receipt) -> Self {
        Self::Allowed(Allowed { facts: Facts::by_store(facts), line: wait as i64, receipt })
    }

    pub(crate) fn denied_by_store(facts: StoreFacts, retry_after: u64) -> Self {
        let lack = i64::try_from(retry_after).unwrap_or(i64::MAX);
        Self::Denied(Denied { facts: Facts::by_store(facts), lack })
    }
}

#[cfg(feature = "redis")]
impl Allowed {
    /// The denial of a call that was allowed, but whose turn would come too late by so much.
    pub(crate) fn denied_by(&self, late: u64) -> Decision {
        Decision::Denied(Denied { facts: self.facts, lack: late as i64 })
    }
}

impl Allowed {
    facts_accessors!(facts);

    /// How long to wait before going on: a pacing queue spaces its calls; elsewhere it is zero.
    ///
    /// ```
    /// # use shardlimit::{Decision, Limiter};
    /// # fn main() -> Result<(), shardlimit::Error> {
    /// # let limiter = Limiter::builder().clock(shardlimit::FakeClock::new()).build()?;
    /// let limit = limiter.define("mail", "pacing-queue 10/s capacity 5".parse()?)?;
    /// let waits: Vec<_> = (0..2)
    ///     .filter_map(|_| match limit.try_acquire("smtp", 1) {
    ///         Ok(Some(Decision::Allowed(allowed))) => Some(allowed.wait()),
    ///         _ => None,
    ///     })
    ///     .collect();
    /// assert!(waits[0].is_zero());
    /// assert_eq!(waits[1].as_millis(), 100);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn wait(&self) -> Duration {
        if self.receipt.is_of_nothing() { Duration::ZERO } else { self.facts.time_for(self.line) }
    }

    /// In [shadow mode](crate::NamedLimit::set_shadow), the denial that this would have been; `None` for a call that was
    /// allowed by right. Such a call was charged nothing.
    ///
    /// ```
    /// # use shardlimit::{Decision, Limiter};
    /// # fn main() -> Result<(), shardlimit::Error> {
    /// let limit = Limiter::builder().shadow(true).build()?.define("api", "1/day".parse()?)?;
    /// for would_be_denied in [false, true] {
    ///     if let Some(Decision::Allowed(allowed)) = limit.try_acquire("alice", 1)? {
    ///         assert_eq!(allowed.shadowed().is_some(), would_be_denied);
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn shadowed(&self) -> Option<Denied> {
        self.receipt.is_of_nothing().then_some(Denied { facts: self.facts, lack: self.line })
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

    /// The same, to look at.
    ///
    /// ```
    /// # use shardlimit::{Decision, Limiter};
    /// # fn main() -> Result<(), shardlimit::Error> {
    /// # let limit = Limiter::local().define("api", "10/s".parse()?)?;
    /// if let Some(Decision::Allowed(allowed)) = limit.try_acquire("alice", 2)? {
    ///     assert_eq!(allowed.receipt().permits(), 2);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn receipt(&self) -> &Receipt {
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

    /// Of a composite limit, which of its [`parts`](crate::Limit::parts) takes the longest, counted from 0. `None` for other
    /// limits, and where it was denied without asking the store by what is known of an idle key.
    ///
    /// ```
    /// # use shardlimit::{Decision, Limiter};
    /// # fn main() -> Result<(), shardlimit::Error> {
    /// let limit = Limiter::local().define("api", "9/s burst 9 + fixed-window 10/day".parse()?)?;
    /// let _ = limit.try_acquire("alice", 9)?;
    /// if let Some(Decision::Denied(denied)) = limit.try_acquire("alice", 2)? {
    ///     let part = limit.limit().parts().nth(denied.part().unwrap());
    ///     assert_eq!(part.unwrap().to_string(), "fixed-window 10/day");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn part(&self) -> Option<usize> {
        usize::from(self.facts.part).checked_sub(1)
    }
}
