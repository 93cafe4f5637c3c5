//! What a worker counts, and how counts are put together.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use shardlimit::{DecidedBy, Decision, Error};
use shardlimit_check::Admission;

use super::live::Calls;
use crate::clock::{Nanos, SECOND};

/// Twice the longest run: a latency in an open loop can grow to the run's length.
const LONGEST_LATENCY: Nanos = 48 * 3_600 * SECOND;

/// The counts of one worker, one process or the whole run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Tally {
    /// Calls begun.
    pub offered: u64,
    /// Calls begun more than [`LATE`](super::schedule::LATE) after they were due.
    pub late: u64,
    /// Calls that were due as long ago when the run ended, and had not begun.
    pub missed: u64,
    pub allowed: u64,
    pub denied: u64,
    pub errors: u64,
    /// What the first error said.
    pub error: Option<String>,
    pub decided_by: Deciders,
    /// By process: how often its limiters found the key under another, later definition.
    pub mismatches: BTreeMap<u64, u64>,
    #[serde(with = "recorded")]
    pub latency: Histogram<u64>,
    pub samples: Vec<Sample>,
    /// By slot.
    pub shards: BTreeMap<u16, Shard>,
    /// Permits by the moment at which they count, if they are to be judged.
    pub admissions: Vec<Admission>,
    /// From the common start to the end of the last worker.
    pub elapsed: Nanos,
    /// Used during the run.
    pub processor_time: Nanos,
    pub interrupted: bool,
}

/// Decisions by who made them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Deciders {
    pub store: u64,
    pub local: u64,
    pub lease: u64,
    pub ceiling: u64,
    pub fallback: u64,
}

/// What one shard was asked and said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shard {
    pub master: Option<String>,
    pub runs: u64,
    pub allowed: u64,
    pub denied: u64,
}

/// The calls of one stretch of time: offered by when they began, decided by when they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sample {
    pub offered: u64,
    pub allowed: u64,
    pub denied: u64,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            offered: 0,
            late: 0,
            missed: 0,
            allowed: 0,
            denied: 0,
            errors: 0,
            error: None,
            decided_by: Deciders::default(),
            mismatches: BTreeMap::new(),
            latency: Histogram::new_with_bounds(1, LONGEST_LATENCY, 3).expect("the bounds are in order"),
            samples: Vec::new(),
            shards: BTreeMap::new(),
            admissions: Vec::new(),
            elapsed: 0,
            processor_time: 0,
            interrupted: false,
        }
    }
}

impl Tally {
    pub(crate) fn decisions(&self) -> u64 {
        self.allowed + self.denied + self.errors
    }

    /// At most 1 % of the calls were late. Those that were never begun for lack of time count too: a generator
    /// that stands still is not on time.
    pub(crate) fn is_valid(&self) -> bool {
        (self.late + self.missed) * 100 <= self.offered + self.missed
    }

    pub(super) fn calls(&self) -> Calls {
        Calls { offered: self.offered, allowed: self.allowed }
    }

    pub(super) fn record(&mut self, outcome: &Result<Decision, Error>, latency: Nanos) {
        self.latency.saturating_record(latency.max(1));
        match outcome {
            Ok(decision) => {
                *self.decided_by.of(decision.decided_by()) += 1;
                *(if decision.is_allowed() { &mut self.allowed } else { &mut self.denied }) += 1;
            }
            Err(error) => {
                self.errors += 1;
                self.error.get_or_insert_with(|| error.to_string());
            }
        }
    }

