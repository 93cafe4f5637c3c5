//! Plans: on which slots a key's shards lie, and how much of the limit each of them holds.
//!
//! All of it is pure. What comes out is a proposal: the plan in force is what home's ledger says.

mod planner;
#[cfg(test)]
mod tests;

pub(crate) use planner::{Shards, plan, shards_for, split};
