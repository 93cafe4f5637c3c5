//! From the records of all processes to the figures of a fault.
//!
//! * `tally`: how calls ended. `lateness`: calls against their deadline, and against bare timers. `flow`: what was allowed when, and how fast.

mod flow;
mod lateness;
mod tally;

pub(crate) use tally::{Tally, admissions};

use std::time::Duration;

use shardlimit::Limit;
use shardlimit_check::{Admission, worst};

use crate::clock::{Nanos, SECOND, nanos};
use crate::fault::Permits;
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
    pub extra: Permits,
    /// Servers' clocks can't be trusted: admissions count when their calls end, by the clock of this machine.
    pub by_own_clock: bool,
    /// Calls come all the time.
    pub steady: bool,
    pub promise: Promise,
}

/// What is promised for this fault, beside what is for all of them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Promise {
    /// No call ends with an error.
    pub no_errors: bool,
    /// The least that is allowed in any second, as a part of the limit.
    pub least: f64,
    /// p99 of healthy shards, against that of before.
    pub p99: Option<f64>,
    pub normal_within: Option<Nanos>,
    /// Permits a second that the policy admits at the most in all processes together, while no process reaches the shard.
    pub by_policy: Option<f64>,
}

/// What a fault did to the calls.
#[derive(Debug)]
pub(crate) struct Figures {
    pub tally: Tally,
    /// Calls that no shard stands behind, and that ended before the fault.
    pub troubles_before: usize,
    /// The longest call.
    pub longest: Nanos,
    /// The most by which a call was later than its deadline and a bare timer of that moment.
    pub late: Nanos,
    /// Permits above the formula in the worst interval; negative: so many below.
    pub above: Permits,
    /// As stated.
    pub extra: Permits,
    /// The least that was allowed in any second of the fault, as a part of the limit.
    pub least: f64,
    /// Of calls that healthy shards allowed: p99 before and during the fault.
    pub p99: Option<(Nanos, Nanos)>,
    pub lasted: Nanos,
    /// From the first deed until the policy admitted its last call.
    pub without: Nanos,
    /// From the end of the fault until shards decided again, and the limit was used.
    pub normal_after: Option<Nanos>,
    pub promise: Promise,
}

/// A call may be later than its deadline by so much, beyond a bare timer of the same process.
const LATE: Nanos = 10 * crate::clock::MILLI;

pub(crate) fn judge(records: &[Record], case: &Case<'_>) -> Figures {
    let mut calls: Vec<Call> = records.iter().flat_map(|record| &record.calls).copied().collect();
    calls.sort_unstable_by_key(|call| call.begin);
    let marks = case.marks;
    let troubles = calls.iter().filter(|call| call.is_troubled());
    let rate = case.limit.permits() as f64 / case.limit.period().as_secs_f64();
    let flow = flow::Flow::new(&calls, rate);
    let by_policy = calls.iter().filter(|call| call.by_policy && call.outcome == Outcome::Allowed);
    let last = by_policy.filter_map(|call| call.end).max().unwrap_or_default();
    Figures {
        tally: Tally::of(records),
        troubles_before: troubles.filter(|call| call.end.is_some_and(|end| end < marks.begin)).count(),
        longest: calls.iter().filter_map(|call| Some(call.end? - call.begin)).max().unwrap_or_default(),
        late: records.iter().map(|record| lateness::worst(record, nanos(case.deadline))).max().unwrap_or_default(),
        above: Permits {
            by_shards: above(&calls, |call| !call.by_policy, case, rate),
            all: above(&calls, |_| true, case, rate),
        },
        extra: case.extra,
        least: if case.steady { flow.least(marks.begin, marks.end) } else { f64::NAN },
        p99: flow::p99_of(&calls, case.healthy, marks),
        lasted: marks.end - marks.begin,
        without: last.saturating_sub(marks.begin),
        normal_after: if case.steady { flow.normal_after(marks.end) } else { flow.calm_after(marks.end) },
        promise: case.promise,
    }
}

