//! Names, keys and slots: what together identifies a state, and where a cluster keeps it.

mod check;
mod slot;
mod tag;

pub(crate) use check::{check_key, check_name};
pub use slot::Slot;
