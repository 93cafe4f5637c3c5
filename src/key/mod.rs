//! Names, keys and slots: what together identifies a state, and where a cluster keeps it.

mod check;
mod slot;
#[cfg(feature = "redis")]
mod subkey;
mod tag;

pub(crate) use check::{check_key, check_name};
pub use slot::Slot;
#[cfg(feature = "redis")]
pub(crate) use subkey::{home_slot, plan_seed, sub_key};
