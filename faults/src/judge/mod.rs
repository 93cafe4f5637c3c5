//! From the records of all processes to the figures of a fault.
//!
//! * `lateness`: calls against their deadline, and against bare timers. `flow`: what was allowed when, and how fast.

mod flow;
mod lateness;

use std::collections::BTreeMap;
use std::time::Duration;

use shardlimit::Limit;
use shardlimit_check::{Admission, worst};

use crate::clock::{Nanos, SECOND, nanos};
use crate::record::{Call, Outcome, Record};
use crate::stage::Marks;

/// What is known of a run beside its records.
pub(crate) struct Case<'a> {
    pub limit: &'a Limit,
    pub deadline: Duration,
    pub marks: &'a Marks,
    /// Slots of shards that the fault was not done to.
    pub healthy: &'a [u16],
    /// Permits above the formula that the documentation states.
    pub extra: f64,
    /// Servers' clocks can't be trusted: admissions count when their calls end, by the clock of this machine.
    pub by_own_clock: bool,
    /// Calls come all the time.
    pub steady: bool,
}

/// What a fault did to the calls.
#[derive(Debug)]
pub(crate) struct Figures {
    pub calls: usize,
    pub skipped: u64,
    /// Calls without an end.
    pub hung: usize,
    pub panics: u64,
    /// Calls that ended with an error, by kind.
    pub errors: BTreeMap<Outcome, usize>,
    /// Calls that the failure policy allowed and denied.
    pub by_policy: (usize, usize),
    /// Calls that no shard stands behind, and that ended before the fault.
    pub troubles_before: usize,
    /// The longest call.
    pub longest: Nanos,
    /// The most by which a call was later than its deadline and a bare timer of that moment.
    pub late: Nanos,
    /// Permits above the formula in the worst interval; negative: so many below.
    pub above: f64,
    /// As stated.
    pub extra: f64,
    /// The least that was allowed in any second of the fault, as a part of the limit.
    pub least: f64,
    /// Of calls that healthy shards allowed: p99 before and during the fault.
    pub p99: Option<(Nanos, Nanos)>,
    pub lasted: Nanos,
    /// From the end of the fault until shards decided again, and the limit was used.
    pub normal_after: Option<Nanos>,
}

/// A call may be later than its deadline by so much, beyond a bare timer of the same process.
const LATE: Nanos = 10 * crate::clock::MILLI;

pub(crate) fn judge(records: &[Record], case: &Case<'_>) -> Figures {
    let mut calls: Vec<Call> = records.iter().flat_map(|record| &record.calls).copied().collect();
    calls.sort_unstable_by_key(|call| call.begin);
    let marks = case.marks;
    let mut kinds = BTreeMap::new();
    for call in calls.iter().filter(|call| call.outcome.is_error()) {
        *kinds.entry(call.outcome).or_default() += 1;
    }
    let by_policy = |outcome| calls.iter().filter(|call| call.by_policy && call.outcome == outcome).count();
    let troubles = calls.iter().filter(|call| call.is_troubled());
    let rate = case.limit.permits() as f64 / case.limit.period().as_secs_f64();
    let flow = flow::Flow::new(&calls, rate);
    Figures {
        calls: calls.len(),
        skipped: records.iter().map(|record| record.skipped).sum(),
        hung: calls.iter().filter(|call| call.end.is_none()).count(),
        panics: records.iter().map(|record| record.panics).sum(),
        errors: kinds,
        by_policy: (by_policy(Outcome::Allowed), by_policy(Outcome::Denied)),
        troubles_before: troubles.filter(|call| call.end.is_some_and(|end| end < marks.begin)).count(),
        longest: calls.iter().filter_map(|call| Some(call.end? - call.begin)).max().unwrap_or_default(),
        late: records.iter().map(|record| lateness::worst(record, nanos(case.deadline))).max().unwrap_or_default(),
        above: above(&calls, case, rate),
        extra: case.extra,
        least: if case.steady { flow.least(marks.begin, marks.end) } else { f64::NAN },
        p99: flow::p99_of(&calls, case.healthy, marks),
        lasted: marks.end - marks.begin,
        normal_after: if case.steady { flow.normal_after(marks.end) } else { flow.calm_after(marks.end) },
    }
}

/// Permits above the formula, in the worst interval.
fn above(calls: &[Call], case: &Case<'_>, rate: f64) -> f64 {
    let allowed = || calls.iter().filter(|call| call.outcome == Outcome::Allowed);
    let length = |call: &Call| call.end.unwrap_or(call.begin) - call.begin;
    let at = |call: &Call| if case.by_own_clock { call.end.unwrap_or(call.begin) / 1_000 } else { call.at };
    let admissions = allowed().map(|call| Admission { at: at(call), permits: 1 }).collect();
    let above = worst(case.limit, admissions).map_or(f64::NAN, |worst| worst.permits);
    // A call that ends late was charged up to so much earlier.
    let blur = allowed().map(length).max().unwrap_or_default();
    if case.by_own_clock { above - rate * blur as f64 / SECOND as f64 } else { above }
}

impl Figures {
    /// What must not be, in words.
    pub(crate) fn wrongs(&self) -> Vec<String> {
        let mut wrongs = Vec::new();
        if self.hung > 0 {
            wrongs.push(format!("{} calls hang", self.hung));
        }
        if self.panics > 0 {
            wrongs.push(format!("{} panics", self.panics));
        }
        if self.late > LATE {
            wrongs.push(format!("a call was {} ms late", self.late / crate::clock::MILLI));
        }
        // By half a permit nothing can be admitted.
        if self.above >= self.extra + 1.0 {
            wrongs.push(format!("{:.0} permits above the formula, {:.0} are stated", self.above, self.extra));
        }
        if self.normal_after.is_none() {
            wrongs.push("it did not get normal again".into());
        }
        wrongs
    }
}
