//! A closed loop: so many callers, each of whom calls again as soon as it is answered.

use shardlimit_peers::chart::{Lines, Scale, Series};
use shardlimit_peers::cluster::cluster_runs;
use shardlimit_peers::load::{Load, closed_loop};
use shardlimit_peers::{Figures, Options, Results, Rounds, Spread, Table, count, micros, number};

use crate::contestants::{Contestants, MASTERS};

const CALLERS: [usize; 4] = [1, 64, 1_000, 10_000];
const BASELINE: &str = "one key";

pub(crate) fn run(options: &Options, contestants: &Contestants<'_>) {
    println!("## callers: closed loop\n");
    let head = ["callers", "", "decisions/s", "p50", "p99", "script runs a decision", "CPU a decision", "× one key"];
    let mut table = Table::new(head);
    let mut lines: Vec<Series<(f64, f64)>> = Vec::new();
    for callers in CALLERS {
        let results = measure(options, contestants, callers);
        for name in results.names() {
            let median = |figure, form: fn(f64) -> String| {
                results.spread(name, figure).map_or_else(|| "–".into(), |spread| form(spread.median))
            };
            let rate = results.spread(name, "rate").map_or_else(|| "–".into(), |rate| rate.show(count));
            let ratio = results.ratio(name, BASELINE, "rate").map_or_else(|| "–".into(), |ratio| ratio.to_string());
            table.row([
                count(callers as f64),
                name.to_owned(),
                rate,
                median("p50", micros),
                median("p99", micros),
                median("runs", number),
                median("cpu", micros),
                ratio,
            ]);
            warn(&results, name, callers);
            let point = (callers as f64, results.spread(name, "rate").map_or(f64::NAN, |rate: Spread| rate.median));
            match lines.iter_mut().find(|line| line.name == name) {
                Some(line) => line.values.push(point),
                None => lines.push(Series { name: name.to_owned(), values: vec![point] }),
            }
        }
    }
    println!("{table}");
    if let Some(path) = options.chart("hot_key") {
        let title = format!("One hot key, {MASTERS} masters: decisions a second");
        let lines = Lines { title, x: ("callers", Scale::Log), y: ("decisions/s", Scale::Log), series: lines };
        lines.draw(&path).expect("a chart");
    }
}

fn measure(options: &Options, contestants: &Contestants<'_>, callers: usize) -> Results {
    let (runtime, turn) = (contestants.runtime, options.turn);
    let mut rounds = Rounds::new(options.rounds);
    for (name, handle) in contestants.handles() {
        rounds.contestant(name, move || {
            counting_runs(contestants, || closed_loop(runtime, callers, turn, |_| handle.clone()))
        });
    }
    for (name, script) in [(BASELINE, &contestants.one_key), ("naive split", &contestants.naive_split)] {
        rounds.contestant(name, move || {
            counting_runs(contestants, || closed_loop(runtime, callers, turn, |caller| script.starting_at(caller)))
        });
    }
    rounds.run()
}

fn counting_runs(contestants: &Contestants<'_>, load: impl FnOnce() -> Load) -> Figures {
    let before = cluster_runs(contestants.cluster);
    let load = load();
    let runs = cluster_runs(contestants.cluster) - before;
    load.figures().with("runs", runs as f64 / load.calls as f64)
}

/// A row in which not every call was allowed is not what it seems to be.
fn warn(results: &Results, name: &str, callers: usize) {
    for figure in ["failed", "denied"] {
        if let Some(calls) = results.spread(name, figure).filter(|calls| calls.max > 0.0) {
            println!("{name}, {callers} callers: {} calls a turn {figure}", calls.show(count));
        }
    }
}
