//! `shardlimit check`: judges what several runs admitted together, also where the limit changed meanwhile.
//!
//! * `record`: the admissions of a run, as `bench --record` writes them. `history`: the limits that were in force, one after
//!   the other. `command`: from the options to the report.

mod command;
mod history;
mod record;

pub(crate) use command::run;
pub(crate) use history::Change;
pub(crate) use record::write;
