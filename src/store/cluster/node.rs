//! One server and the connections to it.

use futures_util::future::join_all;
use redis::{Cmd, Pipeline, Value, cmd};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::breaker::Breaker;
use super::dial::Dial;
use super::fault::{Address, Fault};
use super::link::{Link, Up, Waiting};
use super::settings::{Patience, Settings};
use super::trouble::Trouble;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicUsize, Ordering, fence};

pub(crate) struct Node {
    pub address: Address,
    pub(super) dial: Dial,
    /// One or a few, all alike.
    pub(super) links: Box<[Link]>,
    /// Whose turn it is, where there are several.
    turn: AtomicUsize,
    /// No connection is to be opened any more, and none that is being opened is waited for.
    pub(super) closed: CancellationToken,
    /// Rung when a connection is lost.
    pub(super) lost: Arc<Notify>,
    pub breaker: Breaker,
    /// It can't serve.
    pub(super) trouble: Trouble,
    pub(super) patience: Patience,
    pub(super) born: Instant,
}

impl Node {
    pub(crate) fn new(address: Address, settings: &Settings, lost: Arc<Notify>, closed: CancellationToken) -> Self {
        let patience = settings.patience;
        Self {
            dial: settings.info_of(&address),
            address,
            links: (0..patience.connections).map(|_| Link::default()).collect(),
            turn: AtomicUsize::new(0),
            closed,
            lost,
            breaker: Breaker::new(patience.breaker),
            trouble: Trouble::default(),
            patience,
            born: Instant::now(),
        }
    }

    /// Whether it can be asked without opening a connection first.
    pub(crate) fn is_connected(&self) -> bool {
        self.links.iter().any(Link::is_up)
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
        let up = self.connected().await?;
        let mut connection = up.opened.connection.clone();
        sent.store(true, Ordering::Relaxed);
        let waiting = Waiting { node: self, up: &up };
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
            self.forget(&up);
        }
        let answer = Fault::check(&self.address, reply, &|words| self.dial.said(words))?;
        if !matches!(answer, Value::Array(_)) {
            // Not even of the right kind: answers and requests may have come out of step.
            self.forget(&up);
            return Err(Fault::Unknown(format!("{}: what a script answered is no list", self.address)));
        }
        Ok(answer)
    }

    /// Sends commands that change nothing, as one pipeline; each has a reply of its own.
    pub(in crate::store) async fn ask(self: &Arc<Self>, commands: &[Cmd]) -> Result<Vec<Value>, Fault> {
        let up = self.any().await?;
        self.ask_on(&up, commands).await
    }

    /// What the node says to CLUSTER SLOTS and CLUSTER INFO.
    pub(super) async fn describe(self: &Arc<Self>) -> Result<Vec<Value>, Fault> {
        let about = |what: &str| {
            let mut command = cmd("CLUSTER");
            command.arg(what);
            command
        };
        let up = self.any().await?;
        up.opened.expect_large(true);
        let replies = self.ask_on(&up, &[about("SLOTS"), about("INFO")]).await;
        // Not reached by one who went away: the reply may come yet.
        up.opened.expect_large(false);
        replies
    }

    /// Opens the connections that are missing before a call needs them. Nobody waits for them, nor for those that are being opened.
    pub(super) fn connect_ahead(self: &Arc<Self>) {
        for index in self.missing() {
            // Also if it is too early: then somebody has to look here again.
            if let Some(attempts) = self.links[index].free_attempts() {
                let node = Arc::clone(self);
                // Told of where it fails.
                tokio::spawn(async move { node.open(index, attempts).await.map(drop) });
            }
        }
    }

    /// The same for one who waits until all are open.
    pub(super) async fn connect(self: &Arc<Self>) -> Result<(), Fault> {
        let all = join_all(self.missing().map(|index| self.opened(index))).await;
        all.into_iter().try_for_each(|link| link.map(|_| ()))
    }

    fn missing(&self) -> impl Iterator<Item = usize> {
        (0..self.links.len()).filter(|index| !self.links[*index].is_up())
    }

    async fn ask_on(&self, up: &Up, commands: &[Cmd]) -> Result<Vec<Value>, Fault> {
        let mut pipeline = Pipeline::with_capacity(commands.len());
        for command in commands {
            pipeline.add_command(command.clone());
        }
        let replies = up.opened.connection.clone().send_packed_commands(&pipeline, 0, commands.len()).await;
        let told = |error| self.dial.said(&up.opened.explain(error));
        replies.map_err(|error| Fault::Unknown(format!("{}: {}", self.address, told(error))))
    }

    /// The connection for the next request: each has its turn. Nothing relies on one that comes before another on the same one: a
    /// lane has one round out at a time, and what was given up may run whenever it likes.
    async fn connected(self: &Arc<Self>) -> Result<Arc<Up>, Fault> {
        let turn = match &*self.links {
            [_] => 0,
            links => self.turn.fetch_add(1, Ordering::Relaxed) % links.len(),
        };
        match self.links[turn].up() {
            Some(up) => Ok(up),
            None => self.instead_of(turn).await,
        }
    }

    /// Another one, if one is open: nobody waits for the one that was lost.
    async fn instead_of(self: &Arc<Self>, index: usize) -> Result<Arc<Up>, Fault> {
        let (before, behind) = self.links.split_at(index);
        let Some(other) = behind.iter().chain(before).find_map(Link::up) else { return self.opened(index).await };
        if let Some(attempts) = self.links[index].attempts_now() {
            let node = Arc::clone(self);
            // Told of where it fails.
            tokio::spawn(async move { node.open(index, attempts).await.map(drop) });
        }
        Ok(other)
    }

    /// Whichever is open; the first, if none is: who only asks opens no more than one.
    async fn any(self: &Arc<Self>) -> Result<Arc<Up>, Fault> {
        match self.links.iter().find_map(Link::up) {
            Some(up) => Ok(up),
            None => self.opened(0).await,
        }
    }

    /// This connection, opened if it is not open.
    ///
    /// # Cancel safety
    /// An attempt goes on without the call that began it: it may take longer than a call can wait. Who only waited for another's
    /// leaves nothing behind.
    async fn opened(self: &Arc<Self>, index: usize) -> Result<Arc<Up>, Fault> {
        let (node, (mut say, opened)) = (Arc::clone(self), oneshot::channel());
        let ended = |_| Fault::NotSent("the limiter's runtime has ended".into());
        // A task also while it waits: its turn may come while nobody polls the call, and others wait behind it.
        tokio::spawn(async move {
            let attempts = tokio::select! {
                biased;
                attempts = node.links[index].attempts() => attempts,
                () = say.closed() => return,
            };
            let _ = say.send(node.open(index, attempts).await);
        });
        opened.await.map_err(ended)?
    }

    /// Lets go of all connections: each is closed when what is on its way there has come to its end, and those that are being
    /// opened at once.
    pub(in crate::store) fn close(&self) {
        self.closed.cancel();
        fence(Ordering::SeqCst);
        self.links.iter().for_each(Link::close);
    }
}

/// The reply to TIME, in µs.
pub(super) fn clock_of(reply: Value) -> Result<u64, Fault> {
    let wrong = |why| Fault::Refused(format!("TIME {why}"));
    let (seconds, micros): (u64, u64) =
        redis::from_redis_value(reply).map_err(|_| wrong("was not answered with two numbers"))?;
    let clock = seconds.checked_mul(1_000_000).and_then(|clock| clock.checked_add(micros));
    // What scripts can compute with.
    clock.filter(|clock| *clock < 1 << 53).ok_or_else(|| wrong("is no moment of these centuries"))
}
