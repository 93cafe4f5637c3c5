//! A call that waits for its permits, and the task that asks for all who wait for a key.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};

use super::SharedLimit;
use super::ceiling::SPREAD;
use super::entry::Entry;
use super::held::Turn;
use super::job::Miss;
use super::waits::{Arrival, Joined, Left, Next};
use crate::clock::{Alarm, Micros};
use crate::decision::{DecidedBy, Decision};
use crate::error::{Error, ErrorKind};
use crate::flow::Line;
use crate::sync::Arc;
use crate::sync::atomic::Ordering;

/// How soon those who wait ask again where no answer says when.
const AGAIN: Micros = 2_000;

impl SharedLimit {
    /// Asks, and if it is denied waits in line until `timeout` has passed. To ask once may take as long as any call: `within`.
    ///
    /// # Cancel safety
    /// It leaves the line; a permit that has come, or comes after that, is another's or goes back.
    pub(crate) async fn acquire_within(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        permits: u64,
        timeout: Duration,
        within: Option<Micros>,
    ) -> Result<Decision, Error> {
        let ticket = Line::ticket();
        let timeout = Micros::try_from(timeout.as_micros()).unwrap_or(Micros::MAX);
        let deadline = self.clock.now().saturating_add(timeout);
        let (due, trouble) = match self.acquire(entry, permits, within).await {
            // Nothing was charged: there may be a way, or a permit, before the deadline.
            Err(error) if error.kind() == ErrorKind::NotSent && self.clock.now() + AGAIN < deadline => {
                (self.clock.now() + AGAIN, Some(error))
            }
            Err(error) => return Err(error),
            Ok(Decision::Denied(denied)) => {
                let due = self.worth_it_at(denied.retry_after());
                // What is said to those behind a line is a guess: it may move faster.
                let is_behind = denied.decided_by() == DecidedBy::Line;
                if timeout == 0 || due > deadline && !is_behind {
                    return Ok(Decision::Denied(denied));
                }
                (if is_behind { 0 } else { due }, None)
            }
            Ok(allowed) => return self.take_turn(entry, allowed, deadline).await,
        };
        let arrival = Arrival { ticket, permits, deadline, due, trouble };
        let decided = Waiting::new(self, entry, arrival).await?;
        self.take_turn(entry, decided, deadline).await
    }

    /// When an ask that was denied is worth another.
    fn worth_it_at(&self, wait: Duration) -> Micros {
        let wait = wait.as_micros() as Micros;
        // Ceilings spread the clients that were denied together; without them it is done here.
        let spread = if self.ceiling == 0 { rand::random_range(SPREAD / 4..=SPREAD) } else { 0 };
        self.clock.now().saturating_add(if wait == 0 { AGAIN } else { wait.saturating_add(spread) })
    }

    /// A pacing queue lets a call in before its turn: this waits for it, unless it comes too late.
    async fn take_turn(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        decided: Decision,
        deadline: Micros,
    ) -> Result<Decision, Error> {
        let allowed = match decided {
            Decision::Allowed(allowed) if !allowed.wait().is_zero() => allowed,
            decided => return Ok(decided),
        };
        let due = self.clock.now().saturating_add(allowed.wait().as_micros() as Micros);
        if due > deadline {
            let denied = allowed.denied_by(due - deadline);
            // Nobody waits for that: the call has to end.
            drop(Turn::new(self, entry, allowed));
            return Ok(denied);
        }
        let turn = Turn::new(self, entry, allowed);
        let mut alarm = None;
        let comes = poll_fn(|context| {
            if self.clock.now() >= due {
                return Poll::Ready(());
            }
            alarm = Some(self.clock.wake_at(due, context.waker()));
            Poll::Pending
        });
        if self.engine.until_the_end(comes).await.is_none() {
            return Err(Miss::Ended { sent: true }.into_error());
        }
        let allowed = turn.take().expect("nobody else takes it");
        Ok(Decision::Allowed(allowed.waited()))
    }

    /// Denies a call that stands behind others; none if nobody waits any more.
    #[cold]
    #[inline(never)]
    pub(super) fn behind(&self, entry: &Entry, permits: u64, now: Micros) -> Option<Decision> {
        let (ahead, due) = entry.waits.ahead(now)?;
        Some(self.denied_behind(entry, permits, (ahead, due), now))
    }

    /// Not before the permits of those ahead, and its own, can have come.
    fn denied_behind(&self, entry: &Entry, permits: u64, (ahead, due): (u64, Micros), now: Micros) -> Decision {
        let view = entry.load();
        let wanted = permits.saturating_add(ahead).min(view.ledger.limit().burst());
        let together = view.opens_together_in(wanted, now).unwrap_or(0);
        self.tell_denied(&entry.key, permits, now);
        let wait = together.max(due.saturating_sub(now)).max(1);
        Decision::denied_by_store(entry.outlook(now, DecidedBy::Line), wait)
    }

