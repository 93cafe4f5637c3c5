//! The runtime that a limiter's own tasks run on.

use std::future::Future;
use std::sync::OnceLock;

use tokio::runtime::{Handle, RuntimeFlavor};

use super::Transport;
use crate::error::{Error, ErrorKind};
use crate::sync::thread;

/// Starts with the first call: nothing runs and no socket is open before, so a process may fork until then.
pub(crate) struct Engine {
    pub transport: Transport,
    given: Option<Handle>,
    runtime: OnceLock<Result<Runtime, Error>>,
}

struct Runtime {
    handle: Handle,
    /// Dropped with the engine: it ends a runtime of our own.
    _own: Option<tokio::sync::oneshot::Sender<()>>,
}

impl Engine {
    pub(crate) fn new(transport: Transport, given: Option<Handle>) -> Self {
        Self { transport, given, runtime: OnceLock::new() }
    }

    /// Runs a task on the runtime that was given, else the multi-threaded one that the first call came from, else one of
    /// its own.
    ///
    /// # Errors
    /// When a thread for a runtime can't be had.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> Result<(), Error> {
        self.handle()?.spawn(task);
        Ok(())
    }

    /// Whether the caller is on the runtime that our tasks run on.
    pub(crate) fn is_here(&self) -> bool {
        let here = Handle::try_current();
        here.is_ok_and(|here| self.handle().is_ok_and(|ours| ours.id() == here.id()))
    }

    /// Starts watching the cluster before the first call does.
    pub(crate) fn start(&self) -> Result<(), Error> {
        self.handle().map(|_| ())
    }

    fn handle(&self) -> Result<&Handle, Error> {
        let runtime = self.runtime.get_or_init(|| {
            let runtime = match self.given.clone().or_else(current) {
                Some(handle) => Runtime { handle, _own: None },
                None => own_runtime()?,
            };
            self.transport.spawn_watcher(&runtime.handle);
            Ok(runtime)
        });
        runtime.as_ref().map(|runtime| &runtime.handle).map_err(Clone::clone)
    }
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
    let (own, ended) = tokio::sync::oneshot::channel();
    let run = move || {
        let _ = runtime.block_on(ended);
    };
    thread::Builder::new().name("shardlimit".into()).spawn(run).map_err(wrong)?;
    Ok(Runtime { handle, _own: Some(own) })
}
