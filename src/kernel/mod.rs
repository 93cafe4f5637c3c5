//! The kernels: each algorithm as one pure function over whole numbers.
//!
//! `(state or nothing, share, now, batch) -> (state, verdicts)`. Time is an argument, nothing is rounded, and a
//! batch gives just what its calls would have got one after another. Three functions serve six algorithms, and a fourth
//! serves several of them at once:
//!
//! | kernel | algorithms | why one function |
//! |---|---|---|
//! | [`bucket`] | token-bucket, leaky-bucket, pacing-queue | a meter's free room is a bucket's level; a queue's line is what is missing from it |
//! | [`fixed_window`] | fixed-window | |
//! | [`sliding_window`] | sliding-window, sliding-log | a log is a sliding window whose sub-windows last 1 µs |
//! | [`composite`] | several of these | all parts give, or none does |
//!
//! **Time going back.** A state has seen a latest instant. While the clock shows less, time stands still: nothing
//! refills twice. If the clock is behind by more than a full refill it was set back for good, and the state
//! follows it: nobody is locked out for longer than that. See [`batch::steady`].

pub(crate) mod batch;
pub(crate) mod bucket;
pub(crate) mod composite;
pub(crate) mod fixed_window;
#[cfg(all(test, feature = "redis"))]
pub(crate) mod leased;
#[cfg(all(any(test, model), feature = "redis"))]
pub(crate) mod rewrite;
pub(crate) mod sliding_window;
pub(crate) mod state;
#[cfg(test)]
pub(crate) mod tests;

#[cfg(feature = "redis")]
pub(crate) use batch::UNSPENT;
pub(crate) use batch::{Ask, Batch, Header, Refund, Verdict};
pub(crate) use state::State;
