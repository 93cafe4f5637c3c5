//! From the files of several runs to one judgement.

use serde::Serialize;
use shardlimit_check::{History, reached, worst};

use super::record;
use crate::error::Failure;
use crate::options::CheckOptions;
use crate::output::{Exit, Report, Style, count, facts};

/// What the runs came to, all of them together.
#[derive(Debug, Serialize)]
pub(crate) struct CheckReport {
    limit: String,
    files: usize,
    admitted: u64,
    /// Permits above what the limit's formula allows in the worst interval; negative: so many below.
    overshoot: Option<f64>,
    /// Length of that interval.
    overshoot_s: Option<f64>,
    /// How long after it began each change's new rate was reached, in milliseconds; null if it was not.
    reached_ms: Vec<Option<f64>>,
}

pub(crate) fn run(options: &CheckOptions) -> Result<CheckReport, Failure> {
    let mut admissions = Vec::new();
    for path in &options.files {
        admissions.extend(record::read(path)?);
    }
    admissions.sort_unstable();
    let admitted = admissions.iter().map(|admission| admission.permits).sum();
    let end = admissions.last().map_or(0, |admission| admission.at);
    let ends = options.changes.iter().skip(1).map(|change| change.begin).chain([end]);
    let reached_ms: Vec<Option<f64>> = options
        .changes
        .iter()
        .zip(ends)
        .map(|(change, until)| Some(reached(&admissions, change, until)? as f64 / 1_000.0))
        .collect();
    let worst = if options.changes.is_empty() {
        worst(&options.limit, admissions)
    } else {
        let history = History::new(&options.limit, &options.changes);
        history.map_err(|wrong| Failure::usage("change", wrong))?.worst(&admissions)
    };
    Ok(CheckReport {
        limit: options.limit.to_string(),
        files: options.files.len(),
        admitted,
        overshoot: worst.map(|worst| (worst.permits * 100.0).round() / 100.0),
        overshoot_s: worst.map(|worst| worst.micros as f64 / 1e6),
        reached_ms,
    })
}

impl Report for CheckReport {
    const COMMAND: &'static str = "check";

    fn text(&self, style: Style) -> String {
        let worst = match (self.overshoot, self.overshoot_s) {
            (Some(permits), Some(seconds)) if permits > 0.0 => format!("{permits} above the limit, in {seconds} s"),
            (Some(permits), Some(seconds)) => format!("{} below or at the limit, in {seconds} s", permits.abs()),
            _ => "nobody was admitted".into(),
        };
        let mut rows =
            vec![("limit", self.limit.clone()), ("admitted", count(self.admitted)), ("worst interval", worst)];
        rows.extend(self.reached_ms.iter().map(|reached| {
            let reached = reached.map_or_else(|| "never".into(), |reached| format!("after {reached} ms"));
            ("new rate reached", reached)
        }));
        facts(style, &rows)
    }

    fn exit(&self) -> Exit {
        if self.overshoot.is_some_and(|permits| permits > 0.0) { Exit::Denied } else { Exit::Success }
    }
}
