//! The runtime that a limiter's own tasks run on, from its first call to its end.

use std::future::Future;
use std::sync::OnceLock;
use std::time::Duration;

use crossbeam_utils::CachePadded;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Transport;
use crate::error::{Error, ErrorKind};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, Mutex, cores, lock, thread, thread_number};

/// Starts with the first call: nothing runs and no socket is open before, so a process may fork until then.
pub(crate) struct Engine {
    pub transport: Transport,
    given: Option<Handle>,
    runtime: OnceLock<Result<Runtime, Error>>,
    tasks: TaskTracker,
    /// Ends all of them.
    end: CancellationToken,
    /// What callers do by themselves: a part for each thread, so that cores do not fight over a cache line.
    by_callers: Box<[CachePadded<ByCallers>]>,
    /// No call is taken any more.
    is_shut: AtomicBool,
    /// The same for those who wait for something else.
    shut: CancellationToken,
}

struct ByCallers {
    under_way: TaskTracker,
    end: CancellationToken,
}

struct Runtime {
    handle: Handle,
    life: Mutex<Life>,
}

/// For how long a runtime lives.
#[derive(Clone)]
enum Life {
    /// As long as others like.
    Given,
    /// Until nobody holds this any more.
    Own { _held: Arc<oneshot::Sender<()>> },
    /// It was shut down: it may be gone, and nothing is left that it would have to run.
    Over,
}

impl Engine {
    pub(crate) fn new(transport: Transport, given: Option<Handle>) -> Self {
        let (tasks, end) = (TaskTracker::new(), CancellationToken::new());
        let part = |_| CachePadded::new(ByCallers { under_way: TaskTracker::new(), end: end.child_token() });
        let by_callers = (0..cores().next_power_of_two()).map(part).collect();
        let (runtime, is_shut, shut) = (OnceLock::new(), AtomicBool::new(false), CancellationToken::new());
        Self { transport, given, runtime, tasks, end, by_callers, is_shut, shut }
    }

