//! A closed loop: each caller calls again as soon as it is answered.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use quanta::Instant;
use tokio::runtime::Runtime;
use tokio::task::yield_now;

use super::tally::{Counts, Span, Tallies};
use super::{Caller, Load, Outcome};
use crate::machine::processor_time;

/// A caller that never has to wait gives way to its worker's other callers after so many calls. Each time costs about as
/// much as a call that is decided in process, so this is a small part of the whole.
const CALLS_A_TURN: u32 = 16;
/// Callers whose every call is timed. Of more of them only a part is: clock and histogram are no part of what is measured.
const TIMED: usize = 64;
/// One call in so many is timed at the least.
const FEWEST: usize = 16;

/// Callers on the runtime, each made by `make` from its number, for so long. The first tenth, in which all of them
/// begin, does not count.
///
/// # Panics
/// If a caller does.
#[must_use]
pub fn closed_loop<C: Caller>(
    runtime: &Runtime,
    callers: usize,
    length: Duration,
    mut make: impl FnMut(usize) -> C,
) -> Load {
    let every = callers.div_ceil(TIMED).min(FEWEST) as u64;
    let callers: Vec<C> = (0..callers).map(&mut make).collect();
    let desk = Arc::new(Desk { phase: AtomicU8::new(BEGIN), tallies: Tallies::new() });
    let calls = |(number, caller)| call_until_over(caller, Arc::clone(&desk), number as u64 % every, every);
    let tasks: Vec<_> = callers.into_iter().enumerate().map(|caller| runtime.spawn(calls(caller))).collect();
    thread::sleep(length / 10);
    let (used_before, from) = (processor_time(), Instant::now());
    desk.phase.store(COUNT, Ordering::Relaxed);
    thread::sleep(length - length / 10);
    desk.phase.store(OVER, Ordering::Relaxed);
    let (used, until) = (processor_time().saturating_sub(used_before), Instant::now());
    for task in tasks {
        runtime.block_on(task).expect("a caller panicked");
    }
    desk.tallies.sum(Span { from, until }, used)
}

struct Desk {
    phase: AtomicU8,
    tallies: Tallies,
}

/// Callers begin; their calls count; it is over.
const BEGIN: u8 = 0;
const COUNT: u8 = 1;
const OVER: u8 = 2;

/// Counts for itself, and puts it to the others' at the end: those who share a counter would wait for each other.
async fn call_until_over<C: Caller>(mut caller: C, desk: Arc<Desk>, first: u64, every: u64) {
    let mut counts = Counts::default();
    let mut phase = desk.phase.load(Ordering::Relaxed);
    let mut at_once = 0;
    while phase != OVER {
        let timed = (phase == COUNT && counts.calls % every == first).then(Instant::now);
        let (outcome, waited) = noticing_a_wait(caller.call()).await;
        phase = desk.phase.load(Ordering::Relaxed);
        counts.add(outcome, phase == COUNT);
        // However late its answer: the slow ones are what latency is about.
        if let Some(begin) = timed.filter(|_| outcome != Outcome::Failed) {
            desk.tallies.time(begin.elapsed());
        }
        at_once = if waited { 0 } else { at_once + 1 };
        if at_once == CALLS_A_TURN {
            at_once = 0;
            yield_now().await;
        }
    }
    desk.tallies.add(&counts);
}

/// The call, and whether it had to wait.
async fn noticing_a_wait(call: impl Future<Output = Outcome>) -> (Outcome, bool) {
    let mut call = pin!(call);
    let mut waited = false;
    poll_fn(|context| match call.as_mut().poll(context) {
        Poll::Ready(outcome) => Poll::Ready((outcome, waited)),
        Poll::Pending => {
            waited = true;
            Poll::Pending
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::runtime;

    struct Waits(Duration);

    impl Caller for Waits {
        async fn call(&mut self) -> Outcome {
            tokio::time::sleep(self.0).await;
            Outcome::Allowed
        }
    }

    /// Of many callers not every call is timed, but every one counts.
    #[test]
    fn a_part_of_many_callers_calls_is_timed() {
        let load = closed_loop(&runtime(2), 1_000, Duration::from_millis(500), |_| Waits(Duration::from_millis(2)));
        let timed = load.latency.len();
        assert!(timed > 0 && timed <= load.calls / 10, "{timed} of {}", load.calls);
    }

    struct AtOnce(usize);

    impl Caller for AtOnce {
        async fn call(&mut self) -> Outcome {
            if self.0.is_multiple_of(2) { Outcome::Allowed } else { Outcome::Denied }
        }
    }

    #[test]
    fn callers_wait_for_their_answers() {
        let load = closed_loop(&runtime(2), 10, Duration::from_millis(500), |_| Waits(Duration::from_millis(20)));
        // 10 callers, 450 ms that count, at least 20 ms each: busy machines make it fewer.
        assert!((10..=230).contains(&load.decisions), "{load:?}");
        assert!(load.percentile(50.0) >= 19_800.0 && load.calls >= load.decisions);
        assert_eq!((load.denied, load.failed, load.late), (0, 0, 0));
    }

    #[test]
    fn callers_that_never_wait_give_way_to_others() {
        let load = closed_loop(&runtime(1), 2, Duration::from_millis(100), AtOnce);
        assert!(load.allowed > 0 && load.denied > 0, "{load:?}");
        assert_eq!(load.allowed + load.denied, load.decisions);
    }
}
