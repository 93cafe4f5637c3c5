//! A closed loop: each caller calls again as soon as it is answered.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use quanta::Instant;
use tokio::runtime::Runtime;
use tokio::task::yield_now;

use super::tally::{Span, Tallies};
use super::{Caller, Load, Outcome};
use crate::machine::processor_time;

/// A caller that never has to wait gives way to its worker's other callers after so many calls. Each time costs about as
/// much as a call that is decided in process, so this is a small part of the whole.
const CALLS_A_TURN: u32 = 16;

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
    let callers: Vec<C> = (0..callers).map(&mut make).collect();
    let begin = Instant::now();
    let span = Span { from: begin + length / 10, until: begin + length };
    let tallies = Arc::new(Tallies::new(span));
    let tasks: Vec<_> =
        callers.into_iter().map(|caller| runtime.spawn(call_until_over(caller, Arc::clone(&tallies)))).collect();
    sleep_until(span.from);
    let used_before = processor_time();
    sleep_until(span.until);
    let used = processor_time().saturating_sub(used_before);
    for task in tasks {
        runtime.block_on(task).expect("a caller panicked");
    }
    tallies.sum(used)
}

async fn call_until_over<C: Caller>(mut caller: C, tallies: Arc<Tallies>) {
    let (mut now, mut at_once) = (Instant::now(), 0);
    while now < tallies.until() {
        let (outcome, waited) = noticing_a_wait(caller.call()).await;
        let end = Instant::now();
        tallies.record(outcome, now, end, false);
        now = end;
        at_once = if waited { 0 } else { at_once + 1 };
        if at_once == CALLS_A_TURN {
            at_once = 0;
            yield_now().await;
            now = Instant::now();
        }
    }
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

fn sleep_until(moment: Instant) {
    thread::sleep(moment.saturating_duration_since(Instant::now()));
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
