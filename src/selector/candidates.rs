//! What a selector may look at.

use crate::clock::Micros;
use crate::flow::sharded::Lane;
use crate::sync::Arc;

/// The shards of one key that could hold what a call asks for.
///
/// ```
/// use shardlimit::{Candidates, Selector};
///
/// /// The one with the fewest calls of this process on their way to it.
/// struct LeastWaiting;
///
/// impl Selector for LeastWaiting {
///     fn select(&self, candidates: &Candidates<'_>) -> usize {
///         (0..candidates.len()).min_by_key(|shard| candidates.waiting(*shard)).unwrap_or(0)
///     }
/// }
/// ```
pub struct Candidates<'a> {
    pub(crate) lanes: &'a [Arc<Lane>],
    pub(crate) turn: u64,
    pub(crate) now: Micros,
}

impl Candidates<'_> {
    /// How many there are; at least one.
    ///
    /// ```
    /// # use shardlimit::Candidates;
    /// fn last(candidates: &Candidates<'_>) -> usize {
    ///     candidates.len() - 1
    /// }
    /// ```
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "there is always one")]
    pub fn len(&self) -> usize {
        self.lanes.len()
    }

    /// The number of this turn among those of the key, from a random start: two clients are never in step. Calls that
    /// come within 2 ms share a turn, or within less if the burst is small, until they are as many as go together.
    ///
    /// ```
    /// # use shardlimit::Candidates;
    /// fn round_robin(candidates: &Candidates<'_>) -> usize {
    ///     (candidates.turn() % candidates.len() as u64) as usize
    /// }
    /// ```
    #[must_use]
    pub fn turn(&self) -> u64 {
        self.turn
    }

    /// The most permits that a shard can have now, from its last answer to this process; its burst if it gave none, and
    /// none for a while after it could not be reached.
    ///
    /// ```
    /// # use shardlimit::Candidates;
    /// fn least_loaded(candidates: &Candidates<'_>) -> usize {
    ///     (0..candidates.len()).max_by_key(|shard| candidates.ceiling(*shard)).unwrap_or(0)
    /// }
    /// ```
    #[must_use]
    pub fn ceiling(&self, shard: usize) -> u64 {
        self.lanes[shard % self.lanes.len()].most(self.now)
    }

    /// The burst of a shard's share.
    ///
    /// ```
    /// # use shardlimit::Candidates;
    /// fn load(candidates: &Candidates<'_>, shard: usize) -> f64 {
    ///     1.0 - candidates.ceiling(shard) as f64 / candidates.burst(shard) as f64
    /// }
    /// ```
    #[must_use]
    pub fn burst(&self, shard: usize) -> u64 {
        self.lanes[shard % self.lanes.len()].burst
    }

    /// How many calls of this process are waiting for a shard.
    ///
    /// ```
    /// # use shardlimit::Candidates;
    /// fn busy(candidates: &Candidates<'_>, shard: usize) -> bool {
    ///     candidates.waiting(shard) > 0
    /// }
    /// ```
    #[must_use]
    pub fn waiting(&self, shard: usize) -> usize {
        self.lanes[shard % self.lanes.len()].waiting()
    }
}
