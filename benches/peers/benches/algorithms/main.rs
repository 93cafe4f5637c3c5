//! What does each algorithm cost one server, with batches and without, against a plain INCR?
//!
//! `cargo bench -p shardlimit-peers --bench algorithms -- [--quick] [--svg]`
//!
//! 1,000 callers in a closed loop on a single server. On one key their calls travel in batches; with a key each, every call
//! is a script run of its own. INCR goes through one multiplexed connection, which pipelines it.

mod contestants;

use std::time::Instant;

use shardlimit_peers::chart::{Bars, Scale, Series};
use shardlimit_peers::cluster::{Server, script_runs};
use shardlimit_peers::load::{Load, closed_loop, runtime};
use shardlimit_peers::{Defaults, Figures, Options, Results, Rounds, Table, count, machine};

use contestants::{ALGORITHMS, CALLERS, Incr, Keys, handles};

const BASELINE: &str = "INCR";

fn main() {
    let options = Options::from_args(Defaults { rounds: 5, seconds: 1.0 });
    let runtime = runtime(2);
    let server = Server::start(&[]);
    println!("{}; one server on loopback, {CALLERS} callers on a runtime of 2 workers", machine::describe());
    println!("{}\n", options.describe());

    let incr = runtime.block_on(Incr::new(&server));
    let mut rounds = Rounds::new(options.rounds);
    rounds.contestant(BASELINE, || {
        counting_runs(&server, || closed_loop(&runtime, CALLERS, options.turn, |_| incr.clone()))
    });
    for algorithm in ALGORITHMS {
        for keys in [Keys::One, Keys::Each] {
            let handles = runtime.block_on(handles(&runtime, &server, &algorithm, keys));
            let (runtime, server, turn) = (&runtime, &server, options.turn);
            rounds.contestant(name(algorithm.name, keys), move || {
                let caller = |caller: usize| handles[caller % handles.len()].clone();
                counting_runs(server, || closed_loop(runtime, CALLERS, turn, caller))
            });
        }
    }
    let results = rounds.run();
    report(&options, &results);
}

fn counting_runs(server: &Server, load: impl FnOnce() -> Load) -> Figures {
    let (before, began) = (script_runs(server), Instant::now());
    let load = load();
    let seconds = began.elapsed().as_secs_f64();
    let runs = (script_runs(server) - before) as f64;
    // Calls that fail may do so in no time, and ones that are denied in process: both leave the server to the others.
    let figures = load.figures().with("runs", runs / seconds);
    figures.flawed("calls failed", load.failed > 0).flawed("calls were denied", load.denied > 0)
}

fn report(options: &Options, results: &Results) {
    let columns =
        |keys: &str| [format!("{keys}: decisions/s"), "script runs/s".into(), "failed".into(), "× INCR".into()];
    let head = [String::new()].into_iter().chain(columns("one key")).chain(columns("a key each"));
    let mut table = Table::new(head);
    let rate = |name: &str| results.spread(name, "rate").map_or_else(|| "–".into(), |rate| rate.show(count));
    let failed = |name: &str| results.spread(name, "failed").map_or_else(|| "–".into(), |failed| count(failed.max));
    table.row([BASELINE, &rate(BASELINE), "0", &failed(BASELINE), "1"]);
    for algorithm in ALGORITHMS {
        let mut row = vec![algorithm.name.to_owned()];
        for keys in [Keys::One, Keys::Each] {
            let name = name(algorithm.name, keys);
            let runs = results.spread(&name, "runs").map_or_else(|| "–".into(), |runs| count(runs.median));
            let ratio = results.ratio(&name, BASELINE, "rate").map_or_else(|| "–".into(), |ratio| ratio.to_string());
            row.extend([rate(&name), runs, failed(&name), ratio]);
            if let Some(calls) = results.spread(&name, "denied").filter(|calls| calls.max > 0.0) {
                println!("{name}: {} calls a turn denied", calls.show(count));
            }
        }
        table.row(row);
    }
    print!("{table}\n{}", results.left_out());
    if let Some(path) = options.chart("algorithms") {
        chart(results).draw(&path).expect("a chart");
    }
}

fn chart(results: &Results) -> Bars {
    let median = |name: &str| results.spread(name, "rate").map_or(f64::NAN, |rate| rate.median);
    let bars = |keys: Keys| ALGORITHMS.map(|algorithm| median(&name(algorithm.name, keys)));
    let series = |name: &str, first: f64, rest: &[f64]| Series { name: name.into(), values: [&[first], rest].concat() };
    Bars {
        title: format!("One server, {CALLERS} callers: decisions a second"),
        y: ("decisions/s", Scale::Log),
        groups: [BASELINE].into_iter().chain(ALGORITHMS.map(|algorithm| algorithm.name)).map(Into::into).collect(),
        series: vec![
            series("one key, in batches", f64::NAN, &bars(Keys::One)),
            series("a key each, no batches", median(BASELINE), &bars(Keys::Each)),
        ],
    }
}

fn name(algorithm: &str, keys: Keys) -> String {
    match keys {
        Keys::One => format!("{algorithm}, one key"),
        Keys::Each => format!("{algorithm}, a key each"),
    }
}
