//! One connection to a server: up or down, and while it is down, when it is opened again.

use std::time::Duration;

use arc_swap::ArcSwapOption;
use redis::{AsyncConnectionConfig, Pipeline, PushInfo, PushKind, RedisResult};
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use super::dial::Opened;
use super::fault::Fault;
use super::node::Node;
use crate::observe;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering, fence};
use crate::wire::Script;

/// For how long all requests on a connection may go without an answer in time.
const SILENCE: Duration = Duration::from_secs(5);
/// The same while others to this server have answers: then it is the way there, and not the server. More than one stall of a
/// network, and long before half of the requests to a master have failed because one of two connections was cut in silence.
const ALONE_IN_SILENCE: Duration = Duration::from_millis(200);
/// Requests that wait for the connection's task. Beyond it callers wait, so that memory is bounded.
const QUEUE: usize = 1_024;

/// A connection, whether it is open or not.
#[derive(Default)]
pub(super) struct Link {
    up: ArcSwapOption<Up>,
    /// Held by whoever opens it: the others wait for it, and take what it got.
    attempts: Arc<tokio::sync::Mutex<Attempts>>,
    opened: AtomicU64,
}

/// An open one. The number tells it from those before and after it.
pub(super) struct Up {
    pub(super) link: usize,
    number: u64,
    pub(super) opened: Opened,
    /// Since when no request had an answer in time, in milliseconds after the node was born; zero: the last one had.
    silent_since: AtomicU64,
}

/// How opening it went so far.
#[derive(Default)]
pub(super) struct Attempts {
    failed: u32,
    again: Option<Instant>,
    why: String,
}

impl Attempts {
    fn is_too_early(&self) -> bool {
        self.again.is_some_and(|again| Instant::now() < again)
    }
}

impl Link {
    #[inline]
    pub(super) fn up(&self) -> Option<Arc<Up>> {
        self.up.load_full()
    }

    pub(super) fn is_up(&self) -> bool {
        self.up.load().is_some()
    }

    /// The right to open it, once nobody else does.
    pub(super) async fn attempts(&self) -> OwnedMutexGuard<Attempts> {
        Arc::clone(&self.attempts).lock_owned().await
    }

    /// The same, unless somebody else does.
    pub(super) fn free_attempts(&self) -> Option<OwnedMutexGuard<Attempts>> {
        Arc::clone(&self.attempts).try_lock_owned().ok()
    }

    /// The same, unless it is too early.
    pub(super) fn attempts_now(&self) -> Option<OwnedMutexGuard<Attempts>> {
        self.free_attempts().filter(|attempts| !attempts.is_too_early())
    }

    /// Lets go of the connection: it is closed when what is on its way there has come to its end.
    pub(super) fn close(&self) {
        self.up.store(None);
    }

    /// The same, unless another one has taken its place.
    fn forget(&self, number: u64) {
        self.up.rcu(|now| now.as_ref().filter(|up| up.number != number).cloned());
    }

    fn is_silent(&self) -> bool {
        self.up.load().as_ref().is_none_or(|up| up.silent_since.load(Ordering::Relaxed) > 0)
    }
}