    /// Runs a task on the runtime that was given, else the multi-threaded one that the first call came from, else one of
    /// its own. It is dropped when the engine comes to its end.
    ///
    /// # Errors
    /// When a thread for a runtime can't be had, or the engine has ended.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> Result<(), Error> {
        if self.end.is_cancelled() {
            return Err(was_shut_down());
        }
        let until_the_end = self.end.clone().run_until_cancelled_owned(task);
        self.tasks.spawn_on(
            async move {
                until_the_end.await;
            },
            self.handle()?,
        );
        Ok(())
    }

    /// For what a caller does by himself, in place of a task, or waits for: it comes to nothing when the engine comes to its end.
    pub(crate) fn until_the_end<F: Future>(&self, work: F) -> impl Future<Output = Option<F::Output>> + use<F> {
        let part = &self.by_callers[thread_number() & (self.by_callers.len() - 1)];
        part.under_way.track_future(part.end.clone().run_until_cancelled_owned(work))
    }

    /// Whether the caller is on the runtime that our tasks run on.
    pub(crate) fn is_here(&self) -> bool {
        let here = Handle::try_current();
        here.is_ok_and(|here| self.handle().is_ok_and(|ours| ours.id() == here.id()))
    }

    /// Starts watching the cluster before the first call does.
    pub(crate) fn start(&self) -> Result<(), Error> {
        self.check()?;
        self.handle().map(|_| ())
    }

    /// Refuses calls that come after the end.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.is_shut.load(Ordering::Relaxed) { Err(was_shut_down()) } else { Ok(()) }
    }

    /// Until no call is taken any more: what is done for the sake of later ones is of no use then.
    pub(crate) fn is_over(&self) -> impl Future<Output = ()> + Send + use<> {
        self.shut.clone().cancelled_owned()
    }

    /// Waits for so long. `false`: [it is over](Self::is_over).
    pub(crate) fn pause(&self, time: Duration) -> impl Future<Output = bool> + Send + use<> {
        let shut = self.shut.clone();
        async move { shut.run_until_cancelled(tokio::time::sleep(time)).await.is_some() }
    }

    /// Takes no more calls, does what is left to do, for up to `within`, and ends: tasks are dropped, and so is what callers do
    /// by themselves, which answers those who wait for it, and connections closed. Says whether what was left was done, and
    /// what is to be said at the `last`, when nothing is under way any more; nothing if the runtime has ended before that. Where
    /// that was done before, nothing is left.
    ///
    /// # Cancel safety
    /// It goes on, whether it is dropped or not.
    pub(crate) async fn shut_down<T: Send + 'static>(
        self: &Arc<Self>,
        within: Duration,
        left: impl Future<Output = ()> + Send + 'static,
        last: impl FnOnce() -> T + Send + 'static,
    ) -> Option<(bool, T)> {
        self.is_shut.store(true, Ordering::Relaxed);
        self.shut.cancel();
        // One that never started has nothing to end, and does not start any more.
        let never = self.runtime.get_or_init(|| Err(was_shut_down()));
        let Ok(runtime) = never else { return Some((true, last())) };
        // Another one that ends first must not take it away from this one.
        let life = lock(&runtime.life).clone();
        if matches!(life, Life::Over) {
            return Some((true, last()));
        }
        let (engine, (say, done)) = (Arc::clone(self), oneshot::channel());
        runtime.handle.spawn(async move {
            let until = end_of(within);
            let is_done = tokio::time::timeout_at(until, left).await.is_ok();
            let _ = tokio::time::timeout_at(until, engine.rest()).await;
            engine.end.cancel();
            engine.tasks.wait().await;
            engine.transport.close();
            let said = (is_done, last());
            engine.is_over_now();
            let _ = say.send(said);
            drop(life);
        });
        done.await.ok()
    }

    /// A runtime of our own ends when those go who still shut down.
    fn is_over_now(&self) {
        if let Some(Ok(runtime)) = self.runtime.get() {
            *lock(&runtime.life) = Life::Over;
        }
    }

    /// Until nothing is under way.
    async fn rest(&self) {
        self.tasks.close();
        self.tasks.wait().await;
        for part in &self.by_callers {
            part.under_way.close();
            // Not after its end: then it is for each caller to find out.
            part.under_way.wait().await;
        }
        // What they have left to tasks.
        self.tasks.wait().await;
    }

    fn handle(&self) -> Result<&Handle, Error> {
        let runtime = self.runtime.get_or_init(|| {
            let runtime = match self.given.clone().or_else(current) {
                Some(handle) => Runtime { handle, life: Mutex::new(Life::Given) },
                None => own_runtime()?,
            };
            self.transport.timers().run_on(&runtime.handle);
            let watcher = self.transport.watcher();
            runtime.handle.spawn(self.end.clone().run_until_cancelled_owned(watcher));
            Ok(runtime)
        });
        runtime.as_ref().map(|runtime| &runtime.handle).map_err(Clone::clone)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

/// When so much time is over; of more than anybody waits for, a moment that a clock can tell.
pub(super) fn end_of(time: Duration) -> Instant {
    const CENTURY: Duration = Duration::from_secs(100 * 365 * 86_400);
    Instant::now() + time.min(CENTURY)
}

fn was_shut_down() -> Error {
    Error::new(ErrorKind::NotSent, "limiter", "it was shut down; nothing was charged")
}

/// The runtime of the first call, if its threads are its own. One that lives on its caller's thread stands still whenever
/// that thread does something else, and callers on other threads would wait for it without end.
fn current() -> Option<Handle> {
    Handle::try_current().ok().filter(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread)
}

/// A thread with a runtime, for callers who have none. It ends when the engine does.
fn own_runtime() -> Result<Runtime, Error> {
    let wrong = |error: std::io::Error| {
        Error::new(ErrorKind::NotSent, "runtime", format!("can't be started ({error}); pass one to the builder"))
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(wrong)?;
    let handle = runtime.handle().clone();
    let (own, ended) = oneshot::channel();
    let run = move || {
        let _ = runtime.block_on(ended);
    };
    thread::Builder::new().name("shardlimit".into()).spawn(run).map_err(wrong)?;
    Ok(Runtime { handle, life: Mutex::new(Life::Own { _held: Arc::new(own) }) })
}