    /// Asks for those in line, as soon as it is worth it, until nobody waits.
    async fn serve(self: &Arc<Self>, entry: &Arc<Entry>) {
        while let Some((permits, calls)) = self.next_in_line(entry).await {
            let calls = self.worth_asking(entry, permits, calls);
            let mut asks: FuturesUnordered<_> = (0..calls).map(|_| self.ask_for_line(entry, permits)).collect();
            let (mut due, mut trouble) = (0, None);
            while let Some(decided) = asks.next().await {
                match decided {
                    Ok(Decision::Denied(denied)) => due = self.worth_it_at(denied.retry_after()),
                    Err(error) if error.kind() == ErrorKind::NotSent => {
                        due = due.max(self.clock.now() + AGAIN);
                        trouble = Some(error);
                    }
                    decided => {
                        if let Some(Ok(Decision::Allowed(allowed))) = entry.waits.answer(permits, decided) {
                            drop(Turn::new(self, entry, allowed));
                        }
                    }
                }
            }
            entry.waits.rest_until(permits, due, trouble);
        }
    }

    async fn next_in_line(&self, entry: &Entry) -> Option<(u64, usize)> {
        let mut alarm = None;
        poll_fn(|context| {
            match entry.waits.next(self.clock.now(), context.waker()) {
                Next::Nobody => return Poll::Ready(None),
                Next::Ask { permits, calls } => return Poll::Ready(Some((permits, calls))),
                Next::Until(due) => alarm = Some(self.clock.wake_at(due, context.waker())),
            }
            Poll::Pending
        })
        .await
    }

    /// For how many of the calls at the head there may be permits. Where nothing is known, the head finds out for all.
    fn worth_asking(&self, entry: &Entry, permits: u64, calls: usize) -> usize {
        let (view, now) = (entry.load(), self.clock.now());
        // Two that gather take each other's parts.
        if permits > view.least_burst {
            return 1;
        }
        let is_known = |lane: &&Arc<super::Lane>| self.ceiling == 0 || lane.ceiling.known().counts(now);
        let most: u64 = view.lanes.iter().filter(is_known).map(|lane| lane.most(now)).sum();
        calls.min((most / permits) as usize).max(1)
    }

    async fn ask_for_line(self: &Arc<Self>, entry: &Arc<Entry>, permits: u64) -> Result<Decision, Error> {
        let now = self.clock.now();
        match self.in_process(entry, permits, now) {
            Some(decision) => Ok(decision),
            None => self.ask_store(entry, permits, now, None).await,
        }
    }
}

/// Whoever serves a line. However it ends, nobody is left in it without an answer.
struct Serving {
    limit: Arc<SharedLimit>,
    /// Until it has come to its end.
    entry: Option<Arc<Entry>>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(entry) = self.entry.take() {
            entry.waits.end(&Miss::Ended { sent: false }.into_error());
            self.limit.rest(entry);
        }
    }
}

/// A place in line. Resolves by the call's deadline.
struct Waiting<'a> {
    limit: &'a Arc<SharedLimit>,
    entry: &'a Arc<Entry>,
    ticket: u64,
    permits: u64,
    deadline: Micros,
    /// What it brings along to the line, until it stands there.
    arrival: Option<Arrival>,
    /// Rings at the deadline.
    alarm: Option<Alarm>,
    is_over: bool,
}

impl<'a> Waiting<'a> {
    fn new(limit: &'a Arc<SharedLimit>, entry: &'a Arc<Entry>, arrival: Arrival) -> Self {
        let Arrival { ticket, permits, deadline, .. } = arrival;
        Self { limit, entry, ticket, permits, deadline, arrival: Some(arrival), alarm: None, is_over: false }
    }

    /// A task of its own: a head that is not polled must not hold up the rest.
    fn begin_to_serve(&self) {
        let serving = Serving { limit: Arc::clone(self.limit), entry: Some(Arc::clone(self.entry)) };
        let task = async move {
            let mut serving = serving;
            if let Some(entry) = &serving.entry {
                serving.limit.serve(entry).await;
            }
            // In good order: whoever comes next is served by another task.
            serving.entry.take().into_iter().for_each(|entry| serving.limit.rest(entry));
        };
        // If it can't be spawned it is dropped, and that answers everybody.
        let _ = self.limit.engine.spawn(task);
    }
}

impl Future for Waiting<'_> {
    type Output = Result<Decision, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let now = this.limit.clock.now();
        if let Some(arrival) = this.arrival.take() {
            match this.entry.waits.join(arrival, context.waker()) {
                Joined::First => this.begin_to_serve(),
                Joined::Behind => {}
                Joined::Full(ahead, due) => {
                    this.is_over = true;
                    this.limit.failures.crowded.fetch_add(1, Ordering::Relaxed);
                    let denied = this.limit.denied_behind(this.entry, this.permits, (ahead, due), now);
                    return Poll::Ready(Ok(denied));
                }
            }
        }
        let left = match this.entry.waits.poll(this.ticket, now, context.waker()) {
            Poll::Ready(left) => left,
            Poll::Pending => {
                this.alarm = Some(this.limit.clock.wake_at(this.deadline, context.waker()));
                return Poll::Pending;
            }
        };
        this.is_over = true;
        Poll::Ready(match left {
            Left::Decided(decided) => decided,
            Left::Late { trouble: Some(error), .. } => Err(error),
            Left::Late { ahead, due, .. } => Ok(this.limit.denied_behind(this.entry, this.permits, (ahead, due), now)),
        })
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.is_over
            && let Some(Ok(Decision::Allowed(allowed))) = self.entry.waits.leave(self.ticket)
        {
            drop(Turn::new(self.limit, self.entry, allowed));
        }
    }
}
