//! `shardlimit check`: judges what several runs admitted together, also where the limit changed meanwhile.
//!
//! * `record`: the admissions of a run, as `bench --record` writes them. `command`: from the options to the report.

mod command;
mod record;

pub(crate) use command::run;
pub(crate) use record::write;
