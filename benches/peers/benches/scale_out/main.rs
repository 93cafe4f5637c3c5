//! How far does one hot key scale with the number of masters?
//!
//! `cargo bench -p shardlimit-peers --bench scale_out [-- --quick] [--svg]`
//!
//! One key is split over 1, 2, 4 and 8 masters, each a `redis-server` that may use the same small part of a core, so that
//! the masters are the limit and not this machine. As many callers keep to each master, so batches are as large on all of
//! them; the rows by round-robin show what the library's default makes of the same callers.

mod cap;
mod setup;

use std::error::Error;
use std::time::{Duration, Instant};

use cap::Caps;
use setup::{Field, Spreading, processes};
use shardlimit_peers::chart::{Lines, Scale, Series};
use shardlimit_peers::load::{closed_loop, runtime};
use shardlimit_peers::usage::{idle_time, processor_time_of};
use shardlimit_peers::{Defaults, Figures, Options, Results, Rounds, Spread, Table, count, machine, number};
use tokio::runtime::Runtime;

const MASTERS: [usize; 4] = [1, 2, 4, 8];
const SPREADING: [Spreading; 2] = [Spreading::Kept, Spreading::RoundRobin];
/// Callers for each master.
const CALLERS: usize = 64;
/// What a master may use: 1 ms in every 20, 5 % of a core, so that eight of them and their client take about one core. The
/// kernel takes no quota below 1 ms, so a finer one would be a larger one.
const QUOTA: u32 = cap::LEAST_QUOTA;
const PERIOD: u32 = 20_000;

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::from_args(Defaults { rounds: 5, seconds: 4.0 });
    println!("{}\n{}", machine::describe(), options.describe());
    let runtime = runtime(machine::cores());
    let fields: Vec<Field> = MASTERS.iter().map(|masters| Field::new(&runtime, *masters)).collect();
    // After the clusters have formed, which takes more than a capped server has.
    let capped = match Caps::new(&processes(&fields), QUOTA, PERIOD) {
        Ok(caps) => {
            println!("each master may use {:.1} % of a core; {CALLERS} callers a master\n", share() * 100.0);
            Some(caps)
        }
        Err(error) => {
            println!(
                "masters are NOT capped ({error}): this needs root and control groups. Without caps the machine is the \
                 limit, so what follows says nothing about scaling, and no ratio is given.\n"
            );
            None
        }
    };
    let mut rounds = Rounds::new(options.rounds);
    for field in &fields {
        for spreading in SPREADING {
            let (runtime, length) = (&runtime, options.turn);
            rounds.contestant(name(field.masters(), spreading), move || turn(runtime, field, spreading, length));
        }
    }
    let results = rounds.run();
    print!("{}", table(&results, capped.is_some()));
    if was_busy(&results) {
        println!("\nThe machine had no idle time left in some row: what ran beside the bench is part of these ratios.");
    }
    if let Some(path) = options.chart("scale_out") {
        chart(&results, capped.is_some()).draw(&path)?;
    }
    Ok(())
}

/// The part of a core that a master may use.
fn share() -> f64 {
    f64::from(QUOTA) / f64::from(PERIOD)
}

fn name(masters: usize, spreading: Spreading) -> String {
    match spreading {
        Spreading::Kept => format!("{masters}"),
        Spreading::RoundRobin => format!("{masters}, by round-robin"),
    }
}

fn turn(runtime: &Runtime, field: &Field, spreading: Spreading, length: Duration) -> Figures {
    let used = || -> Vec<Duration> { field.processes.iter().map(|process| processor_time_of(*process)).collect() };
    let (runs_before, used_before, idle_before) = (field.runs(spreading), used(), idle_time());
    let began = Instant::now();
    let load = closed_loop(runtime, CALLERS * field.masters(), length, |number| field.caller(spreading, number));
    let seconds = began.elapsed().as_secs_f64();
    let cores = |used: Duration| used.as_secs_f64() / seconds;
    let masters: Vec<f64> = used().iter().zip(used_before).map(|(now, before)| cores(*now - before)).collect();
    let batch = load.calls as f64 / (field.runs(spreading) - runs_before) as f64;
    Figures::new()
        .with("decisions", load.rate())
        .with("runs", load.rate() / batch)
        .with("batch", batch)
        .with("not allowed", (load.failed + load.denied) as f64)
        .with("client", load.processor_time.as_secs_f64() / load.elapsed.as_secs_f64())
        .with("least used", masters.iter().copied().fold(f64::MAX, f64::min))
        .with("most used", masters.iter().copied().fold(0.0, f64::max))
        .with("idle", (idle_time() - idle_before).as_secs_f64() / seconds)
}

fn table(results: &Results, capped: bool) -> Table {
    let head = ["masters", "runs/s", "of linear", "batch", "decisions/s", "of linear", "client, cores"];
    let mut table = Table::new(head.into_iter().chain(["a master, of its cap", "idle cores", "not allowed"]));
    for (spreading, masters) in SPREADING.iter().flat_map(|spreading| MASTERS.map(|masters| (*spreading, masters))) {
        let name = name(masters, spreading);
        let figure = |figure| results.spread(&name, figure).map_or(f64::NAN, |spread| spread.median);
        let cap = |used: f64| if capped { number(used / share()) } else { format!("{used:.2} cores") };
        let linear = |figure| {
            let ratio = linear(results, masters, spreading, figure).filter(|_| capped);
            ratio.map_or("-".into(), |ratio| ratio.to_string())
        };
        table.row([
            name.clone(),
            count(figure("runs")),
            linear("runs"),
            number(figure("batch")),
            count(figure("decisions")),
            linear("decisions"),
            number(figure("client")),
            format!("{}–{}", cap(figure("least used")), cap(figure("most used"))),
            number(figure("idle")),
            count(figure("not allowed")),
        ]);
    }
    table
}

/// Whether less than a tenth of a core was idle in the median round of some row.
fn was_busy(results: &Results) -> bool {
    results.names().any(|name| results.spread(name, "idle").is_none_or(|idle| idle.median < 0.1))
}

/// A figure against that of one master times the number of masters.
fn linear(results: &Results, masters: usize, spreading: Spreading, figure: &str) -> Option<Spread> {
    let ratio = results.ratio(&name(masters, spreading), &name(1, spreading), figure)?;
    let of = |ratio: f64| ratio / masters as f64;
    Some(Spread { median: of(ratio.median), min: of(ratio.min), max: of(ratio.max) })
}

/// Everything in multiples of one master, so that runs and decisions share an axis.
fn chart(results: &Results, capped: bool) -> Lines {
    let figure = |masters, figure| {
        results.spread(&name(masters, Spreading::Kept), figure).map_or(f64::NAN, |spread| spread.median)
    };
    let line = |title: String, value: &dyn Fn(usize) -> f64| Series {
        name: title,
        values: MASTERS.iter().map(|masters| (*masters as f64, value(*masters))).collect(),
    };
    let of_one = |name: &str, key: &'static str| {
        let one = figure(1, key);
        line(format!("{name} (one master: {})", count(one)), &|masters| figure(masters, key) / one)
    };
    let cap = if capped { format!("{:.0} % of a core each", share() * 100.0) } else { "not capped".into() };
    let mut series = vec![of_one("script runs/s", "runs"), of_one("decisions/s", "decisions")];
    if capped {
        series.push(line("linear".into(), &|masters| masters as f64));
    }
    Lines {
        title: format!("One hot key over 1 to 8 masters ({cap})"),
        x: ("masters", Scale::Linear),
        y: ("times one master", Scale::Linear),
        series,
    }
}
