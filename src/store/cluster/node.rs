//! One server and the connection to it.

use std::time::Duration;

use arc_swap::ArcSwapOption;
use redis::{AsyncConnectionConfig, Cmd, Pipeline, PushInfo, PushKind, Value, cmd};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::breaker::Breaker;
use super::dial::{Dial, Opened};
use super::fault::{Address, Fault};
use super::settings::Settings;
use crate::observe;
use crate::retries::Backoff;
use crate::said::said;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use crate::wire::Script;

/// The longest that opening a connection may take: name, handshake, log-in and scripts.
const CONNECT: Duration = Duration::from_secs(2);
/// For how long all requests on a connection may go without an answer in time.
const SILENCE: Duration = Duration::from_secs(5);
/// Requests that wait for the connection's task. Beyond it callers wait, so that memory is bounded.
const QUEUE: usize = 1_024;

pub(crate) struct Node {
    pub address: Address,
    dial: Dial,
    link: Arc<ArcSwapOption<Link>>,
    /// Held by whoever opens a connection: the others wait for it, and take what it got.
    opening: tokio::sync::Mutex<Attempts>,
    opened: AtomicU64,
    /// No connection is to be opened any more.
    closed: AtomicBool,
    /// Rung when the connection is lost.
    lost: Arc<Notify>,
    pub breaker: Breaker,
    reconnect: Backoff,
    born: Instant,
}

/// An open connection. The number tells it from those before and after it.
struct Link {
    number: u64,
    opened: Opened,
    /// Since when no request had an answer in time, in milliseconds after the node was born; zero: the last one had.
    silent_since: AtomicU64,
}

#[derive(Default)]
struct Attempts {
    failed: u32,
    again: Option<Instant>,
    why: String,
}

impl Node {
    pub(crate) fn new(address: Address, settings: &Settings, lost: Arc<Notify>) -> Self {
        let (dial, opening) = (settings.info_of(&address), tokio::sync::Mutex::default());
        let (breaker, reconnect, born) = (Breaker::new(settings.breaker), settings.reconnect, Instant::now());
        let (link, opened, closed) = (Arc::default(), AtomicU64::new(0), AtomicBool::new(false));
        Self { address, dial, link, opening, opened, closed, lost, breaker, reconnect, born }
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.link.load().is_some()
    }

    /// What a server said, without the password.
    pub(super) fn hide(&self, said: &str) -> String {
        self.dial.hide(said)
    }

    /// Sends one command; with `asking`, together with ASKING in one pipeline, so that nothing comes between them.
    ///
    /// `sent` is `true` as long as the command may be on its way without an answer.
    ///
    /// # Cancel safety
    /// The command may run if `sent` says so.
    pub(super) async fn call(
        self: &Arc<Self>,
        command: &Cmd,
        asking: bool,
        sent: &crate::sync::atomic::AtomicBool,
    ) -> Result<Value, Fault> {
        let Some(pass) = self.breaker.pass(std::time::Instant::now()) else {
            // Its slots may be another's by now, and nobody else finds out while it is not asked.
            self.lost.notify_one();
            return Err(Fault::NotSent(format!("the breaker of {} is open", self.address)));
        };
        let pass = pass.of(sent);
        let reply = self.send(command, asking, sent).await;
        pass.ended(&reply);
        reply
    }

    /// The same, whatever the breaker says.
    pub(in crate::store) async fn send(
        self: &Arc<Self>,
        command: &Cmd,
        asking: bool,
        sent: &crate::sync::atomic::AtomicBool,
    ) -> Result<Value, Fault> {
        let link = self.connected().await?;
        let mut connection = link.opened.connection.clone();
        sent.store(true, Ordering::Relaxed);
        let waiting = Waiting { node: self, link: &link };
        let reply = if asking {
            let mut pipeline = Pipeline::with_capacity(2);
            pipeline.cmd("ASKING").add_command(command.clone());
            connection.send_packed_commands(&pipeline, 0, 2).await.map(|mut replies| {
                match (replies.pop().unwrap_or(Value::Nil), replies.pop()) {
                    // Without leave to say ASKING, what follows is sent elsewhere for ever.
                    (Value::ServerError(_), Some(Value::ServerError(refused))) if refused.code() == "NOPERM" => {
                        Value::ServerError(refused)
                    }
                    (reply, _) => reply,
                }
            })
        } else {
            connection.send_packed_command(command).await
        };
        sent.store(false, Ordering::Relaxed);
        waiting.answered();
        if reply.as_ref().is_err_and(redis::RedisError::is_unrecoverable_error) {
            self.forget(link.number);
        }
        let answer = Fault::check(&self.address, reply).map_err(|fault| fault.told(|said| self.hide(said)))?;
        if !matches!(answer, Value::Array(_)) {
            // Not even of the right kind: answers and requests may have come out of step.
            self.forget(link.number);
            return Err(Fault::Unknown(format!("{}: what a script answered is no list", self.address)));
        }
        Ok(answer)
    }

    /// Sends commands that change nothing, as one pipeline; each has a reply of its own.
    pub(in crate::store) async fn ask(self: &Arc<Self>, commands: &[Cmd]) -> Result<Vec<Value>, Fault> {
        let link = self.connected().await?;
        self.ask_on(&link, commands).await
    }

    /// What the node says to CLUSTER SLOTS and CLUSTER INFO.
    pub(super) async fn describe(self: &Arc<Self>) -> Result<Vec<Value>, Fault> {
        let about = |what: &str| {
            let mut command = cmd("CLUSTER");
            command.arg(what);
            command
        };
        let link = self.connected().await?;
        link.opened.expect_large(true);
        let replies = self.ask_on(&link, &[about("SLOTS"), about("INFO")]).await;
        // Not reached by one who went away: the reply may come yet.
        link.opened.expect_large(false);
        replies
    }

