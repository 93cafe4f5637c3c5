//! The numbers of a run.

use std::fmt::Write;

use serde::Serialize;
use shardlimit_check::{Worst, allowance, worst};

use super::job::Job;
use super::tally::{Deciders, Tally};
use crate::clock::Nanos;
use crate::output::{Align, Exit, Report, Style, count, decimals, escape, facts, grid, human_time, micros, seconds};

/// What was offered, what was decided, and what it cost.
#[derive(Debug, Serialize)]
pub(crate) struct BenchReport {
    store: &'static str,
    mode: &'static str,
    key: String,
    name: String,
    limit: String,
    permits: u64,
    callers: u64,
    processes: u64,
    /// Calls a second.
    demand: Option<f64>,
    elapsed_s: f64,
    offered: u64,
    late: u64,
    valid: bool,
    interrupted: bool,
    decisions: u64,
    allowed: u64,
    denied: u64,
    errors: u64,
    decided_by: Deciders,
    decisions_per_s: f64,
    store_calls: u64,
    client_cpu_s: f64,
    latency_us: Latency,
    shards: Vec<Shard>,
    /// How often the key was found under another, later definition: in all, and by each process.
    mismatches: u64,
    mismatches_by_process: Vec<u64>,
    /// Permits above the limit's formula in the worst interval, if that was asked for; negative: so many below it.
    overshoot: Option<f64>,
    /// How long that interval was.
    overshoot_s: Option<f64>,
    /// How many permits leases may lead above the formula.
    allowance: f64,
    #[serde(skip)]
    times: [Nanos; 5],
    #[serde(skip)]
    missed: u64,
}

#[derive(Debug, Serialize)]
struct Latency {
    p50: f64,
    p90: f64,
    p99: f64,
    p999: f64,
    max: f64,
}

/// One shard's part. The embedded store does not split a limit: it has one, on no master.
#[derive(Debug, Serialize)]
#[allow(clippy::struct_field_names, reason = "the fields are the names in the JSON")]
struct Shard {
    shard: u32,
    slot: Option<u16>,
    master: Option<String>,
    calls: u64,
    allowed: u64,
    denied: u64,
}

impl BenchReport {
    pub(super) fn new(job: &Job, tally: &Tally) -> Self {
        let decisions = tally.decisions();
        let elapsed_s = seconds(tally.elapsed);
        let at = |quantile| tally.latency.value_at_quantile(quantile);
        let times = [at(0.5), at(0.9), at(0.99), at(0.999), tally.latency.max()];
        let [p50, p90, p99, p999, max] = times.map(micros);
        let overshoot: Option<Worst> = if job.check { worst(&job.limit, tally.admissions.clone()) } else { None };
        Self {
            store: job.store.name(),
            mode: job.store.mode().name(),
            key: escape(&job.key),
            name: job.name.clone(),
            limit: job.limit.to_string(),
            permits: job.permits,
            callers: job.callers,
            processes: job.parts,
            demand: job.demand.map(|demand| decimals(demand.per_second(), 6)),
            elapsed_s,
            offered: tally.offered,
            late: tally.late,
            valid: tally.is_valid(),
            interrupted: tally.interrupted,
            decisions,
            allowed: tally.allowed,
            denied: tally.denied,
            errors: tally.errors,
            decided_by: tally.decided_by,
            decisions_per_s: if elapsed_s > 0.0 { decimals(decisions as f64 / elapsed_s, 1) } else { 0.0 },
            store_calls: store_calls(tally),
            client_cpu_s: seconds(tally.processor_time),
            latency_us: Latency { p50, p90, p99, p999, max },
            shards: shards(tally),
            mismatches: tally.mismatches.values().sum(),
            mismatches_by_process: mismatches(job, tally),
            overshoot: overshoot.map(|worst| decimals(worst.permits, 3)),
            overshoot_s: overshoot.map(|worst| decimals(worst.micros as f64 / 1e6, 6)),
            allowance: if job.store.leases() { decimals(allowance(&job.limit, job.store.held()), 3) } else { 0.0 },
            times,
            missed: tally.missed,
        }
    }
}

/// The embedded store's kernel runs once for each decision that it makes.
fn store_calls(tally: &Tally) -> u64 {
    tally.decided_by.local + tally.shards.values().map(|shard| shard.runs).sum::<u64>()
}

/// A process that was stopped before it had anything to tell has seen none.
fn mismatches(job: &Job, tally: &Tally) -> Vec<u64> {
    (0..job.parts).map(|part| tally.mismatches.get(&part).copied().unwrap_or(0)).collect()
}

fn shards(tally: &Tally) -> Vec<Shard> {
    if tally.shards.is_empty() {
        let (slot, master, calls) = (None, None, tally.decided_by.local);
        return vec![Shard { shard: 0, slot, master, calls, allowed: tally.allowed, denied: tally.denied }];
    }
    let shard = |(index, (slot, shard)): (usize, (&u16, &super::tally::Shard))| Shard {
        shard: index as u32,
        slot: Some(*slot),
        master: shard.master.clone(),
        calls: shard.runs,
        allowed: shard.allowed,
        denied: shard.denied,
    };
    tally.shards.iter().enumerate().map(shard).collect()
}

impl Report for BenchReport {
    const COMMAND: &'static str = "bench";

