//! What was allowed when, and how fast.

use crate::clock::{MILLI, Nanos, SECOND};
use crate::record::{Call, Outcome};
use crate::stage::Marks;

/// Moments are looked at so far apart.
const STEP: Nanos = 100 * MILLI;
/// The limit counts as used from this part of it on.
const USED: f64 = 0.99;
/// One call in so many may be decided otherwise than by a shard: a machine that stands still for longer than a deadline has
/// them in quiet times too.
const STRAY: usize = 200;
/// So much before a fault is compared with the time of the fault.
const BEFORE: Nanos = 2 * SECOND;
/// A percentile of fewer calls says nothing.
const FEWEST: usize = 200;

/// The moments at which calls ended.
pub(super) struct Flow {
    all: Vec<Nanos>,
    allowed: Vec<Nanos>,
    /// Of those that no shard stands behind.
    troubles: Vec<Nanos>,
    /// Of the limit, a second.
    rate: f64,
    last: Nanos,
}

impl Flow {
    pub(super) fn new(calls: &[Call], rate: f64) -> Self {
        let ends = |wanted: &dyn Fn(&Call) -> bool| {
            let ends = calls.iter().filter(|call| wanted(call));
            // What hangs is an error for ever.
            let mut ends: Vec<Nanos> = ends.map(|call| call.end.unwrap_or(Nanos::MAX)).collect();
            ends.sort_unstable();
            ends
        };
        let last = calls.last().map_or(0, |call| call.begin);
        let allowed = ends(&|call| call.outcome == Outcome::Allowed);
        Self { all: ends(&|_| true), allowed, troubles: ends(&Call::is_troubled), rate, last }
    }

    /// What was allowed in the second after `from`, as a part of the limit.
    fn used(&self, from: Nanos) -> f64 {
        within_a_second(&self.allowed, from) as f64 / self.rate
    }

    /// Whether shards decided the calls of the second after `from`.
    fn is_calm(&self, from: Nanos) -> bool {
        within_a_second(&self.troubles, from) * STRAY <= within_a_second(&self.all, from)
    }

    /// The least second that begins within the fault.
    pub(super) fn least(&self, begin: Nanos, end: Nanos) -> f64 {
        let moments = (0..).map(|step| begin + step * STEP);
        // A fault shorter than a second has one second, too.
        let within = moments.take_while(|from| *from == begin || *from + SECOND <= end);
        within.map(|from| self.used(from)).fold(f64::INFINITY, f64::min)
    }

    /// Until the first moment whose next second uses the limit, by shards.
    pub(super) fn normal_after(&self, end: Nanos) -> Option<Nanos> {
        self.first_from(end, |from| self.is_calm(from) && self.used(from) >= USED)
    }

    /// The same where calls do not come all the time: only who decided tells.
    pub(super) fn calm_after(&self, end: Nanos) -> Option<Nanos> {
        self.first_from(end, |from| self.is_calm(from))
    }

    fn first_from(&self, end: Nanos, is_it: impl Fn(Nanos) -> bool) -> Option<Nanos> {
        let mut moments = (0..).map(|step| end + step * STEP).take_while(|from| from + SECOND <= self.last);
        moments.find(|from| is_it(*from)).map(|from| from - end)
    }
}

fn within_a_second(moments: &[Nanos], from: Nanos) -> usize {
    let before = |moment| moments.partition_point(|end| *end < moment);
    before(from + SECOND) - before(from)
}

/// Of calls that these shards allowed: p99 before the fault and during it.
pub(super) fn p99_of(calls: &[Call], slots: &[u16], marks: &Marks) -> Option<(Nanos, Nanos)> {
    let between = |from: Nanos, to: Nanos| {
        let by_them = calls.iter().filter(|call| call.slot.is_some_and(|slot| slots.contains(&slot)));
        let within = by_them.filter(|call| (from..to).contains(&call.begin));
        let mut lengths: Vec<Nanos> = within.filter_map(|call| Some(call.end? - call.begin)).collect();
        lengths.sort_unstable();
        if lengths.len() < FEWEST { None } else { Some(lengths[lengths.len() * 99 / 100]) }
    };
    Some((between(marks.begin.saturating_sub(BEFORE), marks.begin)?, between(marks.begin, marks.end)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One call every 10 ms from 0, each with the outcome that its moment has.
    fn calls(until: u64, outcome: impl Fn(u64) -> Outcome) -> Vec<Call> {
        let call = |at: u64| Call {
            begin: at * MILLI,
            end: Some(at * MILLI + 1),
            outcome: outcome(at),
            slot: Some(1),
            at: 0,
            by_policy: false,
        };
        (0..until / 10).map(|number| call(number * 10)).collect()
    }

    #[test]
    fn normal_is_when_the_limit_is_used_and_errors_are_over() {
        let of = |outcome: &dyn Fn(u64) -> Outcome| Flow::new(&calls(8_000, outcome), 100.0);
        let flow = of(&|at| if (2_000..4_300).contains(&at) { Outcome::Denied } else { Outcome::Allowed });
        assert_eq!(flow.normal_after(4_000 * MILLI), Some(300 * MILLI));
        assert!(flow.least(2_000 * MILLI, 4_000 * MILLI) == 0.0);
        let flow = of(&|at| if (4_000..4_650).contains(&at) { Outcome::Unknown } else { Outcome::Allowed });
        assert_eq!(flow.normal_after(4_000 * MILLI), Some(700 * MILLI));
        let flow = of(&|at| if at > 4_000 { Outcome::Denied } else { Outcome::Allowed });
        assert_eq!(flow.normal_after(4_000 * MILLI), None);
        assert!((flow.least(1_000 * MILLI, 1_000 * MILLI) - 1.0).abs() < 0.02, "the one second of a short fault");
    }

    #[test]
    fn only_healthy_shards_have_a_percentile() {
        let calls = calls(8_000, |_| Outcome::Allowed);
        let marks = Marks { begin: 3_000 * MILLI, end: 6_000 * MILLI, sick: Vec::new() };
        assert_eq!(p99_of(&calls, &[1], &marks), Some((1, 1)));
        assert_eq!(p99_of(&calls, &[2], &marks), None);
    }
}
