//! A closed loop: so many callers, each of whom calls again as soon as it is answered.

use std::time::Duration;

use shardlimit_peers::chart::{Lines, Scale, Series};
use shardlimit_peers::cluster::{Cluster, cluster_processor_time, cluster_runs, script_runs};
use shardlimit_peers::load::{Caller, Load, closed_loop};
use shardlimit_peers::{Figures, Options, Results, Rounds, Spread, Table, count, micros, number};
use tokio::runtime::Runtime;

use crate::contestants::{Contestants, MASTERS};
use crate::peers::{Peers, Served};

const CALLERS: [usize; 4] = [1, 64, 1_000, 10_000];
const BASELINE: &str = "one key";
/// Who is in the chart: those who share a cluster. More lines could not be told apart.
const DRAWN: [&str; 4] = ["exact", "leased", BASELINE, "naive split"];

pub(crate) fn run(options: &Options, contestants: &Contestants<'_>, peers: Option<&Peers>) {
    println!("## callers: closed loop\n");
    let head = ["callers", "", "decisions/s", "p50", "p99", "script runs a decision", "CPU a decision"];
    let mut table = Table::new(head.into_iter().chain(["server CPU a run", "× one key"]));
    let mut lines: Vec<Series<(f64, f64)>> = Vec::new();
    for callers in CALLERS {
        let results = measure(options, contestants, peers, callers);
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
                median("server cpu", micros),
                ratio,
            ]);
            warn(&results, name, callers);
            if !DRAWN.contains(&name) {
                continue;
            }
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

fn measure(options: &Options, contestants: &Contestants<'_>, peers: Option<&Peers>, callers: usize) -> Results {
    let crowd = Crowd { runtime: contestants.runtime, callers, turn: options.turn };
    let cluster = contestants.cluster;
    let mut rounds = Rounds::new(options.rounds);
    for (name, handle) in contestants.handles() {
        rounds.contestant(name, move || counting_on(cluster, || crowd.call(|_| handle.clone())));
    }
    for (name, script) in [(BASELINE, &contestants.one_key), ("naive split", &contestants.naive_split)] {
        rounds.contestant(name, move || counting_on(cluster, || crowd.call(|caller| script.starting_at(caller))));
    }
    if let Some(peers) = peers {
        // It has no server that could run anything.
        rounds.contestant("governor", move || crowd.call(|_| peers.governor.clone()).figures());
        rounds.contestant("trypema, redis", crowd.turn_of(&peers.trypema));
        rounds.contestant("trypema, hybrid", crowd.turn_of(&peers.trypema_hybrid));
        rounds.contestant("limitador, redis", crowd.turn_of(&peers.limitador));
        rounds.contestant("limitador, cached", crowd.turn_of(&peers.limitador_cached));
    }
    rounds.run()
}

/// So many callers, for one turn.
#[derive(Clone, Copy)]
struct Crowd<'a> {
    runtime: &'a Runtime,
    callers: usize,
    turn: Duration,
}

impl<'a> Crowd<'a> {
    fn call<C: Caller>(self, make: impl FnMut(usize) -> C) -> Load {
        closed_loop(self.runtime, self.callers, self.turn, make)
    }

    fn turn_of<C: Caller + Clone>(self, peer: &'a Served<C>) -> impl FnMut() -> Figures + 'a {
        move || {
            let before = script_runs(&peer.server);
            let load = self.call(|_| peer.caller.clone());
            let runs = script_runs(&peer.server) - before;
            load.figures().with("runs", runs as f64 / load.calls as f64)
        }
    }
}

/// What a turn came to, with the scripts that the masters ran meanwhile, and what they used of the processors for each.
pub(crate) fn counting_on(cluster: &Cluster, load: impl FnOnce() -> Load) -> Figures {
    let (runs_before, used_before) = (cluster_runs(cluster), cluster_processor_time(cluster));
    let load = load();
    let used = cluster_processor_time(cluster).saturating_sub(used_before);
    let runs = (cluster_runs(cluster) - runs_before) as f64;
    let figures = load.figures().with("runs", runs / load.calls as f64);
    figures.with("server cpu", used.as_secs_f64() * 1e6 / runs)
}

/// A row in which not every call was allowed is not what it seems to be.
fn warn(results: &Results, name: &str, callers: usize) {
    for figure in ["failed", "denied"] {
        if let Some(calls) = results.spread(name, figure).filter(|calls| calls.max > 0.0) {
            println!("{name}, {callers} callers: {} calls a turn {figure}", calls.show(count));
        }
    }
}
