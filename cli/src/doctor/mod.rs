//! `shardlimit doctor`: whether servers are fit for limits, and what to do where they are not.
//!
//! * `topology`: who is in the cluster, as one of its nodes sees it.
//! * `probe`: what one server says about itself, and how far away it is.
//! * `permission`: what the user of the URL may not do.
//! * `diagnosis`: everything that was found out, and which slots are covered.
//! * `finding`: what is wrong with it. Pure.
//! * `command`, `report`: the way of one examination, and its answer.

mod command;
mod diagnosis;
mod finding;
mod permission;
mod probe;
mod report;
#[cfg(test)]
mod tests;
mod topology;

pub(crate) use command::run;
