//! The command line.

use clap::{ArgAction, Args, Parser, Subcommand};

use crate::limiter::Settings;
use crate::load::Job;
use crate::{counting, moving};

/// Injects faults into real clusters under load, and judges what the calls came to.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
pub(crate) struct Options {
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub suite: Suite,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// One of the processes that call; the suite starts them.
    #[command(hide = true)]
    Load(Job),
    /// Uses limiters in every way for a long time, and says whether memory, tasks, threads or sockets grow.
    Soak(crate::soak::Job),
    /// One that moves shares or sets a limit, and is killed meanwhile; the suite starts it.
    #[command(hide = true)]
    Move(moving::Job),
    /// One of the processes that count; the suite starts them.
    #[command(hide = true)]
    Count(counting::Job),
}

/// What to run.
#[derive(Args, Clone, Debug)]
pub(crate) struct Suite {
    /// By name; all faults if none is given. What shows that clients agree has limits and clusters of its own, and runs only if it is
    /// named.
    pub faults: Vec<String>,
    /// Lists the faults.
    #[arg(long)]
    pub list: bool,
    /// Replicas of each master.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=1))]
    pub replicas: u8,
    /// Whether the cluster stops while slots are uncovered.
    #[arg(long, default_value = "no", action = ArgAction::Set, value_parser = yes_or_no)]
    pub full_coverage: bool,
    /// How long a fault lasts that has no length of its own.
    #[arg(long, default_value_t = 5)]
    pub seconds: u64,
    /// Calls a second of all processes together; twice the limit if it is not given.
    #[arg(long)]
    pub rate: Option<u64>,
    /// Processes that call.
    #[arg(long, default_value_t = 2)]
    pub processes: usize,
    /// Prints rows for the documentation.
    #[arg(long)]
    pub markdown: bool,
    /// Leaves the records of the processes in this folder.
    #[arg(long)]
    pub keep: Option<std::path::PathBuf>,
    #[command(flatten)]
    pub settings: Settings,
}

fn yes_or_no(word: &str) -> Result<bool, String> {
    match word {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("must be yes or no".into()),
    }
}
