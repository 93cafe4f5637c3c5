//! The commands and their options. An option that several commands share is a group of its own.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use shardlimit::{Carry, Limit};
use shardlimit_check::Change;

use crate::bench::Demand;
use crate::clock::Nanos;
use crate::redis_url::{RedisUrls, RingNodes};
use crate::store::{Mode, ShardsOption, StoreOptions};
use crate::values::{self, Key};

/// Try and measure rate limits, and look after the servers that hold them.
#[derive(Debug, Parser)]
#[command(name = "shardlimit", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub command: Command,
    /// Print exactly one JSON object, also for errors
    #[arg(long, global = true, display_order = 900)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Ask once for permits: exit 0 allowed, 1 denied, 2 error
    Acquire(AcquireOptions),
    /// Offer calls on one key and measure the decisions
    Bench(BenchOptions),
    /// Judge what several runs admitted together, also where the limit changed: exit 0 within it, 1 above
    Check(CheckOptions),
    /// Show which shards a key has and where they lie; makes the plan if there is none
    Plan(PlanOptions),
    /// Show or set the limit of a key while it is in use
    #[command(subcommand)]
    Limit(LimitCommand),
    /// Count by key: totals that end by themselves, distinct values, and events in sliding windows
    #[command(subcommand)]
    Count(CountCommand),
    /// Watch a hot key under three times its limit, for five seconds
    Demo,
    /// Start and stop a throw-away Redis Cluster on this machine
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Show which servers form a ring, and have them come and go
    #[command(subcommand)]
    Ring(RingCommand),
    /// Look at configuration files
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Look whether servers are fit for limits: exit 0 fine, 1 something is wrong, 2 nothing answers
    Doctor(DoctorOptions),
}

#[derive(Debug, Subcommand)]
pub(crate) enum CountCommand {
    /// Add to a key's counter: exit 0 counted, 1 it would be above --within, 2 error
    Add(CountAddOptions),
    /// Show the total of a key
    Get(CountOneOptions),
    /// Begin a key's counter anew at zero
    Reset(CountOneOptions),
    /// Add values, if any are given, and show how many distinct ones a key had lately
    Distinct(DistinctOptions),
    /// Add events, if a number is given, and show how many a key had lately
    Events(EventsOptions),
}

/// Which counter.
#[derive(Args, Debug)]
pub(crate) struct CountOptions {
    /// The key to count under: 1 to 16,384 bytes, any byte
    pub key: Key,
    /// The name that the counters stand under
    #[arg(long, default_value = "default")]
    pub name: String,
    #[command(flatten)]
    pub redis: RedisOptions,
}

#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct CountShardsOption {
    /// How many shards every process splits these counters into: 1 to 128
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::count_shards, allow_hyphen_values = true)]
    pub shards: u16,
}

#[derive(Args, Debug)]
pub(crate) struct CountOneOptions {
    #[command(flatten)]
    pub count: CountOptions,
    #[command(flatten)]
    pub shards: CountShardsOption,
}

#[derive(Args, Debug)]
pub(crate) struct CountAddOptions {
    #[command(flatten)]
    pub count: CountOptions,
    /// What to add; it may be negative
    #[arg(default_value = "1", value_parser = values::amount, allow_hyphen_values = true)]
    pub amount: i64,
    /// How long the counter counts, from its first add on, such as 1h or 30d
    #[arg(long, value_name = "TIME", default_value = "1d", value_parser = values::ttl, allow_hyphen_values = true)]
    pub ttl: Duration,
    /// From its last add on
    #[arg(long)]
    pub renew: bool,
    /// Add only if the total stays at or below this
    #[arg(long, value_name = "BOUND", value_parser = values::within, allow_hyphen_values = true)]
    pub within: Option<i64>,
    #[command(flatten)]
    pub shards: CountShardsOption,
}

#[derive(Args, Debug)]
pub(crate) struct DistinctOptions {
    #[command(flatten)]
    pub count: CountOptions,
    /// Values that are seen now: 1 to 512 bytes each, any byte
    #[arg(value_name = "VALUE")]
    pub values: Vec<Key>,
    /// How long a value counts after it was last seen, such as 1h or 30d
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = values::window, allow_hyphen_values = true)]
    pub window: Duration,
    /// Estimate, in bounded memory: 0.81 % standard error
    #[arg(long)]
    pub approximate: bool,
    #[command(flatten)]
    pub shards: CountShardsOption,
}

