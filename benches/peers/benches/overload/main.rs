//! What does a limit cost whose callers ask for far more than it has?
//!
//! `cargo bench -p shardlimit-peers --bench overload [-- --quick] [--svg]`
//!
//! Three masters, one key, 10,000 permits a second; 2, 20 and 200 times as many calls, from 1, 4 and 16 processes, each
//! with a limiter of its own. What counts is how often Redis is asked for each permit that it gives.

mod client;
mod fleet;
mod job;

use std::cell::Cell;
use std::error::Error;
use std::time::Duration;

use job::{Counts, Job, Mode};
use shardlimit_peers::chart::{Lines, Scale, Series};
use shardlimit_peers::cluster::{self, Cluster};
use shardlimit_peers::{Defaults, Figures, Options, Results, Rounds, Table, count, machine, number};

/// The argument that makes this program a client; then its job.
const CLIENT: &str = "--client";

const RATE: f64 = 10_000.0;
const BURST: f64 = 1_000.0;
const DEMANDS: [u32; 3] = [2, 20, 200];
const PROCESSES: [usize; 3] = [1, 4, 16];

/// One row: the mode, the demand in multiples of the limit, the number of client processes.
type Row = (Mode, u32, usize);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == CLIENT) {
        client::run(&arguments[1..]);
        return Ok(());
    }
    let options = Options::from_args(Defaults { rounds: 5, seconds: 3.0 });
    println!("{}\n{}", machine::describe(), options.describe());
    println!("3 masters, one key, {} permits a second, burst {}\n", count(RATE), count(BURST));
    let cluster = cluster::start(3);
    let keys = Cell::new(0_u32);
    let mut rounds = Rounds::new(options.rounds);
    for row in rows().filter(|row| options.wants(&name(row))) {
        let (cluster, keys, length) = (&cluster, &keys, options.turn);
        rounds.contestant(name(&row), move || {
            // A key of its own: every turn begins with a full burst.
            keys.set(keys.get() + 1);
            turn(cluster, row, &format!("item:{}", keys.get()), length)
        });
    }
    let results = rounds.run();
    print!("{}\n{}", table(&results), results.left_out());
    if let Some(path) = options.chart("overload") {
        chart(&results).draw(&path)?;
    }
    Ok(())
}

fn rows() -> impl Iterator<Item = Row> {
    let demands = Mode::ALL.into_iter().flat_map(|mode| DEMANDS.map(|demand| (mode, demand)));
    demands.flat_map(|(mode, demand)| PROCESSES.map(|processes| (mode, demand, processes)))
}

fn name((mode, demand, processes): &Row) -> String {
    format!("{}, {demand} x, {processes} processes", mode.name())
}

fn turn(cluster: &Cluster, (mode, demand, processes): Row, key: &str, length: Duration) -> Figures {
    let job = Job {
        urls: cluster::urls(cluster),
        mode,
        limit: format!("token-bucket {RATE}/s burst {BURST}"),
        key: key.into(),
        rate: RATE * f64::from(demand) / processes as f64,
        length,
    };
    let (counts, runs) = fleet::run(cluster, &job, processes);
    let Counts { due, made, allowed, denied, by_ceiling, by_lease, failed, took, used } = counts;
    let seconds = took as f64 / 1e9;
    Figures::new()
        .with("offered", made as f64 / length.as_secs_f64() / RATE)
        .with("decisions", (allowed + denied) as f64 / seconds)
        .with("runs", runs as f64 / seconds)
        .with("runs per admission", runs as f64 / allowed as f64)
        .with("of the bound", allowed as f64 / (BURST + RATE * seconds))
        .with("by ceiling", by_ceiling as f64 / denied as f64)
        .with("by lease", by_lease as f64 / allowed as f64)
        .with("failed", failed as f64)
        .with("clients", used as f64 / took as f64)
        // At the highest demand a small machine never makes all calls, and the row shows what it made: that many it was. The
        // others are named by what was asked for, so with less than 99 % of it made, the demand was another one.
        .late(demand < DEMANDS[2] && made * 100 < due * 99)
}

fn table(results: &Results) -> Table {
    let head =
        ["demand and clients", "offered, x the limit", "decisions/s", "Redis calls/s", "Redis calls an admission"];
    let more = ["admitted, of burst + rate·t", "denied in process", "leased", "clients, cores", "failed"];
    let mut table = Table::new(head.into_iter().chain(more));
    for name in results.names() {
        let figure = |figure| results.spread(name, figure).map_or(f64::NAN, |spread| spread.median);
        let percent = |figure: f64| if figure.is_nan() { "-".into() } else { format!("{:.1} %", figure * 100.0) };
        table.row([
            name.into(),
            number(figure("offered")),
            count(figure("decisions")),
            count(figure("runs")),
            results.sound(name, "runs per admission").map_or("late".into(), |runs| runs.show(number)),
            // Of all rounds, and with four digits: what lies above 1 counts from the first permit, however few calls there were.
            results.spread(name, "of the bound").map_or("-".into(), |spread| spread.show(|part| format!("{part:.4}"))),
            percent(figure("by ceiling")),
            percent(figure("by lease")),
            number(figure("clients")),
            count(figure("failed")),
        ]);
    }
    table
}

fn chart(results: &Results) -> Lines {
    let series = Mode::ALL.iter().flat_map(|mode| PROCESSES.map(|processes| (*mode, processes)));
    let series = series.map(|(mode, processes)| Series {
        name: format!("{}, {processes} client processes", mode.name()),
        values: DEMANDS
            .iter()
            .map(|demand| {
                let runs = results.sound(&name(&(mode, *demand, processes)), "runs per admission");
                (f64::from(*demand), runs.map_or(f64::NAN, |runs| runs.median))
            })
            .collect(),
    });
    Lines {
        title: "Redis calls for each admission, under overload".into(),
        x: ("calls asked for, in multiples of the limit", Scale::Log),
        y: ("Redis calls an admission", Scale::Log),
        series: series.collect(),
    }
}
