//! Plans: on which slots a key's shards lie, and how much of the limit each of them holds.
//!
//! All of it is pure. What comes out is a proposal: the plan in force is what home's ledger says.

mod definition;
mod planner;
mod shares;
#[cfg(test)]
mod tests;
mod view;

pub(crate) use definition::{Definition, SET, SET_KEY};
pub(crate) use planner::plan;
pub use shares::Shards;
#[cfg(test)]
pub(crate) use shares::common_cost;
pub(crate) use shares::{cost_of, shards_for, split};
pub use view::{Plan, PlannedShard, ShardCounts};
