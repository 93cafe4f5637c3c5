//! Plans: on which slots a key's shards lie, and how much of the limit each of them holds.
//!
//! All of it is pure. What comes out is a proposal: the plan in force is what home's ledger says.

mod planner;
mod shares;
#[cfg(test)]
mod tests;

pub(crate) use planner::plan;
pub(crate) use shares::{Shards, common_cost, shards_for, split};