/// Opening.
impl Node {
    /// The connection, opened if there is none. Between failed attempts everybody fails at once.
    pub(super) async fn open(
        self: &Arc<Self>,
        index: usize,
        mut attempts: OwnedMutexGuard<Attempts>,
    ) -> Result<Arc<Up>, Fault> {
        let link = &self.links[index];
        if let Some(up) = link.up() {
            return Ok(up);
        }
        if attempts.is_too_early() {
            self.missed();
            return Err(Fault::NotSent(format!("{} can't be reached ({})", self.address, attempts.why)));
        }
        let was_closed = || Fault::NotSent("the limiter was shut down".into());
        let attempt = tokio::time::timeout(self.patience.connect_timeout, self.try_open(index));
        let why = match self.closed.run_until_cancelled(attempt).await.ok_or_else(was_closed)? {
            Ok(Ok(up)) => {
                *attempts = Attempts::default();
                let up = Arc::new(up);
                link.up.store(Some(Arc::clone(&up)));
                // Whoever closes it says so first, and then takes what he finds: one of the two sees the other.
                fence(Ordering::SeqCst);
                if self.closed.is_cancelled() {
                    link.close();
                    return Err(was_closed());
                }
                observe::connected(&self.address);
                return Ok(up);
            }
            Ok(Err(error)) if matches!(error.code(), Some("WRONGPASS" | "NOAUTH")) => {
                format!("{}; check user and password in the first URL", self.dial.explain(&error))
            }
            Ok(Err(error)) => self.dial.explain(&error),
            Err(_) => format!("no connection within {:?}", self.patience.connect_timeout),
        };
        attempts.failed += 1;
        attempts.again = Some(Instant::now() + self.patience.reconnect.wait(attempts.failed));
        self.missed();
        observe::unreachable(&self.address, &why);
        attempts.why.clone_from(&why);
        Err(Fault::NotSent(format!("{} can't be reached ({why})", self.address)))
    }

    /// A connection could not be had. If there is no other, it may not be a master any more.
    fn missed(&self) {
        if !self.is_connected() {
            self.lost.notify_one();
        }
    }

    async fn try_open(self: &Arc<Self>, index: usize) -> RedisResult<Up> {
        let number = self.links[index].opened.fetch_add(1, Ordering::Relaxed) + 1;
        let (node, lost) = (Arc::downgrade(self), Arc::clone(&self.lost));
        let on_push = move |push: PushInfo| {
            if push.kind == PushKind::Disconnection {
                if let Some(node) = node.upgrade() {
                    node.links[index].forget(number);
                }
                lost.notify_one();
            }
            Ok::<(), redis::aio::SendError>(())
        };
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_pipeline_buffer_size(QUEUE)
            .set_push_sender(on_push);
        let opened = self.dial.open(config).await?;
        let mut load = Pipeline::new();
        for script in Script::ALL {
            load.cmd("SCRIPT").arg("LOAD").arg(script.source());
        }
        // A user who may not load scripts may still run them by EVAL: each reply is its own matter.
        let loaded = opened.connection.clone().send_packed_commands(&load, 0, Script::ALL.len()).await;
        loaded.map_err(|error| opened.explain(error))?;
        Ok(Up { link: index, number, opened, silent_since: AtomicU64::new(0) })
    }

    /// Lets go of one connection. The others have nothing to do with it.
    pub(super) fn forget(&self, up: &Up) {
        self.links[up.link].forget(up.number);
        self.lost.notify_one();
    }
}

/// A request that is out.
pub(super) struct Waiting<'a> {
    pub(super) node: &'a Node,
    pub(super) up: &'a Up,
}

impl Waiting<'_> {
    /// Whatever it was, something came.
    pub(super) fn answered(self) {
        self.up.silent_since.store(0, Ordering::Relaxed);
        std::mem::forget(self);
    }

    fn is_alone_in_silence(&self) -> bool {
        let mut others = self.node.links.iter().enumerate().filter(|(index, _)| *index != self.up.link);
        others.any(|(_, other)| !other.is_silent())
    }
}

impl Drop for Waiting<'_> {
    /// Nobody waits for its answer any more. A connection on which all have been given up for a while is given up too: what comes
    /// on it may be the answer to another's request.
    fn drop(&mut self) {
        let now = self.node.born.elapsed().as_millis() as u64 + 1;
        let since = match self.up.silent_since.load(Ordering::Relaxed) {
            0 => return self.up.silent_since.store(now, Ordering::Relaxed),
            since => Duration::from_millis(now.saturating_sub(since)),
        };
        if since >= SILENCE || (since >= ALONE_IN_SILENCE && self.is_alone_in_silence()) {
            self.node.forget(self.up);
        }
    }
}
