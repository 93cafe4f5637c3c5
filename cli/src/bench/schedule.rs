//! When calls are due: computed from the number of the call, so that no error adds up over a run.

use serde::{Deserialize, Serialize};

use crate::clock::{MILLI, Nanos, SECOND};

/// A call that begins later than this after it was due is late. Well above what a timer and a free core
/// need (some 50 µs), well below what a person would call a stall.
pub(crate) const LATE: Nanos = MILLI;

/// So many calls in each period, evenly spaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Demand {
    /// At least 1.
    pub calls: u64,
    pub period: Nanos,
}

impl Demand {
    /// When call `number` is due after the start. Calls are numbered from 0.
    pub(crate) fn due(self, number: u64) -> Nanos {
        let due = u128::from(number) * u128::from(self.period) / u128::from(self.calls);
        Nanos::try_from(due).unwrap_or(Nanos::MAX)
    }

    /// How many calls are due before `time`.
    pub(crate) fn due_before(self, time: Nanos) -> u64 {
        let calls = (u128::from(time) * u128::from(self.calls)).div_ceil(self.period.into());
        u64::try_from(calls).unwrap_or(u64::MAX)
    }

    pub(crate) fn per_second(self) -> f64 {
        self.calls as f64 * SECOND as f64 / self.period as f64
    }
}

/// How many of the first `calls` are this caller's, who makes calls `caller`, `caller + callers`, ….
pub(crate) fn calls_of(caller: u64, callers: u64, calls: u64) -> u64 {
    calls.saturating_sub(caller).div_ceil(callers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_error_adds_up() {
        let thirds = Demand { calls: 3, period: SECOND };
        assert_eq!([0, 1, 2, 3].map(|number| thirds.due(number)), [0, 333_333_333, 666_666_666, SECOND]);
        assert_eq!(thirds.due(3 * 86_400), 86_400 * SECOND);
        assert_eq!(Demand { calls: 1_000_000_000, period: SECOND }.due(u64::MAX), u64::MAX);
    }

    #[test]
    fn the_count_before_a_moment_agrees_with_the_due_times() {
        for calls in [1, 3, 7, 1_000] {
            let demand = Demand { calls, period: 1_000 };
            for time in 0..3_000 {
                let counted = (0..4_000).take_while(|&number| demand.due(number) < time).count() as u64;
                assert_eq!(demand.due_before(time), counted, "{calls} calls, before {time}");
            }
        }
    }

    #[test]
    fn every_call_has_one_caller() {
        for (callers, calls) in [(1, 10), (3, 10), (64, 10), (7, 0), (5, 15)] {
            let parts: Vec<u64> = (0..callers).map(|caller| calls_of(caller, callers, calls)).collect();
            assert_eq!(parts.iter().sum::<u64>(), calls);
            assert!(parts.iter().max().unwrap() - parts.iter().min().unwrap() <= 1);
        }
    }
}
