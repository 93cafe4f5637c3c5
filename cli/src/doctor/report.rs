//! The answer of an examination.

use std::fmt::Write;

use serde::Serialize;
use shardlimit::Slot;

use super::diagnosis::{Diagnosis, range_texts};
use super::finding::{Finding, Level, findings, missing};
use super::probe::Facts;
use crate::output::{Align, Exit, Report, Style, count, decimals, escape, grid, human_time};

/// The servers and what is wrong with them.
#[derive(Debug, Serialize)]
pub(crate) struct DoctorReport {
    /// Nothing is wrong. There may be advice.
    ok: bool,
    cluster: bool,
    masters: Vec<MasterLine>,
    replicas: Vec<ReplicaLine>,
    /// Of a cluster's 16,384 slots, those whose master answers; unknown if the user may not ask.
    covered: Option<u64>,
    uncovered: Vec<String>,
    clock_spread_ms: f64,
    permissions_missing: Vec<String>,
    findings: Vec<Finding>,
}

/// `None`: unknown, because the server does not answer or the user may not ask.
#[derive(Debug, Serialize)]
struct MasterLine {
    id: Option<String>,
    address: String,
    reachable: bool,
    slots: u64,
    replicas: u64,
    version: Option<String>,
    round_trip_us: Option<f64>,
    /// How far its clock is ahead of the first master's.
    clock_ms: Option<f64>,
    maxmemory_policy: Option<String>,
    full_coverage: Option<bool>,
}

#[derive(Debug, Serialize)]
struct ReplicaLine {
    id: String,
    address: String,
    master: String,
    reachable: bool,
    in_step: bool,
}

impl DoctorReport {
    pub(super) fn new(diagnosis: &Diagnosis) -> Self {
        let findings = findings(diagnosis);
        let uncovered = diagnosis.uncovered();
        let open: u64 = uncovered.iter().map(|range| range.len() as u64).sum();
        let first_clock = diagnosis.answering().find_map(|(_, facts)| facts.clock_us);
        let master = |master: &super::diagnosis::Master| {
            let nothing = Facts::default();
            let facts = master.facts.as_ref().unwrap_or(&nothing);
            MasterLine {
                id: master.id.as_deref().map(clean),
                address: clean(&master.address),
                reachable: master.facts.is_ok(),
                slots: master.slot_count() as u64,
                replicas: diagnosis.replicas_of(master),
                version: facts.version.as_ref().map(|version| clean(&version.text)),
                round_trip_us: facts.round_trip_us.map(|time| decimals(time, 1)),
                clock_ms: facts.clock_us.zip(first_clock).map(|(own, first)| decimals((own - first) / 1_000.0, 3)),
                maxmemory_policy: facts.maxmemory_policy.as_deref().map(clean),
                full_coverage: facts.full_coverage.filter(|_| diagnosis.cluster),
            }
        };
        let replica = |replica: &super::diagnosis::Replica| ReplicaLine {
            id: clean(&replica.id),
            address: clean(&replica.address),
            master: clean(&replica.master),
            reachable: replica.facts.is_ok(),
            in_step: replica.is_in_step(),
        };
        let known = diagnosis.cluster && !diagnosis.blind;
        Self {
            ok: findings.iter().all(|finding| finding.level != Level::Wrong),
            cluster: diagnosis.cluster,
            masters: diagnosis.masters.iter().map(master).collect(),
            replicas: diagnosis.replicas.iter().map(replica).collect(),
            covered: known.then(|| u64::from(Slot::COUNT) - open),
            uncovered: range_texts(&uncovered),
            clock_spread_ms: decimals(diagnosis.clock_spread_us() / 1_000.0, 3),
            permissions_missing: missing(diagnosis, false).0,
            findings,
        }
    }

    fn summary(&self) -> String {
        let masters = match self.masters.len() {
            1 => "one master".to_owned(),
            several => format!("{several} masters"),
        };
        if !self.cluster {
            return format!("{masters}, not a cluster");
        }
        let replicas = self.replicas.len();
        let covered = self.covered.map_or_else(
            || "slots unknown, no permission".to_owned(),
            |covered| format!("{} of {} slots covered", count(covered), count(Slot::COUNT.into())),
        );
        format!("A cluster: {masters}, {replicas} replicas, {covered}")
    }

    fn table(&self, style: Style) -> String {
        let columns = [
            ("master", Align::Left),
            ("slots", Align::Right),
            ("replicas", Align::Right),
            ("version", Align::Left),
            ("round trip", Align::Right),
            ("clock", Align::Right),
            ("eviction", Align::Left),
            ("full coverage", Align::Left),
        ];
        let row = |master: &MasterLine| {
            let text = |known: Option<String>| match known {
                Some(known) => known,
                None if master.reachable => "unknown".into(),
                None => "-".into(),
            };
            let full = master.full_coverage.map(|full| if full { "required" } else { "not required" }.to_owned());
            [
                clean(&if master.reachable { master.address.clone() } else { format!("{} (silent)", master.address) }),
                if self.cluster { count(master.slots) } else { "-".into() },
                count(master.replicas),
                text(master.version.as_deref().map(clean)),
                text(master.round_trip_us.map(|time| human_time((time * 1e3) as u64))),
                text(master.clock_ms.map(|ahead| format!("{ahead:+.1} ms"))),
                text(master.maxmemory_policy.as_deref().map(clean)),
                if self.cluster || !master.reachable { text(full) } else { "-".into() },
            ]
        };
        let rows: Vec<[String; 8]> = self.masters.iter().map(row).collect();
        grid(style, columns, &rows)
    }
}

/// Text of a server, which may hold anything.
fn clean(text: &str) -> String {
    escape(text.as_bytes())
}

impl Report for DoctorReport {
    const COMMAND: &'static str = "doctor";

    fn text(&self, style: Style) -> String {
        let mut text = format!("{}\n\n{}\n", self.summary(), self.table(style));
        for Finding { level, what, remedy, .. } in &self.findings {
            let level = match level {
                Level::Wrong => style.red("wrong:"),
                Level::Advice => "advice:".into(),
            };
            let _ = writeln!(text, "{level} {}\n  {} {}", clean(what), style.dim("do:"), clean(remedy));
        }
        text += &if self.ok { style.green("Fit for limits.") } else { style.red("Not fit for limits as it is.") };
        text.push('\n');
        text
    }

    fn exit(&self) -> Exit {
        if self.ok { Exit::Success } else { Exit::Denied }
    }
}