#[derive(Args, Debug)]
pub(crate) struct EventsOptions {
    #[command(flatten)]
    pub count: CountOptions,
    /// How many happen now
    #[arg(value_name = "EVENTS", default_value = "0", value_parser = values::events, allow_hyphen_values = true)]
    pub added: u64,
    /// How far back to count, such as 1min or 1h; up to 8 of them
    #[arg(long = "window", value_name = "TIME", default_value = "1h", value_parser = values::window, allow_hyphen_values = true)]
    pub windows: Vec<Duration>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LimitCommand {
    /// Show the limit that is in force for a key
    Get(GetOptions),
    /// Set the limit of one key, or of all keys that have none of their own
    Set(SetOptions),
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Read a file and show what it says, without asking any server: exit 0 it can be used, 2 it can't
    Check(ConfigCheckOptions),
}

#[derive(Args, Debug)]
pub(crate) struct ConfigCheckOptions {
    /// The file
    pub file: PathBuf,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RingCommand {
    /// Show its nodes, and whether everything is where it belongs
    Show(RingOptions),
    /// Add a node, or give one another weight, and wait until what belongs there is there
    Add(RingNodeOptions),
    /// Remove a node, and wait until all it has is elsewhere
    Remove(RemoveOptions),
    /// Finish a change that was left half done
    Settle(RingOptions),
}

/// Which ring: some of its nodes are enough.
#[derive(Args, Debug)]
pub(crate) struct RingOptions {
    /// Nodes of the ring: URL or sentinel://host:port+host:port/name each, with commas between
    #[arg(long, value_name = "URL[,URL...]")]
    pub ring: RingNodes,
}

#[derive(Args, Debug)]
pub(crate) struct RingNodeOptions {
    /// The node: URL*WEIGHT or sentinel://host:port+host:port/name*WEIGHT; the weight is 1 if none is given
    pub node: String,
    #[command(flatten)]
    pub of: RingOptions,
}

#[derive(Args, Debug)]
pub(crate) struct RemoveOptions {
    /// The node by its name, as `ring show` has it: host:port, or what its Sentinels call it
    pub node: String,
    /// It is gone for good, with all it had: its shares are lent anew, with nothing in them
    #[arg(long)]
    pub lost: bool,
    #[command(flatten)]
    pub of: RingOptions,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Start one; it goes on until it is stopped
    Up(UpOptions),
    /// Stop it and remove its files
    Down(FolderOptions),
}

#[derive(Args, Debug)]
pub(crate) struct UpOptions {
    /// How many masters share the slots: 1 to 16
    #[arg(long, value_name = "N", default_value = "3", value_parser = values::masters, allow_hyphen_values = true)]
    pub masters: u64,
    /// How many replicas each master has: 0 to 3
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::replicas, allow_hyphen_values = true)]
    pub replicas: u64,
    #[command(flatten)]
    pub folder: FolderOptions,
}

/// Which local cluster: a folder is one.
#[derive(Args, Debug)]
pub(crate) struct FolderOptions {
    /// The cluster's folder, new or empty; without it `shardlimit-cluster` among the temporary files
    #[arg(long, value_name = "PATH")]
    pub dir: Option<PathBuf>,
}

#[derive(Args, Debug)]
#[command(mut_arg("ring", |ring| ring.hide(true)), mut_arg("redis", |redis| redis.required(true)))]
pub(crate) struct DoctorOptions {
    #[command(flatten)]
    pub redis: RedisOptions,
    /// The limit whose keys the user of the URL must be allowed to use
    #[arg(long, default_value = "default")]
    pub name: String,
}

/// Which servers. Without any, limits live in this process.
#[derive(Args, Clone, Debug)]
pub(crate) struct RedisOptions {
    /// Where to begin: `redis://user:password@host:port`, rediss://… or host:port; several with commas between
    #[arg(long, value_name = "URL[,URL...]", conflicts_with = "ring")]
    pub redis: Option<RedisUrls>,
    /// Servers that form no cluster: URL*WEIGHT or sentinel://host:port+host:port/name each, with commas between
    #[arg(long, value_name = "URL[,URL...]")]
    pub ring: Option<RingNodes>,
}

#[derive(Args, Debug)]
pub(crate) struct AcquireOptions {
    /// The key to ask for: 1 to 16,384 bytes, any byte
    pub key: Key,
    #[command(flatten)]
    pub limit: LimitOrConfig,
    #[command(flatten)]
    pub store: StoreOptions,
    /// How many permits to ask for, all or none
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::permits, allow_hyphen_values = true)]
    pub permits: u64,
}

#[derive(Args, Debug)]
#[command(mut_arg("redis", |redis| redis.required_unless_present_any(["ring", "config"])))]
pub(crate) struct PlanOptions {
    /// The key whose plan to show: 1 to 16,384 bytes, any byte
    pub key: Key,
    #[command(flatten)]
    pub limit: LimitOrConfig,
    #[command(flatten)]
    pub store: StoreOptions,
}

#[derive(Args, Debug)]
#[command(mut_arg("redis", |redis| redis.required_unless_present("ring")))]
pub(crate) struct GetOptions {
    /// The key whose limit to show: 1 to 16,384 bytes, any byte
    pub key: Key,
    #[command(flatten)]
    pub limit: LimitOptions,
    #[command(flatten)]
    pub redis: RedisOptions,
}

