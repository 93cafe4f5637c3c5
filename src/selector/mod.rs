//! Selectors: which shard a call asks first.
//!
//! * [`RoundRobin`]: each in turn. Exact shares, no look at anything: the default.
//! * [`LeastLoaded`]: the one that can have the most.
//! * [`PowerOfTwo`]: the better of two drawn at random: nearly as good, and clients that know the same do not all
//!   run to the same shard.
//!
//! A [`Selector`] of your own is one function over [`Candidates`].

mod candidates;
mod choices;

pub use candidates::Candidates;
pub use choices::{LeastLoaded, PowerOfTwo, RoundRobin};

/// Picks the shard that a call asks first. A denied call may hop once to another one.
///
/// ```
/// use shardlimit::{Candidates, Limiter, Selector};
///
/// /// Always the first: as if the key were not split.
/// struct First;
///
/// impl Selector for First {
///     fn select(&self, _: &Candidates<'_>) -> usize {
///         0
///     }
/// }
///
/// let limiter = Limiter::builder().redis(["redis://127.0.0.1:6379"]).selector(First).build()?;
/// # Ok::<(), shardlimit::Error>(())
/// ```
pub trait Selector: Send + Sync + 'static {
    /// The index of a candidate. It is taken modulo their number, so no answer is wrong.
    ///
    /// It is called for each call on a split key: it must not block.
    fn select(&self, candidates: &Candidates<'_>) -> usize;
}
