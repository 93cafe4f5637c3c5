//! An open loop: calls on a schedule, however long the ones before take.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use quanta::Instant;
use tokio::runtime::{Handle, Runtime};

use super::tally::{Counts, Span, Tallies};
use super::{Caller, Load, Outcome};
use crate::machine::processor_time;

/// A call that begins later than this after it was due is late. Well above what a timer and a free core need, well
/// below what a person would call a stall.
pub const LATE: Duration = Duration::from_millis(1);
/// Calls that fall due within so short a time begin together: one wake of a worker for all of them.
const TICK: Duration = Duration::from_micros(50);
/// How long the last calls may take after the end; those that take longer are failures.
const PATIENCE: Duration = Duration::from_secs(20);

/// One task for each call, as a gateway has one for each request: `rate` of them a second for so long, each with a copy
/// of the caller. The first tenth does not count. A call that panics has failed.
///
/// # Panics
/// If the system has no thread left.
#[must_use]
pub fn open_loop<C: Caller + Clone + Sync>(runtime: &Runtime, caller: &C, rate: u64, length: Duration) -> Load {
    let begin = Instant::now() + Duration::from_millis(5);
    let span = Span { from: begin + length / 10, until: begin + length };
    let desk = Desk { span, tallies: Tallies::new(), ended: AtomicU64::new(0) };
    let schedule = Schedule { caller: caller.clone(), desk: Arc::new(desk), begin, rate };
    let schedule = Arc::new(schedule);
    let pacer = {
        let (schedule, handle) = (Arc::clone(&schedule), runtime.handle().clone());
        // A thread of its own: the runtime's timers go by whole milliseconds, and its workers may be busy.
        thread::Builder::new().name("pacer".into()).spawn(move || schedule.pace(&handle)).expect("a thread")
    };
    sleep_until(span.from);
    let used_before = processor_time();
    sleep_until(span.until);
    let used = processor_time().saturating_sub(used_before);
    let made = pacer.join().expect("the pacer panicked");
    let ended = || schedule.desk.ended.load(Ordering::Acquire);
    let patience = Instant::now();
    while ended() < made && patience.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(1));
    }
    let mut load = schedule.desk.tallies.sum(span, used);
    load.failed += made.saturating_sub(load.calls);
    load
}

struct Schedule<C> {
    caller: C,
    desk: Arc<Desk>,
    begin: Instant,
    rate: u64,
}

struct Desk {
    span: Span,
    tallies: Tallies,
    ended: AtomicU64,
}

impl<C: Caller + Clone + Sync> Schedule<C> {
    /// Starts every call when it is due, until the end; says how many.
    fn pace(self: Arc<Self>, runtime: &Handle) -> u64 {
        let end = self.desk.span.until;
        let calls = self.due_before(end);
        let mut made = 0;
        while made < calls {
            sleep_until(self.due(made).max(Instant::now() + TICK));
            let due = self.due_before(Instant::now()).min(calls);
            if due > made {
                runtime.spawn(Arc::clone(&self).start(made..due));
                made = due;
            }
        }
        made
    }

    /// From a worker, because that wakes nobody but those who have nothing to do.
    async fn start(self: Arc<Self>, calls: std::ops::Range<u64>) {
        for number in calls {
            tokio::spawn(call(self.caller.clone(), self.due(number), Arc::clone(&self.desk)));
        }
    }

    /// Computed from the number of the call, so that no error adds up.
    fn due(&self, number: u64) -> Instant {
        let nanos = u128::from(number) * 1_000_000_000 / u128::from(self.rate);
        self.begin + Duration::from_nanos(nanos as u64)
    }

    fn due_before(&self, moment: Instant) -> u64 {
        let nanos = moment.saturating_duration_since(self.begin).as_nanos();
        (nanos * u128::from(self.rate)).div_ceil(1_000_000_000) as u64
    }
}

async fn call<C: Caller>(mut caller: C, due: Instant, desk: Arc<Desk>) {
    let late = due.elapsed() > LATE;
    let outcome = caller.call().await;
    let end = Instant::now();
    let mut counts = Counts { late: u64::from(late), ..Counts::default() };
    counts.add(outcome, desk.span.holds(end));
    desk.tallies.add(&counts);
    if outcome != Outcome::Failed && desk.span.holds(due) {
        desk.tallies.time(end.duration_since(due));
    }
    desk.ended.fetch_add(1, Ordering::Release);
}

fn sleep_until(moment: Instant) {
    thread::sleep(moment.saturating_duration_since(Instant::now()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::runtime;

    #[derive(Clone)]
    struct Takes(Duration);

    impl Caller for Takes {
        async fn call(&mut self) -> Outcome {
            tokio::time::sleep(self.0).await;
            Outcome::Allowed
        }
    }

    #[test]
    fn every_call_is_made_however_long_the_others_take() {
        let load = open_loop(&runtime(2), &Takes(Duration::from_millis(50)), 10_000, Duration::from_millis(300));
        assert_eq!((load.calls, load.failed), (3_000, 0));
        assert!(load.decisions > 0 && load.decisions <= 2_700, "{load:?}");
        assert!(load.percentile(50.0) >= 49_500.0);
    }

    #[test]
    fn a_blocked_worker_makes_calls_late() {
        #[derive(Clone)]
        struct Blocks;
        impl Caller for Blocks {
            async fn call(&mut self) -> Outcome {
                thread::sleep(Duration::from_millis(5));
                Outcome::Allowed
            }
        }
        let load = open_loop(&runtime(1), &Blocks, 1_000, Duration::from_millis(100));
        assert!(load.is_late(), "{load:?}");
        assert_eq!(load.calls, 100);
    }
}
