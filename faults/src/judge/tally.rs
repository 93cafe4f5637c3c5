//! How calls ended, whatever was done meanwhile.

use std::collections::BTreeMap;

use shardlimit_check::Admission;

use crate::clock::{MILLI, Nanos, SECOND};
use crate::record::{Call, Outcome, Record, without_numbers};

/// Timers that were due so close to a call with an error say whether the machine stood still.
const NEAR: Nanos = 100 * MILLI;

/// Calls of all processes, by how they ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub calls: usize,
    pub skipped: u64,
    /// Calls without an end.
    pub hung: usize,
    pub panics: u64,
    /// Calls that ended with an error, by kind.
    pub errors: BTreeMap<Outcome, usize>,
    /// Calls that the failure policy allowed and denied.
    pub by_policy: (usize, usize),
    /// When calls with an error began, the first and the last, after the first call of all.
    pub troubled: Option<(Nanos, Nanos)>,
    /// The most by which a bare timer was late within that time: a machine that stood still is not the calls' fault.
    pub stall: Nanos,
    /// What the first errors of each process said, each once.
    pub whys: Vec<String>,
}

impl Tally {
    pub(crate) fn of(records: &[Record]) -> Self {
        let mut tally = Self::default();
        for record in records {
            tally.calls += record.calls.len();
            tally.skipped += record.skipped;
            tally.panics += record.panics;
            tally.whys.extend(record.whys.iter().cloned());
            record.calls.iter().for_each(|call| tally.add(call));
        }
        tally.whys.sort_unstable_by_key(|why| without_numbers(why));
        tally.whys.dedup_by_key(|why| without_numbers(why));
        tally.look_at_troubles(records);
        tally
    }

    fn look_at_troubles(&mut self, records: &[Record]) {
        let calls = || records.iter().flat_map(|record| &record.calls);
        let begins = || calls().filter(|call| call.outcome.is_error()).map(|call| call.begin);
        let first = calls().map(|call| call.begin).min().unwrap_or_default();
        if let (Some(from), Some(to)) = (begins().min(), begins().max()) {
            self.troubled = Some((from - first, to - first));
            let near = from.saturating_sub(NEAR)..to + NEAR;
            let ticks = records.iter().flat_map(|record| &record.ticks).filter(|tick| near.contains(&tick.due));
            self.stall = ticks.map(|tick| tick.late).max().unwrap_or_default();
        }
    }

    fn add(&mut self, call: &Call) {
        self.hung += usize::from(call.end.is_none());
        match call.outcome {
            Outcome::Allowed => self.by_policy.0 += usize::from(call.by_policy),
            Outcome::Denied => self.by_policy.1 += usize::from(call.by_policy),
            error => *self.errors.entry(error).or_default() += 1,
        }
    }

    /// What must never be, in words.
    pub(crate) fn wrongs(&self) -> Vec<String> {
        let mut wrongs = Vec::new();
        if self.hung > 0 {
            wrongs.push(format!("{} calls hang", self.hung));
        }
        if self.panics > 0 {
            wrongs.push(format!("{} panics", self.panics));
        }
        wrongs
    }

    pub(crate) fn errors(&self) -> usize {
        self.errors.values().sum()
    }

    /// Errors by kind, in words.
    pub(crate) fn kinds(&self) -> String {
        let kinds: Vec<_> = self.errors.iter().map(|(kind, count)| format!("{count} {}", kind.name())).collect();
        let Some((from, to)) = self.troubled else { return "0".into() };
        let seconds = |time: Nanos| time as f64 / SECOND as f64;
        let (from, to, stall) = (seconds(from), seconds(to), self.stall / MILLI);
        format!("{} (from {from:.2} to {to:.2} s, timers up to {stall} ms late)", kinds.join(", "))
    }
}

/// What was admitted when, by the clock of who decided.
pub(crate) fn admissions<'a>(calls: impl Iterator<Item = &'a Call>) -> Vec<Admission> {
    let allowed = calls.filter(|call| call.outcome == Outcome::Allowed);
    allowed.map(|call| Admission { at: call.at, permits: 1 }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_end_is_counted() {
        let call = |outcome, by_policy| Call { end: Some(1), outcome, by_policy, ..Call::begin() };
        let calls = vec![
            call(Outcome::Allowed, false),
            call(Outcome::Allowed, true),
            call(Outcome::Denied, true),
            call(Outcome::Unknown, false),
            call(Outcome::Unknown, false),
            Call::begin(),
        ];
        assert_eq!(admissions(calls.iter()).len(), 2);
        let why = |millis: u64| Record { whys: vec![format!("{millis} ms late")], ..Record::default() };
        let tally = Tally::of(&[Record { calls, skipped: 3, ..why(5) }, why(60)]);
        assert_eq!(tally.whys.len(), 1, "{:?}", tally.whys);
        assert_eq!((tally.calls, tally.skipped, tally.hung, tally.by_policy), (6, 3, 1, (1, 1)));
        assert_eq!(
            (tally.errors(), tally.kinds().as_str()),
            (3, "1 hung, 2 unknown (from 0.00 to 0.00 s, timers up to 0 ms late)")
        );
        assert_eq!(tally.wrongs(), ["1 calls hang"]);
    }
}