    /// Keeps when an allowed call was charged; of a leased permit, when it was spent.
    ///
    /// `called_at` is when the call began, by this machine's clock.
    pub(super) fn admit(&mut self, decision: &Decision, called_at: u64) {
        let Decision::Allowed(allowed) = decision else { return };
        let receipt = allowed.receipt();
        let decider = decision.decided_by();
        let before = self.admissions.len();
        self.admissions.extend(
            receipt.shards().map(|(_, permits, at)| Admission { at: counts_at(decider, at, called_at), permits }),
        );
        if self.admissions.len() == before {
            self.admissions.push(Admission { at: receipt.charged_at(), permits: receipt.permits() });
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.offered += other.offered;
        self.late += other.late;
        self.missed += other.missed;
        self.allowed += other.allowed;
        self.denied += other.denied;
        self.errors += other.errors;
        self.error = self.error.take().or_else(|| other.error.clone());
        self.decided_by.merge(other.decided_by);
        for (part, mismatches) in &other.mismatches {
            *self.mismatches.entry(*part).or_default() += mismatches;
        }
        self.latency.add(&other.latency).expect("all have the same bounds");
        if self.samples.len() < other.samples.len() {
            self.samples.resize(other.samples.len(), Sample::default());
        }
        for (mine, theirs) in self.samples.iter_mut().zip(&other.samples) {
            mine.offered += theirs.offered;
            mine.allowed += theirs.allowed;
            mine.denied += theirs.denied;
        }
        for (slot, theirs) in &other.shards {
            let mine = self.shards.entry(*slot).or_default();
            mine.master = mine.master.take().or_else(|| theirs.master.clone());
            mine.runs += theirs.runs;
            mine.allowed += theirs.allowed;
            mine.denied += theirs.denied;
        }
        self.admissions.extend(&other.admissions);
        self.elapsed = self.elapsed.max(other.elapsed);
        self.processor_time += other.processor_time;
        self.interrupted |= other.interrupted;
    }
}

impl Deciders {
    fn of(&mut self, decider: DecidedBy) -> &mut u64 {
        match decider {
            DecidedBy::Local => &mut self.local,
            DecidedBy::Lease => &mut self.lease,
            DecidedBy::Ceiling => &mut self.ceiling,
            DecidedBy::Fallback => &mut self.fallback,
            // The library may learn of new ones; what it does not know itself, it asks of a store.
            _ => &mut self.store,
        }
    }

    fn merge(&mut self, other: Self) {
        self.store += other.store;
        self.local += other.local;
        self.lease += other.lease;
        self.ceiling += other.ceiling;
        self.fallback += other.fallback;
    }
}

/// The moment at which permits count. A leased one was spent after its call began, and after its charge: the later of the
/// two is never after the spending, so a busy machine makes no admission look later than it was.
fn counts_at(decider: DecidedBy, charged_at: u64, called_at: u64) -> u64 {
    if decider == DecidedBy::Lease { charged_at.max(called_at) } else { charged_at }
}

/// A histogram as the (value, count) pairs that it holds. Read back, each value falls into the same bucket.
mod recorded {
    use hdrhistogram::Histogram;
    use serde::{Deserialize, Deserializer, Serializer};

    use super::Tally;

    pub(super) fn serialize<S: Serializer>(histogram: &Histogram<u64>, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(histogram.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value())))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Histogram<u64>, D::Error> {
        let mut histogram = Tally::default().latency;
        for (value, count) in Vec::<(u64, u64)>::deserialize(from)? {
            histogram.saturating_record_n(value, count);
        }
        Ok(histogram)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_on_the_way_from_another_process() {
        let mut tally =
            Tally { offered: 3, samples: vec![Sample { offered: 3, ..Sample::default() }], ..Tally::default() };
        for latency in [1, 999, 2_047, 1_234_567, 3_600 * SECOND] {
            tally.latency.record(latency).unwrap();
        }
        let copy: Tally = serde_json::from_str(&serde_json::to_string(&tally).unwrap()).unwrap();
        assert_eq!(copy.latency, tally.latency);
        assert_eq!(copy.samples, tally.samples);
        assert_eq!(copy.offered, 3);
    }

    #[test]
    fn a_leased_permit_counts_when_it_is_spent() {
        assert_eq!(counts_at(DecidedBy::Store, 7, 9), 7);
        assert_eq!(counts_at(DecidedBy::Lease, 7, 9), 9);
        assert_eq!(counts_at(DecidedBy::Lease, 9, 7), 9, "it was charged while its call waited");
    }

    #[test]
    fn one_call_in_a_hundred_may_be_late() {
        let run = |offered, late, missed| Tally { offered, late, missed, ..Tally::default() }.is_valid();
        assert!(run(0, 0, 0));
        assert!(run(1_000, 10, 0));
        assert!(!run(1_000, 11, 0));
        assert!(!run(1, 0, 1_000_000), "one call that took the whole run is no open loop");
    }

    #[test]
    fn counts_add_up_and_the_longest_time_counts() {
        let one = Tally { allowed: 1, denied: 2, errors: 3, elapsed: 5, processor_time: 7, ..Tally::default() };
        let mut two = Tally { allowed: 10, elapsed: 4, processor_time: 1, interrupted: true, ..Tally::default() };
        two.merge(&one);
        assert_eq!((two.decisions(), two.elapsed, two.processor_time, two.interrupted), (16, 5, 8, true));

        // Two workers of the first process and one of the second.
        let of = |part, mismatches| Tally { mismatches: BTreeMap::from([(part, mismatches)]), ..Tally::default() };
        let mut all = of(0, 1);
        all.merge(&of(0, 2));
        all.merge(&of(1, 5));
        assert_eq!(all.mismatches, BTreeMap::from([(0, 3), (1, 5)]));
    }
}
