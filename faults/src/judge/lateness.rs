//! Calls against their deadline.

use crate::clock::{MILLI, Nanos};
use crate::record::{Record, Tick};

/// A call is held against the bare timers that were due so close to its deadline.
const NEAR: Nanos = 25 * MILLI;

/// The most by which a call ended after its deadline, less what the latest bare timer of that moment was late by.
pub(super) fn worst(record: &Record, deadline: Nanos) -> Nanos {
    let mut ticks = record.ticks.clone();
    ticks.sort_unstable_by_key(|tick| tick.due);
    let late = record.calls.iter().filter_map(|call| {
        let due = call.begin + deadline;
        let late = call.end?.checked_sub(due)?;
        Some(late.saturating_sub(latest_near(&ticks, due)))
    });
    late.max().unwrap_or_default()
}

fn latest_near(ticks: &[Tick], moment: Nanos) -> Nanos {
    let from = ticks.partition_point(|tick| tick.due + NEAR < moment);
    let near = ticks[from..].iter().take_while(|tick| tick.due <= moment + NEAR);
    near.map(|tick| tick.late).max().unwrap_or_default()
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
        assert_eq!(of(vec![call(0, 507)], vec![tick(480, 5), tick(520, 1)]), 2);
        assert_eq!(of(vec![call(0, 507)], vec![tick(400, 9)]), 7, "another moment");
    }
}
