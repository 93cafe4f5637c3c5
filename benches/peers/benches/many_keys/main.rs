//! What do a million keys cost: memory in the client, and calls a second?
//!
//! `cargo bench -p shardlimit-peers --bench many_keys [-- --quick] [--svg]`
//!
//! Three masters, one limit, keys that are asked for as users come: some very often, most hardly ever. The bare contestant
//! sends one EVALSHA a call over a multiplexed connection to the master that owns the key, and knows no keys at all.

mod callers;
mod pass;

use std::error::Error;
use std::time::Instant;

use callers::{BURST, Bare, BareCaller, Draw, Ours, RATE};
use pass::{Found, Job};
use shardlimit_peers::chart::{Bars, Scale, Series};
use shardlimit_peers::cluster::{self, Cluster, cluster_runs};
use shardlimit_peers::load::{Load, closed_loop, runtime};
use shardlimit_peers::{Defaults, Figures, Options, Results, Rounds, Table, count, machine, number};

/// The argument that makes this program a pass; then its job.
const PASS: &str = "--pass";
/// Callers at once.
const CALLERS: usize = 512;
const BARE: &str = "bare EVALSHA";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == PASS) {
        pass::run(&arguments[1..]);
        return Ok(());
    }
    let options = Options::from_args(Defaults { rounds: 5, seconds: 3.0 });
    println!("{}\n{}", machine::describe(), options.describe());
    let keys: u64 = if options.quick { 100_000 } else { 1_000_000 };
    println!("3 masters, {} keys at {RATE}/s burst {BURST}, {CALLERS} callers\n", count(keys as f64));
    // Room for all, and for a tenth of them.
    let rooms = [keys as usize * 11 / 10, keys as usize / 10];
    let cluster = cluster::start(3);
    let pass = |limit: &str| -> Vec<(usize, Found)> {
        let found = |max_keys: &usize| {
            let (urls, limit) = (cluster::urls(&cluster), limit.to_owned());
            (*max_keys, pass::measure(&Job { urls, limit, max_keys: *max_keys, keys, length: options.turn }))
        };
        rooms.iter().map(found).collect()
    };
    let memory = pass(&callers::whole());
    println!("{}", memory_table("every key once", &memory, keys));
    println!("{}", memory_table("every key once, split", &pass(callers::SPLIT), keys));

    let runtime = runtime(machine::cores());
    let bare = runtime.block_on(Bare::new(&cluster));
    let mut rounds = Rounds::new(options.rounds);
    for max_keys in rooms {
        let client = callers::client(&cluster::urls(&cluster), max_keys);
        let limit = callers::limit(&client, &format!("zipf-{max_keys}"), &callers::whole());
        let (cluster, runtime) = (&cluster, &runtime);
        rounds.contestant(ours(max_keys), move || {
            let caller = |seed| Ours { limit: limit.clone(), draw: Draw::new(keys, seed) };
            with_runs(cluster, || closed_loop(runtime, CALLERS, options.turn, caller))
        });
    }
    rounds.contestant(BARE, || {
        let caller = |seed| BareCaller::new(&bare, Draw::new(keys, seed));
        with_runs(&cluster, || closed_loop(&runtime, CALLERS, options.turn, caller))
    });
    let results = rounds.run();
    print!("{}", load_table(&results));
    if let Some(path) = options.chart("many_keys") {
        rate_chart(keys, &results).draw(&path)?;
    }
    if let Some(path) = options.chart("many_keys_memory") {
        memory_chart(&memory, keys).draw(&path)?;
    }
    Ok(())
}

fn ours(max_keys: usize) -> String {
    format!("shardlimit, max_keys {}", count(max_keys as f64))
}

/// Of those that it saw: what the setting lets it keep.
fn bytes_a_key(max_keys: usize, found: &Found, keys: u64) -> f64 {
    found.after.saturating_sub(found.before) as f64 / (max_keys as f64).min(keys as f64)
}

fn memory_table(what: &str, memory: &[(usize, Found)], keys: u64) -> Table {
    let head = [what, "seconds", "calls/s", "MB before", "MB after", "tracked at most", "bytes a tracked key"];
    let mut table = Table::new(head.into_iter().chain(["MB after load", "failed"]));
    for (max_keys, found) in memory {
        let Found { before, after, after_load, took, failed } = *found;
        let megabytes = |bytes: u64| number(bytes as f64 / 1e6);
        table.row([
            ours(*max_keys),
            number(took as f64 / 1e3),
            count(keys as f64 * 1e3 / took as f64),
            megabytes(before),
            megabytes(after),
            count((*max_keys as f64).min(keys as f64)),
            count(bytes_a_key(*max_keys, found, keys)),
            megabytes(after_load),
            count(failed as f64),
        ]);
    }
    table
}

/// The figures of a load, with the script runs that the masters counted meanwhile.
fn with_runs(cluster: &Cluster, load: impl FnOnce() -> Load) -> Figures {
    let (before, began) = (cluster_runs(cluster), Instant::now());
    let load = load();
    let runs = (cluster_runs(cluster) - before) as f64;
    let calls = load.calls as f64;
    load.figures()
        .with("runs", runs / began.elapsed().as_secs_f64())
        .with("batch", calls / runs)
        .with("denied", load.denied as f64 / load.decisions as f64)
}

fn load_table(results: &Results) -> Table {
    let head = ["keys as users come", "decisions/s", "against bare", "runs/s", "calls a run", "p50, µs", "p99, µs"];
    let mut table = Table::new(head.into_iter().chain(["client CPU, µs a call", "denied", "failed"]));
    for name in results.names() {
        let figure = |figure| results.spread(name, figure).map_or(f64::NAN, |spread| spread.median);
        table.row([
            name.into(),
            count(figure("rate")),
            results.ratio(name, BARE, "rate").map_or("-".into(), |ratio| ratio.to_string()),
            count(figure("runs")),
            number(figure("batch")),
            count(figure("p50")),
            count(figure("p99")),
            number(figure("cpu")),
            format!("{:.1} %", figure("denied") * 100.0),
            count(figure("failed")),
        ]);
    }
    table
}

fn rate_chart(keys: u64, results: &Results) -> Bars {
    let rate = |name: &str| results.spread(name, "rate").map_or(f64::NAN, |rate| rate.median);
    Bars {
        title: format!("Decisions a second over {} keys, 3 masters, {CALLERS} callers", count(keys as f64)),
        y: ("decisions/s", Scale::Linear),
        groups: vec!["keys as users come".into()],
        series: results.names().map(|name| Series { name: name.into(), values: vec![rate(name)] }).collect(),
    }
}

fn memory_chart(memory: &[(usize, Found)], keys: u64) -> Bars {
    let bytes = |(max_keys, found): &(usize, Found)| Series {
        name: ours(*max_keys),
        values: vec![bytes_a_key(*max_keys, found, keys)],
    };
    Bars {
        title: format!("Client memory after {} keys", count(keys as f64)),
        y: ("bytes a tracked key", Scale::Linear),
        groups: vec!["every key once".into()],
        series: memory.iter().map(bytes).collect(),
    }
}
