//! The runtime that a limiter's own tasks run on, from its first call to its end.

use std::future::Future;
use std::sync::OnceLock;
use std::time::Duration;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Transport;
use crate::error::{Error, ErrorKind};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, Mutex, lock, thread};

/// Starts with the first call: nothing runs and no socket is open before, so a process may fork until then.
pub(crate) struct Engine {
    pub transport: Transport,
    given: Option<Handle>,
    runtime: OnceLock<Result<Runtime, Error>>,
    tasks: TaskTracker,
    /// Ends all of them.
    end: CancellationToken,
    /// No call is taken any more.
    is_shut: AtomicBool,
}

struct Runtime {
    handle: Handle,
    /// What ends a runtime of our own, when it is dropped.
    own: Mutex<Option<oneshot::Sender<()>>>,
}

impl Engine {
    pub(crate) fn new(transport: Transport, given: Option<Handle>) -> Self {
        let (tasks, end) = (TaskTracker::new(), CancellationToken::new());
        Self { transport, given, runtime: OnceLock::new(), tasks, end, is_shut: AtomicBool::new(false) }
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

    /// Takes no more calls, does what is left to do, for up to `within`, and ends: tasks are dropped, which answers those who wait
    /// for them, and connections closed. Says whether what was left was done.
    ///
    /// # Cancel safety
    /// It goes on, whether it is dropped or not.
    pub(crate) async fn shut_down(
        self: &Arc<Self>,
        within: Duration,
        left: impl Future<Output = bool> + Send + 'static,
    ) -> bool {
        self.is_shut.store(true, Ordering::Relaxed);
        // One that never started has nothing to end.
        let Some(Ok(runtime)) = self.runtime.get() else { return true };
        let (engine, (say, done)) = (Arc::clone(self), oneshot::channel());
        runtime.handle.spawn(async move {
            let until = tokio::time::Instant::now() + within;
            let is_done = tokio::time::timeout_at(until, left).await.unwrap_or(false);
            engine.tasks.close();
            let _ = tokio::time::timeout_at(until, engine.tasks.wait()).await;
            engine.end.cancel();
            engine.tasks.wait().await;
            engine.transport.close();
            let _ = say.send(is_done);
        });
        let is_done = done.await.unwrap_or(false);
        drop(lock(&runtime.own).take());
        is_done
    }

    fn handle(&self) -> Result<&Handle, Error> {
        let runtime = self.runtime.get_or_init(|| {
            let runtime = match self.given.clone().or_else(current) {
                Some(handle) => Runtime { handle, own: Mutex::new(None) },
                None => own_runtime()?,
            };
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
    Ok(Runtime { handle, own: Mutex::new(Some(own)) })
}
