//! Where the callers of one thread wait until their next call is due.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::poll_fn;
use std::task::{Poll, Waker};

use super::schedule::LATE;
use super::timer::Timer;
use crate::clock::{MICRO, Nanos, Stopwatch};

/// Calls that fall due within so short a time are woken together. Waking takes about as long itself: at 200,000 calls
/// a second on two cores, single wakes used both of them up and made calls late, while this takes 0.4 cores,
/// and the median of what calls wait rises from 40 to 50 µs. It is for threads that have a core each.
const SHORTEST_WAIT: Nanos = 50 * MICRO;
/// However many threads share a core: a quarter of what makes a call late.
const LONGEST_WAIT: Nanos = LATE / 4;

/// A queue by due time in front of one timer. It has a place for each caller, who waits for one moment at a time.
#[derive(Debug)]
pub(super) struct Pacer {
    stopwatch: Stopwatch,
    timer: Timer,
    /// Between two wakes.
    wait: Nanos,
    queue: RefCell<Queue>,
}

#[derive(Debug)]
struct Queue {
    due: BinaryHeap<Reverse<(Nanos, usize)>>,
    /// By place. Taken when its moment has come.
    wakers: Vec<Option<Waker>>,
    /// When the timer will fire; [`Nanos::MAX`] when nobody waits.
    set_to: Nanos,
}

impl Pacer {
    /// Of one of `sharers` threads that share a core.
    pub(super) fn new(stopwatch: Stopwatch, timer: Timer, places: usize, sharers: u64) -> Self {
        let wait = (SHORTEST_WAIT * sharers.max(1)).min(LONGEST_WAIT);
        let queue = Queue { due: BinaryHeap::new(), wakers: vec![None; places], set_to: Nanos::MAX };
        Self { stopwatch, timer, wait, queue: RefCell::new(queue) }
    }

    /// Waits at `place` until `due`, or until all are woken.
    ///
    /// # Cancel safety
    /// The place stays taken until `due`, and nobody else may wait there before.
    pub(super) async fn until(&self, place: usize, due: Nanos) {
        let mut queued = false;
        poll_fn(|context| {
            let mut queue = self.queue.borrow_mut();
            if !queued {
                queued = true;
                queue.wakers[place] = Some(context.waker().clone());
                queue.due.push(Reverse((due, place)));
                if due < queue.set_to {
                    self.set_timer(&mut queue, due, self.stopwatch.now());
                }
                return Poll::Pending;
            }
            match &mut queue.wakers[place] {
                None => Poll::Ready(()),
                Some(waker) => {
                    waker.clone_from(context.waker());
                    Poll::Pending
                }
            }
        })
        .await;
    }

    /// Wakes whoever is due, for as long as it is polled. One task a thread does this.
    ///
    /// # Cancel safety
    /// Another may go on with it.
    pub(super) async fn drive(&self) {
        loop {
            self.timer.fired().await;
            self.wake_until(self.stopwatch.now());
        }
    }

    /// Wakes everybody, whenever they are due.
    pub(super) fn wake_all(&self) {
        self.wake_until(Nanos::MAX);
    }

    fn wake_until(&self, now: Nanos) {
        let mut queue = self.queue.borrow_mut();
        while let Some(&Reverse((due, place))) = queue.due.peek() {
            if due > now {
                self.set_timer(&mut queue, due, now);
                return;
            }
            queue.due.pop();
            if let Some(waker) = queue.wakers[place].take() {
                waker.wake();
            }
        }
        queue.set_to = Nanos::MAX;
    }

    fn set_timer(&self, queue: &mut Queue, due: Nanos, now: Nanos) {
        queue.set_to = due;
        self.timer.set(due.saturating_sub(now).max(self.wait));
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use tokio::task::LocalSet;

    use super::*;
    use crate::clock::MILLI;

    fn with_pacer<R>(places: usize, work: impl AsyncFnOnce(Rc<Pacer>, Stopwatch) -> R) -> R {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        LocalSet::new().block_on(&runtime, async {
            let stopwatch = Stopwatch::new();
            let pacer = Rc::new(Pacer::new(stopwatch.clone(), Timer::new().unwrap(), places, 1));
            let driver = Rc::clone(&pacer);
            tokio::task::spawn_local(async move { driver.drive().await });
            work(pacer, stopwatch).await
        })
    }

    #[test]
    fn nobody_is_woken_early_and_all_in_order() {
        with_pacer(4, async |pacer, stopwatch| {
            let start = stopwatch.now();
            let order = Rc::new(RefCell::new(Vec::new()));
            let waits = [(0, 6), (1, 2), (2, 4), (3, 0)].map(|(place, after)| {
                let (pacer, stopwatch, order) = (Rc::clone(&pacer), stopwatch.clone(), Rc::clone(&order));
                tokio::task::spawn_local(async move {
                    let due = start + after * MILLI;
                    pacer.until(place, due).await;
                    assert!(stopwatch.now() >= due);
                    order.borrow_mut().push(place);
                })
            });
            for wait in waits {
                wait.await.unwrap();
            }
            assert_eq!(*order.borrow(), [3, 1, 2, 0]);
        });
    }

    #[test]
    fn all_are_woken_at_once_when_told() {
        with_pacer(2, async |pacer, stopwatch| {
            let far = stopwatch.now() + 3_600_000 * MILLI;
            let waits = [0, 1].map(|place| {
                let pacer = Rc::clone(&pacer);
                tokio::task::spawn_local(async move { pacer.until(place, far).await })
            });
            tokio::task::yield_now().await;
            pacer.wake_all();
            for wait in waits {
                wait.await.unwrap();
            }
        });
    }
}
