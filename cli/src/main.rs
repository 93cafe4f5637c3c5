//! The `shardlimit` program: try and measure rate limits from a shell, and look after their servers.
//!
//! Every command makes a [`Report`](output::Report): one JSON object with `--json`, a readable table without.

mod acquire;
mod arguments;
mod bench;
mod check;
mod clock;
mod cluster;
mod config;
mod count;
mod demo;
mod doctor;
mod error;
mod events;
mod interrupt;
mod limit;
mod node;
mod options;
mod output;
mod plan;
mod redis_url;
mod ring;
mod store;
mod values;

use std::env;
use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use error::Failure;
use interrupt::Interrupt;
use options::{Cli, ClusterCommand, Command, ConfigCommand, CountCommand, LimitCommand};
use output::{Exit, Output};

fn main() -> ExitCode {
    let arguments: Vec<OsString> = env::args_os().collect();
    // Not one of the commands: only a bench calls it, and it speaks with that bench only.
    if arguments.len() == 2 && arguments[1] == bench::PART {
        return bench::run_as_part().into();
    }
    // First of all: from here on SIGINT can't keep the answer from being given.
    let interrupt = Interrupt::install();
    let command = arguments::named_command(&arguments);
    let parsed = Cli::try_parse_from(&arguments);
    // The options did not come to be, but whoever reads the answer still wants it as it was asked for.
    let json = parsed.as_ref().map_or_else(|_| arguments::wants_json(&arguments), |cli| cli.json);
    let output = Output::new(json);
    let exit = match parsed {
        Ok(cli) => interrupt
            .and_then(|interrupt| run(cli.command, output, &interrupt))
            .unwrap_or_else(|failure| output.failure(command.as_deref(), &failure)),
        Err(refusal) => output.refusal(command.as_deref(), &refusal),
    };
    exit.into()
}

/// For commands that make one call.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Failure::system("runtime", "can't be started", &error))
}

fn run(command: Command, output: Output, interrupt: &Interrupt) -> Result<Exit, Failure> {
    match command {
        Command::Acquire(options) => output.report(&acquire::run(&options)?),
        Command::Bench(options) => output.report(&bench::run(options, interrupt)?),
        Command::Check(options) => output.report(&check::run(&options)?),
        Command::Plan(options) => output.report(&plan::run(&options)?),
        Command::Limit(LimitCommand::Get(options)) => output.report(&limit::get(&options)?),
        Command::Limit(LimitCommand::Set(options)) => output.report(&limit::set(options)?),
        Command::Count(CountCommand::Add(options)) => output.report(&count::add(&options)?),
        Command::Count(CountCommand::Get(options)) => {
            output.report(&count::get(&options.count, options.shards.shards)?)
        }
        Command::Count(CountCommand::Reset(options)) => {
            output.report(&count::reset(&options.count, options.shards.shards)?)
        }
        Command::Count(CountCommand::Distinct(options)) => output.report(&count::distinct(&options)?),
        Command::Count(CountCommand::Events(options)) => output.report(&events::run(&options)?),
        Command::Demo => output.report(&demo::run(interrupt)?),
        Command::Cluster(ClusterCommand::Up(options)) => output.report(&cluster::up(&options, interrupt)?),
        Command::Cluster(ClusterCommand::Down(options)) => output.report(&cluster::down(&options)?),
        Command::Ring(command) => output.report(&ring::run(&command)?),
        Command::Config(ConfigCommand::Check(options)) => output.report(&config::check(&options)?),
        Command::Doctor(options) => output.report(&doctor::run(&options)?),
    }
}