    fn text(&self, style: Style) -> String {
        let plural = |number: u64, word: &str, plural: &str| {
            format!("{} {}", count(number), if number == 1 { word } else { plural })
        };
        let share = |part: u64| {
            let percent = part as f64 * 100.0 / self.decisions.max(1) as f64;
            format!("{} ({percent:.1} %)", count(part))
        };
        let demand = self.demand.map_or_else(
            || "as fast as they can".to_owned(),
            |demand| format!("{} calls a second on schedule", count(demand.round() as u64)),
        );
        let [p50, p90, p99, p999, max] = self.times.map(human_time);
        let counted_from = if self.demand.is_some() { "since each call was due" } else { "since each call began" };
        let mut text = facts(
            style,
            &[
                ("store", format!("{}, {}", self.store, self.mode)),
                ("limit", format!("{} as \"{}\"", self.limit, self.name)),
                ("key", format!("{}, {} a call", self.key, plural(self.permits, "permit", "permits"))),
                (
                    "callers",
                    format!("{} in {}, {demand}", count(self.callers), plural(self.processes, "process", "processes")),
                ),
                ("elapsed", format!("{:.3} s{}", self.elapsed_s, if self.interrupted { ", interrupted" } else { "" })),
                ("offered", format!("{}, {} late", count(self.offered), count(self.late))),
                ("decisions", format!("{}, {}/s", count(self.decisions), count(self.decisions_per_s as u64))),
                ("  allowed", style.green(&share(self.allowed))),
                ("  denied", share(self.denied)),
                ("  errors", if self.errors > 0 { style.red(&share(self.errors)) } else { "0".into() }),
                ("decided by", self.deciders()),
                ("store calls", count(self.store_calls)),
                ("client CPU", format!("{:.2} s", self.client_cpu_s)),
                ("latency", format!("p50 {p50}, p90 {p90}, p99 {p99}, p99.9 {p999}, max {max}, {counted_from}")),
            ],
        );
        if let (Some(overshoot), Some(length)) = (self.overshoot, self.overshoot_s) {
            let word = if overshoot > 0.0 { "above" } else { "below or at" };
            let word = if overshoot > self.allowance { style.red(word) } else { style.green(word) };
            let mut worst = format!("{:.3} permits {word} the formula, over {length:.6} s", overshoot.abs());
            if self.allowance > 0.0 {
                let _ = write!(worst, "; leases may lead {:.3} above it", self.allowance);
            }
            text += &facts(style, &[("worst interval", worst)]);
        }
        if self.mismatches > 0 {
            let by: Vec<String> = self.mismatches_by_process.iter().map(|mismatches| count(*mismatches)).collect();
            let said = "the key is defined otherwise, and that counts; by process";
            let line = format!("{}: {said} {}", count(self.mismatches), by.join(", "));
            text += &facts(style, &[("mismatches", style.red(&line))]);
        }
        text.push('\n');
        text += &self.shard_table(style);
        if !self.valid {
            text += &style.red(&format!(
                "\nNot valid: the generator was late for {} calls and did not get to {} more. Offer less, or use \
                 a machine with more cores.\n",
                count(self.late),
                count(self.missed)
            ));
        }
        text
    }

    fn exit(&self) -> Exit {
        if self.interrupted { Exit::Interrupted } else { Exit::Success }
    }
}

impl BenchReport {
    fn deciders(&self) -> String {
        let Deciders { store, local, lease, ceiling, fallback } = self.decided_by;
        let all = [("store", store), ("local", local), ("lease", lease), ("ceiling", ceiling), ("fallback", fallback)];
        let some: Vec<String> = all
            .iter()
            .filter(|(_, calls)| *calls > 0)
            .map(|(name, calls)| format!("{name} {}", count(*calls)))
            .collect();
        if some.is_empty() { "nobody".into() } else { some.join(", ") }
    }

    fn shard_table(&self, style: Style) -> String {
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".into());
        let rows: Vec<[String; 6]> = self
            .shards
            .iter()
            .map(|shard| {
                [
                    shard.shard.to_string(),
                    or_none(shard.slot.map(|slot| slot.to_string())),
                    or_none(shard.master.clone()),
                    count(shard.calls),
                    count(shard.allowed),
                    count(shard.denied),
                ]
            })
            .collect();
        let columns = [
            ("shard", Align::Right),
            ("slot", Align::Right),
            ("master", Align::Left),
            ("calls", Align::Right),
            ("allowed", Align::Right),
            ("denied", Align::Right),
        ];
        grid(style, columns, &rows)
    }
}

#[cfg(test)]
mod tests {
    use super::super::job::example;
    use super::*;

    #[test]
    fn errors_are_decisions_that_no_store_made() {
        let decided_by = Deciders { local: 5, ..Deciders::default() };
        let tally = Tally { allowed: 2, denied: 3, errors: 4, decided_by, ..Tally::default() };
        let report = BenchReport::new(&example(), &tally);
        assert_eq!((report.decisions, report.store_calls, report.shards[0].calls), (9, 5, 5));
    }

    #[test]
    fn mismatches_are_told_by_process_and_in_all() {
        let job = Job { parts: 3, ..example() };
        let tally = Tally { mismatches: [(0, 2), (2, 5)].into(), ..Tally::default() };
        let report = BenchReport::new(&job, &tally);
        assert_eq!((report.mismatches, &report.mismatches_by_process[..]), (7, &[2, 0, 5][..]));
        assert!(report.text(Style::plain()).contains("by process 2, 0, 5"), "{}", report.text(Style::plain()));
        let none = BenchReport::new(&job, &Tally::default());
        assert!(!none.text(Style::plain()).contains("mismatches"));
    }

    #[test]
    fn a_run_without_calls_has_numbers_too() {
        let report = BenchReport::new(&example(), &Tally { interrupted: true, ..Tally::default() });
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!((&json["decisions_per_s"], &json["latency_us"]["p99"]), (&0.0.into(), &0.0.into()));
        assert_eq!(report.exit(), Exit::Interrupted);
        assert!(report.text(Style::plain()).contains("interrupted"));
    }
}
