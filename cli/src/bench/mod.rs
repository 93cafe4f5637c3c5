//! `shardlimit bench`: many calls on one key, and what became of them.
//!
//! With a demand the loop is *open*: call k is due at start + k ÷ demand, whatever became of the calls before it, and its
//! latency counts from that moment. A generator that waited for answers would ask less of a slow store, and
//! hide the very delays it should show. Up to 50 µs of it are the generator's own, and up to 250 µs where more processes than
//! cores make the calls. Without a demand the loop is *closed*: each caller calls again at once.
//!
//! * `command`: the run from its options to its report; `report`: the numbers, as JSON and as tables.
//! * `schedule`: when calls are due, in whole numbers. `job`: what a generator has to do.
//! * `generator`: threads, each with its callers (`caller`), who wait at a `pacer` with its precise `timer`.
//! * `tally`: what a worker counts. `live`: the part of it that can be watched; `progress`: the watching.
//! * What was admitted is judged by the package `check`.
//! * `processes`: the parent of a run in several processes; `part`: one of them.

mod caller;
mod command;
mod generator;
mod job;
mod live;
mod pacer;
mod part;
mod processes;
mod progress;
mod report;
mod schedule;
mod tally;
mod timer;

pub(crate) use command::run;
pub(crate) use generator::Generator;
pub(crate) use job::Job;
pub(crate) use part::{PART, run as run_as_part};
pub(crate) use progress::Progress;
pub(crate) use schedule::Demand;
pub(crate) use tally::{Sample, Tally};
