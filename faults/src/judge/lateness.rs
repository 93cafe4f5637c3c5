//! Calls against their deadline.

use crate::clock::{MILLI, Nanos};
use crate::record::{Record, Tick};

/// A call is held against the bare timers that were due so close to its deadline.
const NEAR: Nanos = 25 * MILLI;

/// The most by which a call ended after its deadline, less what a bare timer of that moment was late by.
pub(super) fn worst(record: &Record, deadline: Nanos) -> Nanos {
    let timers = Timers::new(&record.ticks);
    let late = record.calls.iter().filter_map(|call| {
        let due = call.begin + deadline;
        let late = call.end?.checked_sub(due)?;
        Some(late.saturating_sub(timers.late_at(due)))
    });
    late.max().unwrap_or_default()
}

struct Timers {
    /// By the moment they were due.
    ticks: Vec<Tick>,
    /// When they fired, in order.
    fired: Vec<Nanos>,
}

impl Timers {
    fn new(ticks: &[Tick]) -> Self {
        let mut ticks = ticks.to_vec();
        ticks.sort_unstable_by_key(|tick| tick.due);
        let mut fired: Vec<Nanos> = ticks.iter().map(|tick| tick.due + tick.late).collect();
        fired.sort_unstable();
        Self { ticks, fired }
    }

    /// How late a timer was that was due at `moment`, or would have been: a process that stands still starts none, and the
    /// first one that fires after it tells when it went on.
    fn late_at(&self, moment: Nanos) -> Nanos {
        let from = self.ticks.partition_point(|tick| tick.due + NEAR < moment);
        let near = self.ticks[from..].iter().take_while(|tick| tick.due <= moment + NEAR);
        let latest = near.map(|tick| tick.late).max().unwrap_or_default();
        let next = self.fired.get(self.fired.partition_point(|fired| *fired < moment));
        next.map_or(latest, |next| latest.max(next - moment))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Call, Outcome};

    #[test]
    fn a_stall_of_the_process_is_not_the_calls_fault() {
        let call = |begin: u64, end: u64| Call {
            begin: begin * MILLI,
            end: Some(end * MILLI),
            outcome: Outcome::Unknown,
            slot: None,
            at: 0,
            by_policy: false,
        };
        let tick = |due: u64, late: u64| Tick { due: due * MILLI, late: late * MILLI };
        let of = |calls, ticks| worst(&Record { calls, ticks, ..Record::default() }, 500 * MILLI) / MILLI;
        assert_eq!(of(vec![call(0, 499)], vec![]), 0);
        assert_eq!(of(vec![call(0, 507)], vec![]), 7);
        assert_eq!(of(vec![call(0, 507)], vec![tick(480, 5), tick(497, 4)]), 2);
        assert_eq!(of(vec![call(0, 507)], vec![tick(400, 9)]), 7, "another moment");
        assert_eq!(of(vec![call(0, 600)], vec![tick(300, 295)]), 5, "it stood still until 595");
    }
}
