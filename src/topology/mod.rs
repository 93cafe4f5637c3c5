//! The topology: which master owns a slot for writes.
//!
//! A [`Topology`] is an immutable snapshot. Whoever learns something new makes another one: from a whole reply of
//! the cluster by [`Topology::new`], from one MOVED by [`Topology::with_moved`]. Replicas never enter: a share on a
//! replica would be a share that nobody can charge.

pub(crate) mod parse;
mod ring;
mod snapshot;
#[cfg(test)]
pub(crate) mod tests;
mod watch;

pub(crate) use ring::{MOST_WEIGHT, assign};
#[cfg(test)]
pub(crate) use snapshot::Malformed;
pub use snapshot::{Master, Topology};
pub use watch::TopologyWatch;
