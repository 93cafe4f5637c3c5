//! The fault suite: real clusters, several processes that call, one fault after the other, and what the calls came to.
//!
//! ```sh
//! cargo run --release -p shardlimit-faults -- --list
//! cargo run --release -p shardlimit-faults -- kill-one stop --replicas 0 --full-coverage no
//! cargo run --release -p shardlimit-faults -- --markdown
//! cargo run --release -p shardlimit-faults -- disagree grow change heat kill-steps failovers
//! cargo run --release -p shardlimit-faults -- soak --minutes 10
//! ```
//!
//! * `options`: the command line. `run`: one fault from its cluster to its figures. `stage`: the cluster with all around it.
//! * `fault/`: what is done to it, a function for each. `cluster/`, `network`, `proxy`: what that needs.
//! * `load`: a process that calls, `silence`: whom it had no answer from, and `record`: what it writes; `fleet`: such processes as seen from here. `limiter`: how
//!   all of them build their limiter.
//! * `folder`: where files of a run lie.
//! * `judge/`: from the records to figures. `report`: a line for people, a row for the documentation.
//! * `agree/`: whether all clients agree, whatever happens to them. `ledger`: home's ledger, as a server has it. `moving`: a process that moves
//!   shares.
//! * `counted`, `distinct`: whether counters of several processes are exact while servers die and connections are cut. `counting`: such a
//!   process.
//! * `once`: whether a call whose connection was cut is ever charged twice. `gone`: how fast calls are decided without any
//!   master. `soak/`: whether anything grows in a long run.

mod agree;
mod clock;
mod cluster;
mod counted;
mod counting;
mod distinct;
mod failure;
mod fault;
mod fleet;
mod folder;
mod gone;
mod judge;
mod ledger;
mod limiter;
mod load;
mod moving;
mod network;
mod once;
mod options;
mod proxy;
mod record;
mod report;
mod run;
mod silence;
mod soak;
mod stage;

use std::process::ExitCode;

use clap::Parser;
use failure::Failure;
use options::{Command, Options};

fn main() -> ExitCode {
    let options = Options::parse();
    let done = match &options.command {
        Some(Command::Load(job)) => load::run(job).map(|()| true),
        Some(Command::Soak(job)) => soak::run(job),
        Some(Command::Count(job)) => counting::run(job).map(|()| true),
        Some(Command::Move(job)) => moving::run(job).map(|()| true),
        None => run::suite(&options.suite),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::from(2)
        }
    }
}
