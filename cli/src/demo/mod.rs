//! `shardlimit demo`: a hot key under three times its limit, and what the limiter makes of it.
//!
//! * `command`: the run. `bound`: the promise, as a number. `chart`: the picture. `report`: all of it, for people and as JSON.

mod bound;
mod chart;
mod command;
mod report;

pub(crate) use command::run;