/// Permits above the formula, in the worst interval of such calls.
fn above(calls: &[Call], counts: impl Fn(&Call) -> bool, case: &Case<'_>, rate: f64) -> f64 {
    let allowed = || calls.iter().filter(|call| call.outcome == Outcome::Allowed && counts(call));
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
        let mut wrongs = self.tally.wrongs();
        if self.late > LATE {
            wrongs.push(format!("a call was {} ms late", self.late / crate::clock::MILLI));
        }
        let Self { above, extra, .. } = self;
        for (above, extra, whose) in
            [(above.all, extra.all, "permits"), (above.by_shards, extra.by_shards, "permits of shards")]
        {
            // By half a permit nothing can be admitted.
            if above >= extra + 1.0 {
                wrongs.push(format!("{above:.0} {whose} above the formula, {extra:.0} are stated"));
            }
        }
        if self.normal_after.is_none() {
            wrongs.push("it did not get normal again".into());
        }
        let Promise { no_errors, least, p99, normal_within, by_policy } = self.promise;
        let errors = self.tally.errors();
        if no_errors && errors > 0 {
            wrongs.push(format!("{errors} errors"));
        }
        let admitted = self.tally.by_policy.0;
        if let Some(rate) = by_policy
            && admitted as f64 > rate * self.without as f64 / SECOND as f64
        {
            wrongs.push(format!("the policy admitted {admitted}, where {rate:.0} a second are stated"));
        }
        if self.least < least {
            wrongs.push(format!("{:.0} % of the limit in one second", self.least * 100.0));
        }
        if let (Some(most), Some((before, during))) = (p99, self.p99)
            && during as f64 > before as f64 * most
        {
            wrongs.push(format!("healthy shards took more than {most} times as long"));
        }
        if let (Some(within), Some(after)) = (normal_within, self.normal_after)
            && after > within
        {
            wrongs.push(format!("normal later than {} ms after", within / crate::clock::MILLI));
        }
        wrongs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound() -> Figures {
        let promise =
            Promise { no_errors: true, least: 0.6, p99: Some(2.0), normal_within: Some(SECOND), by_policy: Some(10.0) };
        Figures {
            tally: Tally { calls: 1_000, by_policy: (20, 0), ..Tally::default() },
            troubles_before: 0,
            longest: 0,
            late: 0,
            above: Permits::default(),
            extra: Permits::default(),
            least: 0.6,
            p99: Some((10, 20)),
            lasted: SECOND,
            without: 2 * SECOND,
            normal_after: Some(SECOND),
            promise,
        }
    }

    #[test]
    fn what_is_promised_is_judged() {
        assert!(sound().wrongs().is_empty(), "{:?}", sound().wrongs());
        let unknown = Tally { errors: [(Outcome::Unknown, 1)].into(), ..Tally::default() };
        for bad in [
            Figures { tally: unknown.clone(), ..sound() },
            Figures { tally: Tally { by_policy: (21, 0), ..Tally::default() }, ..sound() },
            Figures { least: 0.59, ..sound() },
            Figures { p99: Some((10, 21)), ..sound() },
            Figures { normal_after: Some(SECOND + 1), ..sound() },
            Figures { normal_after: None, ..sound() },
            Figures { tally: Tally { hung: 1, ..Tally::default() }, ..sound() },
            Figures { late: LATE + 1, ..sound() },
            Figures { above: Permits { by_shards: -5.0, all: 1.0 }, ..sound() },
            Figures { above: Permits { by_shards: 1.0, all: 0.0 }, ..sound() },
        ] {
            assert_eq!(bad.wrongs().len(), 1, "{:?}", bad.wrongs());
        }
        // Without a promise it is no matter.
        let free = Figures { tally: unknown, least: 0.1, p99: Some((1, 9)), promise: Promise::default(), ..sound() };
        assert!(free.wrongs().is_empty());
    }
}
