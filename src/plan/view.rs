//! The plan of a key, as its users see it.

use crate::key::Slot;
use crate::limit::Limit;
use crate::topology::Master;

/// The shards that a key's limit is split into, as the ledger of its home has them.
///
/// ```no_run
/// # async fn run() -> Result<(), shardlimit::Error> {
/// let limiter = shardlimit::Limiter::builder().redis(["redis://127.0.0.1:6379"]).build()?;
/// let checkout = limiter.define("checkout", "token-bucket 500000/s burst 50000".parse()?)?;
/// for shard in checkout.plan("item:42").await?.shards {
///     println!("slot {} holds {} of the burst", shard.slot.number(), shard.burst);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Plan {
    /// The limit in force.
    pub limit: Limit,
    /// Its shards; the first is home.
    pub shards: Vec<PlannedShard>,
}

/// One shard of a [`Plan`].
///
/// ```no_run
/// # async fn run(checkout: shardlimit::NamedLimit) -> Result<(), shardlimit::Error> {
/// let plan = checkout.plan("item:42").await?;
/// let lent: u64 = plan.shards.iter().filter(|shard| !shard.is_home).map(|shard| shard.permits).sum();
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PlannedShard {
    /// Whether it is the one that holds the ledger.
    pub is_home: bool,
    /// The Redis key that holds it.
    pub sub_key: Box<[u8]>,
    /// Where that lies.
    pub slot: Slot,
    /// Who owns the slot now; none if nobody does.
    pub master: Option<Master>,
    /// The id that it was granted under; home's is that of the ledger.
    pub grant: String,
    /// Its share of the limit: permits in each of the limit's periods.
    pub permits: u64,
    /// Its share of the burst.
    pub burst: u64,
}

/// What one process had of one shard of a key, since it first used it. See [`Handle::counts`](crate::Handle::counts).
///
/// ```no_run
/// # fn run(hot: shardlimit::Handle) {
/// for shard in hot.counts() {
///     println!("slot {}: {} runs for {} calls", shard.slot.number(), shard.runs, shard.allowed + shard.denied);
/// }
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardCounts {
    /// Where the shard lies.
    pub slot: Slot,
    /// Script runs that were sent to it, also those without an answer: each decides all calls that waited for it. A redirect, or
    /// another try, is part of its run.
    pub runs: u64,
    /// Calls that it allowed. A lease counts as one for each permit that was taken ahead.
    pub allowed: u64,
    /// Calls that it denied; a call that hops is counted at both shards, and a permit that a lease did not get as one.
    pub denied: u64,
}
