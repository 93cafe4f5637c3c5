//! What the demo shows at its end.

use std::fmt::Write;

use serde::Serialize;
use shardlimit::Limit;

use super::bound::{broken, most_allowed};
use super::chart::chart;
use super::command::SAMPLE;
use crate::bench::{Demand, Job, Sample, Tally};
use crate::clock::Nanos;
use crate::output::{Align, Exit, Report, Style, count, decimals, escape, grid, seconds};

/// What to type next.
const NEXT: [(&str, &str); 4] = [
    ("the same load, measured", "PROGRAM bench --key item:42 --limit \"LIMIT\" --demand 60000/s"),
    ("a throw-away cluster of three masters (it needs redis-server)", "PROGRAM cluster up"),
    (
        "the same load on it, in four processes that share one limit",
        "PROGRAM bench --key item:42 --limit \"LIMIT\" --demand 60000/s --processes 4 --check --redis URLS (as printed)",
    ),
    ("one question, for a script", "PROGRAM acquire item:42 --limit \"LIMIT\" --json"),
];

/// The totals, the promise and the series.
#[derive(Debug, Serialize)]
pub(crate) struct DemoReport {
    store: &'static str,
    mode: &'static str,
    key: String,
    name: String,
    limit: String,
    demand: f64,
    elapsed_s: f64,
    offered: u64,
    late: u64,
    valid: bool,
    interrupted: bool,
    decisions: u64,
    allowed: u64,
    denied: u64,
    errors: u64,
    /// burst + rate · elapsed.
    most_allowed: u64,
    /// The promise was kept at the end of every sample.
    within_limit: bool,
    series: Vec<Point>,
    #[serde(skip)]
    samples: Vec<Sample>,
    #[serde(skip)]
    definition: Limit,
    #[serde(skip)]
    elapsed: Nanos,
    #[serde(skip)]
    broken: usize,
}

/// A sample and when it ended.
#[derive(Debug, Serialize)]
struct Point {
    at_s: f64,
    offered: u64,
    allowed: u64,
    denied: u64,
}

impl DemoReport {
    pub(super) fn new(job: &Job, demand: Demand, tally: &Tally) -> Self {
        let broken = broken(job.limit, &tally.samples, SAMPLE, tally.elapsed);
        let point = |(index, sample): (u64, &Sample)| Point {
            at_s: seconds((index + 1) * SAMPLE),
            offered: sample.offered,
            allowed: sample.allowed,
            denied: sample.denied,
        };
        Self {
            store: job.store.name(),
            mode: job.store.mode().name(),
            key: escape(&job.key),
            name: job.name.clone(),
            limit: job.limit.to_string(),
            demand: decimals(demand.per_second(), 6),
            elapsed_s: seconds(tally.elapsed),
            offered: tally.offered,
            late: tally.late,
            valid: tally.is_valid(),
            interrupted: tally.interrupted,
            decisions: tally.decisions(),
            allowed: tally.allowed,
            denied: tally.denied,
            errors: tally.errors,
            most_allowed: most_allowed(job.limit, tally.elapsed),
            within_limit: broken == 0,
            series: (0..).zip(&tally.samples).map(point).collect(),
            samples: tally.samples.clone(),
            definition: job.limit,
            elapsed: tally.elapsed,
            broken,
        }
    }

    fn totals(&self, style: Style) -> String {
        let rate = |calls: u64| {
            if self.elapsed_s > 0.0 { count((calls as f64 / self.elapsed_s).round() as u64) } else { "-".into() }
        };
        let row = |name: &str, calls: u64| {
            let share = calls as f64 * 100.0 / self.offered.max(1) as f64;
            [name.to_owned(), count(calls), rate(calls), format!("{share:.1} %")]
        };
        let columns =
            [("", Align::Left), ("calls", Align::Right), ("a second", Align::Right), ("of offered", Align::Right)];
        let rows = [row("offered", self.offered), row("allowed", self.allowed), row("denied", self.denied)];
        grid(style, columns, &rows)
    }

    fn promise(&self, style: Style) -> String {
        let rate = self.definition.permits();
        let verdict = if self.within_limit {
            style.green(&format!("Kept at the end of each of the {} samples.", self.samples.len()))
        } else {
            style.red(&format!("BROKEN at the end of {} of the {} samples.", self.broken, self.samples.len()))
        };
        format!(
            "The promise: allowed <= burst + rate * time. After {:.6} s: {} <= {} + {} * {:.6} = {}. {verdict}\n",
            self.elapsed_s,
            count(self.allowed),
            count(self.definition.burst()),
            count(rate),
            self.elapsed_s,
            count(most_allowed(self.definition, self.elapsed)),
        )
    }
}

impl Report for DemoReport {
    const COMMAND: &'static str = "demo";

    fn text(&self, style: Style) -> String {
        let mut text = format!(
            "One hot key, {}, under \"{}\": {} calls a second, three times its limit.\n\n",
            self.key,
            self.limit,
            count(self.demand as u64)
        );
        text += &chart(style, &self.samples, SAMPLE, 80_000);
        let _ = write!(text, "\n{}, {}\n\n", style.red("upper line: offered"), style.green("lower line: allowed"));
        text += &self.totals(style);
        text.push('\n');
        text += &self.promise(style);
        if self.interrupted {
            text += "Interrupted: these are the numbers so far.\n";
        }
        if !self.valid {
            text += "This machine was too busy to offer all calls on time; what it did offer is counted above.\n";
        }
        text += "\nWhat to type next:\n";
        // As it was called: who came by `cargo run` has no `shardlimit` on the path.
        let program = std::env::args().next().unwrap_or_else(|| "shardlimit".into());
        for (purpose, command) in NEXT {
            let command = command.replace("PROGRAM", &program).replace("LIMIT", &self.limit);
            let _ = write!(text, "  {}\n    {command}\n", style.dim(purpose));
        }
        text
    }

    fn exit(&self) -> Exit {
        if self.interrupted { Exit::Interrupted } else { Exit::Success }
    }
}
