//! Names and keys: what together identifies a state.

mod check;

pub(crate) use check::{check_key, check_name};
