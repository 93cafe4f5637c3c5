//! What a refund needs.

use crate::clock::Micros;
use crate::kernel::Refund;

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
    /// Where the permits came from, on a shared store.
    #[cfg(feature = "redis")]
    from: From,
}

/// One shard is the rule, and needs no memory of its own.
///
/// Its tag is a whole word, and so is that of a decision, which is kept in it: moved with a smaller one, the words around it are
/// taken apart.
#[cfg(feature = "redis")]
#[derive(Debug)]
enum From {
    Here,
    Shard(Shard),
    Shards(Box<[Charge]>),
}

#[cfg(feature = "redis")]
#[derive(Clone, Copy, Debug)]
struct Shard {
    slot: crate::key::Slot,
    id: crate::wire::GrantId,
}

/// What one shard was charged.
#[cfg(feature = "redis")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Charge {
    pub slot: crate::key::Slot,
    pub id: crate::wire::GrantId,
    pub permits: u64,
    pub at: Micros,
    pub line: i64,
}

#[cfg(feature = "redis")]
impl Charge {
    pub(crate) fn refund(&self, permits: u64) -> Refund {
        Refund { permits, at: self.at, line: self.line }
    }
}

#[cfg(feature = "redis")]
impl Receipt {
    #[inline(always)]
    pub(crate) fn of_shard(owner: u64, charge: &Charge) -> Self {
        let Charge { slot, id, permits, at, line } = *charge;
        Self { owner, permits, at, line, from: From::Shard(Shard { slot, id }) }
    }

    pub(crate) fn of_shards(owner: u64, charges: &[Charge]) -> Self {
        let permits = charges.iter().map(|charge| charge.permits).sum();
        let (at, line) = charges.last().map_or((0, 0), |last| (last.at, last.line));
        Self { owner, permits, at, line, from: From::Shards(charges.into()) }
    }

    pub(crate) fn charges(&self) -> impl DoubleEndedIterator<Item = Charge> + '_ {
        let (one, many): (Option<Charge>, &[Charge]) = match &self.from {
            From::Here => (None, &[]),
            From::Shard(Shard { slot, id }) => {
                let Self { permits, at, line, .. } = *self;
                (Some(Charge { slot: *slot, id: *id, permits, at, line }), &[])
            }
            From::Shards(charges) => (None, charges),
        };
        one.into_iter().chain(many.iter().copied())
    }

    /// What each shard was charged: its slot, the permits, and the time of its server in microseconds since 1970. More
    /// than one only if the call asked for more than one share. Nothing on the embedded store.
    ///
    /// ```
    /// # use shardlimit::{Decision, Limiter};
    /// # fn main() -> Result<(), shardlimit::Error> {
    /// # let limit = Limiter::local().define("api", "10/s".parse()?)?;
    /// if let Some(Decision::Allowed(allowed)) = limit.try_acquire("alice", 2)? {
    ///     assert_eq!(allowed.into_receipt().shards().count(), 0);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use = "looking changes nothing"]
    pub fn shards(&self) -> impl Iterator<Item = (crate::Slot, u64, u64)> + '_ {
        self.charges().map(|charge| (charge.slot, charge.permits, charge.at))
    }
}

impl Receipt {
    #[inline(always)]
    /// Of a call that was charged nothing.
    pub(crate) fn of_nothing() -> Self {
        Self::local(0, 0, 0, 0)
    }

    pub(crate) fn is_of_nothing(&self) -> bool {
        self.permits == 0
    }

    pub(crate) fn local(owner: u64, permits: u64, at: Micros, line: i64) -> Self {
        Self {
            owner,
            permits,
            at,
            line,
            #[cfg(feature = "redis")]
            from: From::Here,
        }
    }

    /// When the permits were charged, by the clock of the store that charged them: microseconds since 1970.
    ///
    /// ```
    /// # use shardlimit::{Decision, Limiter};
    /// # fn main() -> Result<(), shardlimit::Error> {
    /// # let limit = Limiter::local().define("api", "10/s".parse()?)?;
    /// if let Some(Decision::Allowed(allowed)) = limit.try_acquire("alice", 2)? {
    ///     println!("charged at {} µs", allowed.into_receipt().charged_at());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn charged_at(&self) -> u64 {
        self.at
    }

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