#[derive(Args, Debug)]
#[command(mut_arg("redis", |redis| redis.required_unless_present("ring")))]
#[command(override_usage = "shardlimit limit set [OPTIONS] --redis <URL[,URL...]> <KEY> <NEW LIMIT>
       shardlimit limit set [OPTIONS] --redis <URL[,URL...]> --all <NEW LIMIT>")]
pub(crate) struct SetOptions {
    /// The key whose limit to set: 1 to 16,384 bytes, any byte. Not with --all
    #[arg(value_name = "KEY")]
    pub first: OsString,
    /// Its new limit, such as "token-bucket 5000/s burst 500"
    #[arg(value_name = "NEW LIMIT", allow_hyphen_values = true)]
    pub second: Option<OsString>,
    /// Set the limit of all keys of the name that have none of their own
    #[arg(long)]
    pub all: bool,
    /// What a key takes along: keep what is available or was used, the same proportion of the new limit, or reset it
    #[arg(long, value_name = "CARRY", default_value = "keep", allow_hyphen_values = true)]
    pub carry: Carry,
    /// The name that the limit stands under
    #[arg(long, default_value = "default")]
    pub name: String,
    /// What others define it as: a key that nobody has used yet begins with it [default: the new limit]
    #[arg(long, allow_hyphen_values = true)]
    pub limit: Option<Limit>,
    #[command(flatten)]
    pub redis: RedisOptions,
    #[command(flatten)]
    pub shards: ShardsOption,
}

#[derive(Args, Debug)]
pub(crate) struct BenchOptions {
    /// The key that every call asks for: 1 to 16,384 bytes, any byte
    #[arg(long)]
    pub key: Key,
    #[command(flatten)]
    pub limit: LimitOrConfig,
    #[command(flatten)]
    pub store: StoreOptions,
    /// How permits come to the callers: exact, each charged as it is asked for; or leased, taken ahead and spent in process
    #[arg(long, value_name = "MODE", default_value = "exact", allow_hyphen_values = true, conflicts_with = "config")]
    pub mode: Mode,
    /// How many callers there are; each has at most one call out
    #[arg(long, value_name = "N", default_value = "64", value_parser = values::callers, allow_hyphen_values = true)]
    pub callers: u64,
    /// How long to go on, such as 5s or 500ms
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = values::duration, allow_hyphen_values = true)]
    pub duration: Nanos,
    /// Offer so many calls, such as 200000/s, on a fixed schedule; without it each caller calls as fast as it can
    #[arg(long, value_name = "CALLS/PERIOD", value_parser = values::demand, allow_hyphen_values = true)]
    pub demand: Option<Demand>,
    /// How many permits each call asks for
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::permits, allow_hyphen_values = true)]
    pub permits: u64,
    /// Split callers and demand over so many processes
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::processes, allow_hyphen_values = true)]
    pub processes: u64,
    /// Judge all admissions together, by the store's time, against the limit's formula in the worst interval. Leased permits
    /// count when they are spent, by this machine's clock: across machines, clocks have to be in step
    #[arg(long)]
    pub check: bool,
    /// Write all admissions to a file, for `shardlimit check`
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct CheckOptions {
    /// What `bench --record` wrote, of each run
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    /// The limit that was in force at first
    #[arg(long, allow_hyphen_values = true)]
    pub limit: Limit,
    /// The limit was another from then on: when the change began and ended, in microseconds since 1970. Once for each
    #[arg(long = "change", value_name = "BEGIN-END=LIMIT", value_parser = values::change)]
    pub changes: Vec<Change>,
}

/// Which limit, or the file that has it. A file says all that there is to say of a store and a limit: beside it no other word counts.
#[derive(Args, Clone, Debug)]
pub(crate) struct LimitOrConfig {
    /// The limit, such as "token-bucket 500000/s burst 50000" or "sliding-window 3/10s"
    #[arg(long, allow_hyphen_values = true, required_unless_present = "config")]
    pub limit: Option<Limit>,
    /// A configuration file with the store and the limit, which --name takes
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["limit", "redis", "ring", "shards", "hot", "revision", "selector", "on_failure", "deadline"]
    )]
    pub config: Option<PathBuf>,
    /// The name that the limit stands under
    #[arg(long, default_value = "default")]
    pub name: String,
}

/// Which limit. A value may begin with a hyphen, so that a negative rate is refused as a rate, not as an option.
#[derive(Args, Clone, Debug)]
pub(crate) struct LimitOptions {
    /// The limit, such as "token-bucket 500000/s burst 50000" or "sliding-window 3/10s"
    #[arg(long, allow_hyphen_values = true)]
    pub limit: Limit,
    /// The name that the limit stands under
    #[arg(long, default_value = "default")]
    pub name: String,
}