    /// Opens a connection, if there is none, before a call needs it.
    pub(super) async fn connect_ahead(self: Arc<Self>) -> Result<(), Fault> {
        self.connected().await.map(|_| ())
    }

    async fn ask_on(&self, link: &Link, commands: &[Cmd]) -> Result<Vec<Value>, Fault> {
        let mut pipeline = Pipeline::with_capacity(commands.len());
        for command in commands {
            pipeline.add_command(command.clone());
        }
        let replies = link.opened.connection.clone().send_packed_commands(&pipeline, 0, commands.len()).await;
        let told = |error| self.hide(&said(&link.opened.explain(error)));
        replies.map_err(|error| Fault::Unknown(format!("{}: {}", self.address, told(error))))
    }

    /// The connection, opened if there is none. Between failed attempts everybody fails at once.
    ///
    /// # Cancel safety
    /// An attempt goes on without the call that began it: it may take longer than a call can wait.
    async fn connected(self: &Arc<Self>) -> Result<Arc<Link>, Fault> {
        if let Some(link) = self.link.load_full() {
            return Ok(link);
        }
        let node = Arc::clone(self);
        let ended = |_| Fault::NotSent("the limiter's runtime has ended".into());
        tokio::spawn(async move { node.connect().await }).await.map_err(ended)?
    }

    async fn connect(&self) -> Result<Arc<Link>, Fault> {
        let mut attempts = self.opening.lock().await;
        if let Some(link) = self.link.load_full() {
            return Ok(link);
        }
        if attempts.again.is_some_and(|again| Instant::now() < again) {
            self.lost.notify_one();
            return Err(Fault::NotSent(format!("{} can't be reached ({})", self.address, attempts.why)));
        }
        match tokio::time::timeout(CONNECT, self.open()).await {
            Ok(Ok(link)) => {
                *attempts = Attempts::default();
                let link = Arc::new(link);
                self.link.store(Some(Arc::clone(&link)));
                // Whoever closes it says so first, and then takes what he finds: one of the two sees the other.
                fence(Ordering::SeqCst);
                if self.closed.load(Ordering::Relaxed) {
                    self.link.store(None);
                    return Err(Fault::NotSent("the limiter was shut down".into()));
                }
                observe::connected(&self.address);
                Ok(link)
            }
            failed => {
                let why = match failed {
                    Ok(Err(error)) if matches!(error.code(), Some("WRONGPASS" | "NOAUTH")) => {
                        format!("{}; check user and password in the first URL", self.dial.explain(&error))
                    }
                    Ok(Err(error)) => self.dial.explain(&error),
                    _ => format!("no connection within {CONNECT:?}"),
                };
                attempts.failed += 1;
                attempts.again = Some(Instant::now() + self.reconnect.wait(attempts.failed));
                // It may not be a master any more.
                self.lost.notify_one();
                observe::unreachable(&self.address, &why);
                attempts.why.clone_from(&why);
                Err(Fault::NotSent(format!("{} can't be reached ({why})", self.address)))
            }
        }
    }

    async fn open(&self) -> redis::RedisResult<Link> {
        let number = self.opened.fetch_add(1, Ordering::Relaxed) + 1;
        let (link, lost) = (Arc::downgrade(&self.link), Arc::clone(&self.lost));
        let on_push = move |push: PushInfo| {
            if push.kind == PushKind::Disconnection {
                if let Some(link) = link.upgrade() {
                    forget(&link, number);
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
        Ok(Link { number, opened, silent_since: AtomicU64::new(0) })
    }

    /// Lets go of the connection, also of one that is being opened: it is closed when what is on its way there has come to its end.
    pub(in crate::store) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.link.store(None);
    }

    fn forget(&self, number: u64) {
        forget(&self.link, number);
        self.lost.notify_one();
    }
}

/// A request that is out.
struct Waiting<'a> {
    node: &'a Node,
    link: &'a Link,
}

impl Waiting<'_> {
    /// Whatever it was, something came.
    fn answered(self) {
        self.link.silent_since.store(0, Ordering::Relaxed);
        std::mem::forget(self);
    }
}

impl Drop for Waiting<'_> {
    /// Nobody waits for its answer any more. A connection on which all have been given up for a while is given up too: what comes
    /// on it may be the answer to another's request.
    fn drop(&mut self) {
        let now = self.node.born.elapsed().as_millis() as u64 + 1;
        match self.link.silent_since.load(Ordering::Relaxed) {
            0 => self.link.silent_since.store(now, Ordering::Relaxed),
            since if now.saturating_sub(since) >= SILENCE.as_millis() as u64 => self.node.forget(self.link.number),
            _ => {}
        }
    }
}

/// Lets go of a connection, unless another one has taken its place.
fn forget(link: &ArcSwapOption<Link>, number: u64) {
    link.rcu(|now| now.as_ref().filter(|link| link.number != number).cloned());
}

/// The reply to TIME, in µs.
pub(super) fn clock_of(reply: Value) -> Result<u64, Fault> {
    let wrong = |why: &dyn std::fmt::Display| Fault::Refused(format!("TIME: {}", said(why)));
    let (seconds, micros): (u64, u64) = redis::from_redis_value(reply).map_err(|error| wrong(&error))?;
    let clock = seconds.checked_mul(1_000_000).and_then(|clock| clock.checked_add(micros));
    // What scripts can compute with.
    clock.filter(|clock| *clock < 1 << 53).ok_or_else(|| wrong(&"is no moment of these centuries"))
}
