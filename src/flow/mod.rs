//! What happens to a call between its caller and the store.
//!
//! * [`call`]: one call, from its check to its decision.
//! * [`line`]: the calls that wait for one key, in the order of their arrival.
//! * [`wait`]: the future of a call that waits.
//! * [`shadow`]: calls that are decided, and let pass all the same.
//! * `sharded`: calls on a shared store.

pub(crate) mod call;
pub(crate) mod line;
pub(crate) mod shadow;
#[cfg(feature = "redis")]
pub(crate) mod sharded;
mod wait;

pub(crate) use line::Line;
