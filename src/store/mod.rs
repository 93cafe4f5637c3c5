//! Where shard state lives.
//!
//! A store has one entry and it takes a [`Batch`](crate::kernel::Batch) for one shard; a single call is a batch of
//! one. [`local`] is the embedded store: the kernels under a lock, in memory that is bounded by [`keyed`].
//! `cluster` runs the scripts of `lua/` on the masters of a Redis Cluster, or on a single server; `ring` has it do so on servers that
//! know nothing of each other.

#[cfg(feature = "redis")]
pub(crate) mod cluster;
pub(crate) mod keyed;
pub(crate) mod local;
#[cfg(feature = "redis")]
pub(crate) mod ring;
#[cfg(test)]
mod tests;
