//! The selectors that come with the library.

use super::{Candidates, Selector};

/// Each shard in turn, from a random start.
///
/// ```
/// use shardlimit::{Limiter, RoundRobin};
///
/// let limiter = Limiter::builder().redis(["redis://127.0.0.1:6379"]).selector(RoundRobin).build()?;
/// # Ok::<(), shardlimit::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundRobin;

impl Selector for RoundRobin {
    fn select(&self, candidates: &Candidates<'_>) -> usize {
        // The turn counts in 64 bits without a sign, and wraps: never negative, never out of range.
        (candidates.turn() % candidates.len() as u64) as usize
    }
}

/// The shard that can have the most permits; among equals the next in turn.
///
/// ```
/// use shardlimit::{LeastLoaded, Limiter};
///
/// let limiter = Limiter::builder().redis(["redis://127.0.0.1:6379"]).selector(LeastLoaded).build()?;
/// # Ok::<(), shardlimit::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct LeastLoaded;

impl Selector for LeastLoaded {
    fn select(&self, candidates: &Candidates<'_>) -> usize {
        let first = RoundRobin.select(candidates);
        let count = candidates.len();
        // Calls on their way are not in the last answer yet: each will take a permit at the least.
        let free = |shard: usize| candidates.ceiling(shard).saturating_sub(candidates.waiting(shard) as u64);
        let mut best = (first, free(first));
        for shard in (1..count).map(|step| (first + step) % count) {
            let free = free(shard);
            if free > best.1 {
                best = (shard, free);
            }
        }
        best.0
    }
}

/// The better of two shards drawn at random, by what they can have.
///
/// ```
/// use shardlimit::{Limiter, PowerOfTwo};
///
/// let limiter = Limiter::builder().redis(["redis://127.0.0.1:6379"]).selector(PowerOfTwo).build()?;
/// # Ok::<(), shardlimit::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct PowerOfTwo;

impl Selector for PowerOfTwo {
    fn select(&self, candidates: &Candidates<'_>) -> usize {
        let count = candidates.len();
        if count == 1 {
            return 0;
        }
        let one = rand::random_range(0..count);
        // Any but the first.
        let other = (one + rand::random_range(1..count)) % count;
        let free = |shard: usize| candidates.ceiling(shard).saturating_sub(candidates.waiting(shard) as u64);
        if free(other) > free(one) { other } else { one }
    }
}
