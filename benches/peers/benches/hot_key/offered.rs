//! An open loop: calls come at a fixed rate, whatever became of those before.

use shardlimit_peers::load::{Caller, Outcome, open_loop};
use shardlimit_peers::{Figures, Options, Rounds, Table, count, micros, number};

use crate::callers::counting_on;
use crate::contestants::Contestants;

/// What one key takes on a small machine with room to spare.
const SLOW: u64 = 20_000;
const FAST: u64 = 50_000;
const BASELINE: &str = "one key, 20,000/s";

/// Answers at once: what is left is the generator's own lateness and its own price.
#[derive(Clone)]
struct Nobody;

impl Caller for Nobody {
    async fn call(&mut self) -> Outcome {
        Outcome::Allowed
    }
}

pub(crate) fn run(options: &Options, contestants: &Contestants<'_>) {
    println!("## offered: open loop, latency from the moment that a call was due\n");
    let mut rounds = Rounds::new(options.rounds);
    for rate in [SLOW, FAST] {
        for (name, handle) in contestants.handles() {
            let figures = move || offer(options, contestants, handle, rate);
            rounds.contestant(format!("{name}, {}/s", count(rate as f64)), figures);
        }
    }
    rounds.contestant(BASELINE, move || offer(options, contestants, &contestants.one_key, SLOW));
    rounds.contestant("nobody, 50,000/s", move || offer(options, contestants, &Nobody, FAST));
    let results = rounds.run();

    let head = [
        "offered",
        "decided/s",
        "p50",
        "p99",
        "began late",
        "failed",
        "script runs a decision",
        "CPU a decision",
        "p99, × one key at 20,000/s",
    ];
    let mut table = Table::new(head);
    for name in results.names() {
        let show = |figure, form: fn(f64) -> String| {
            results.spread(name, figure).map_or_else(|| "–".into(), |spread| form(spread.median))
        };
        let ratio = results.ratio(name, BASELINE, "p99").map_or_else(|| "late".into(), |ratio| ratio.to_string());
        let p99 = results.sound(name, "p99").map_or_else(|| "late".into(), |p99| p99.show(micros));
        let late = |part: f64| format!("{:.2} %", part * 100.0);
        let late = results.spread(name, "late").map_or_else(|| "–".into(), |part| part.show(late));
        let (decided, p50, failed) = (show("rate", count), show("p50", micros), show("failed", count));
        let (runs, cpu) = (show("runs", number), show("cpu", micros));
        table.row([name.to_owned(), decided, p50, p99, late, failed, runs, cpu, ratio]);
    }
    print!("{table}\n{}", results.left_out());
}

/// One turn of calls that come whatever became of those before.
fn offer<C: Caller + Clone + Sync>(options: &Options, contestants: &Contestants<'_>, caller: &C, rate: u64) -> Figures {
    counting_on(contestants.cluster, || open_loop(contestants.runtime, caller, rate, options.turn))
}
