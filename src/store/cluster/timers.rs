//! Timers that are used again.
//!
//! To set the next timer that rings in a runtime wakes whoever waits there for timers and sockets: system calls, and a thread more that wants a core.
//! Each request would have that done twice, once for its own time and once for that of the calls in it, though hardly one is out until then. So a timer that
//! nobody waits for any more stays as it is, for the next request: it rings too early for that one, is set anew then, and so once
//! in the time that a request has, instead of for each.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::sync::{Mutex, OnceLock, lock, stripes, thread_number};

/// Timers of a thread that wait for a request. More are not kept: where so many requests are out, others have set timers that ring first.
const MOST: usize = 16;

/// One that rings later than that is not kept: until then it would hold on to whom it was last to wake.
const FAR: Duration = Duration::from_secs(60);

/// Those of one transport.
pub(crate) struct Timers {
    /// Where they ring, whoever sets them.
    runtime: OnceLock<Handle>,
    free: Box<[CachePadded<Mutex<Free>>]>,
}

type Free = Vec<Pin<Box<Sleep>>>;

/// Rings when it is [due](Self::set); not before it was set.
///
/// # Cancel safety
/// It stays set.
pub(crate) struct Timer<'a> {
    timers: &'a Timers,
    due: Option<Instant>,
    /// Rings then or earlier.
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Timers {
    pub(crate) fn new() -> Self {
        Self { runtime: OnceLock::new(), free: (0..stripes()).map(|_| CachePadded::default()).collect() }
    }

    /// Has them ring on this runtime, if no other was named before.
    pub(super) fn run_on(&self, runtime: &Handle) {
        let _ = self.runtime.set(runtime.clone());
    }

    pub(crate) fn timer(&self) -> Timer<'_> {
        Timer { timers: self, due: None, sleep: None }
    }

    /// What `work` comes to; none if it is not done by then.
    ///
    /// # Cancel safety
    /// That of `work`.
    pub(super) async fn timeout_at<F: Future>(&self, due: Instant, work: F) -> Option<F::Output> {
        let mut work = pin!(work);
        let mut timer = self.timer();
        timer.set(due);
        std::future::poll_fn(|context| match work.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => Pin::new(&mut timer).poll(context).map(|()| None),
        })
        .await
    }

    fn own(&self) -> &Mutex<Free> {
        &self.free[thread_number() & (self.free.len() - 1)]
    }

    fn take(&self, due: Instant) -> Pin<Box<Sleep>> {
        if let Some(sleep) = lock(self.own()).pop() {
            return sleep;
        }
        let _runtime = self.runtime.get().map(Handle::enter);
        Box::pin(sleep_until(due))
    }

    fn give_back(&self, sleep: Pin<Box<Sleep>>) {
        // What is not kept is dropped when the lock is free.
        let rings_soon = sleep.deadline() <= Instant::now() + FAR;
        let free = &mut *lock(self.own());
        if rings_soon && free.len() < MOST {
            free.push(sleep);
        }
    }
}

impl Timer<'_> {
    pub(crate) fn set(&mut self, due: Instant) {
        self.due = Some(due);
    }

    /// Whether it is set, and has not rung.
    pub(crate) fn is_set(&self) -> bool {
        self.due.is_some()
    }
}

impl Future for Timer<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let Some(due) = this.due else { return Poll::Pending };
        let sleep = this.sleep.get_or_insert_with(|| this.timers.take(due));
        loop {
            if sleep.is_elapsed() && Instant::now() >= due {
                this.due = None;
                return Poll::Ready(());
            }
            if sleep.is_elapsed() || sleep.deadline() > due {
                sleep.as_mut().reset(due);
            }
            ready!(sleep.as_mut().poll(context));
        }
    }
}

impl Drop for Timer<'_> {
    fn drop(&mut self) {
        if let Some(sleep) = self.sleep.take() {
            self.timers.give_back(sleep);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::sleep;

    use super::*;
    use crate::sync::Arc;

    const BRIEF: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(30);

    fn kept(timers: &Timers) -> Vec<Instant> {
        timers
            .free
            .iter()
            .flat_map(|free| lock(free).iter().map(|sleep| sleep.deadline()).collect::<Vec<_>>())
            .collect()
    }

    /// Not before it is due, whatever the timer that it had from another was set for.
    #[tokio::test]
    async fn it_rings_when_it_is_due() {
        let timers = Timers::new();
        for before in [Duration::ZERO, BRIEF / 2, LONG] {
            let set = Instant::now() + before;
            timers.timeout_at(set, sleep(Duration::from_millis(1))).await;
            assert_eq!(kept(&timers), [set], "of one that was answered");
            let due = Instant::now() + BRIEF;
            assert_eq!(timers.timeout_at(due, pending::<()>()).await, None);
            assert!(Instant::now() >= due, "after one for {before:?}");
            timers.free.iter().for_each(|free| lock(free).clear());
        }
    }

    /// The timer of a request that was answered is set for the next one as it is.
    #[tokio::test]
    async fn requests_that_are_answered_set_one_timer() {
        let timers = Timers::new();
        let first = Instant::now() + LONG;
        for request in 0..100 {
            let due = first + Duration::from_millis(request);
            assert_eq!(timers.timeout_at(due, sleep(Duration::from_micros(10))).await, Some(()));
        }
        assert_eq!(kept(&timers), [first]);
    }

    /// Whoever comes with a timer from another's hands is woken by it, and the other is not.
    #[test]
    fn it_wakes_whoever_waits_on_whichever_runtime() {
        let timers = Arc::new(Timers::new());
        let (own, other) = (runtime(), runtime());
        timers.run_on(own.handle());
        let waits = |runtime: &tokio::runtime::Runtime| {
            let timers = Arc::clone(&timers);
            runtime.block_on(async move {
                let answered = timers.timeout_at(Instant::now() + BRIEF, sleep(Duration::from_millis(1))).await;
                let late = timers.timeout_at(Instant::now() + BRIEF, pending::<()>()).await;
                assert_eq!((answered, late), (Some(()), None));
            });
        };
        waits(&other);
        // What it left is none of the runtime that is gone.
        drop(other);
        waits(&own);
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a thread")
    }

    #[tokio::test]
    async fn no_more_are_kept_than_are_of_use() {
        let timers = Timers::new();
        let due = Instant::now() + LONG;
        let mut all: Vec<_> = (0..2 * MOST).map(|_| timers.timer()).collect();
        for timer in &mut all {
            assert!(!timer.is_set());
            timer.set(due);
            let is_waiting =
                std::future::poll_fn(|context| Poll::Ready(Pin::new(&mut *timer).poll(context).is_pending()));
            assert!(is_waiting.await && timer.is_set());
        }
        drop(all);
        assert_eq!(kept(&timers).len(), MOST);
    }

    #[tokio::test]
    async fn one_that_rings_in_an_hour_is_not_kept() {
        let timers = Timers::new();
        for (due, is_kept) in [(2 * FAR, false), (FAR / 2, true)] {
            timers.timeout_at(Instant::now() + due, sleep(Duration::from_millis(1))).await;
            assert_eq!(kept(&timers).len(), usize::from(is_kept), "{due:?}");
        }
    }
}
