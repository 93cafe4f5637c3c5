//! Adds that go as one, and those who wait for them.

use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};

use super::kernel::{LARGEST, Verdict};
use crate::error::{Error, ErrorKind};
use crate::observe;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering};

/// What a caller is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Counted {
        total: i64,
    },
    Above {
        total: i64,
    },
    /// Not delivered yet: it will be.
    Queued,
}

/// What became of all adds under one name.
pub(super) struct Tally {
    name: Box<str>,
    undelivered: watch::Sender<u64>,
    refused: AtomicU64,
    unknown: AtomicU64,
}

impl Tally {
    pub(super) fn new(name: &str) -> Self {
        let (undelivered, refused, unknown) = (watch::Sender::default(), AtomicU64::new(0), AtomicU64::new(0));
        Self { name: name.into(), undelivered, refused, unknown }
    }

    /// Adds are given up that are surely not counted.
    pub(super) fn refused(&self, adds: u64) {
        self.refused.fetch_add(adds, Ordering::Relaxed);
        observe::adds_dropped(&self.name, adds, true);
    }

    /// Adds are given up that may be counted.
    fn unknown(&self, adds: u64) {
        self.unknown.fetch_add(adds, Ordering::Relaxed);
        observe::adds_dropped(&self.name, adds, false);
    }

    pub(super) fn undelivered(&self) -> u64 {
        *self.undelivered.borrow()
    }

    /// Surely not counted, and perhaps not counted.
    pub(super) fn dropped(&self) -> (u64, u64) {
        (self.refused.load(Ordering::Relaxed), self.unknown.load(Ordering::Relaxed))
    }

    /// Until nothing is undelivered.
    ///
    /// # Cancel safety
    /// It changes nothing.
    pub(super) fn empty(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut undelivered = self.undelivered.subscribe();
        async move {
            let _ = undelivered.wait_for(|adds| *adds == 0).await;
        }
    }
}

/// Adds that go as one: any number without a bound, or one that has a bound.
pub(super) struct Work {
    pub bound: Option<i64>,
    amount: i64,
    adds: u64,
    /// In the order of their deadlines.
    callers: Vec<Caller>,
    tally: Arc<Tally>,
}

struct Caller {
    /// The sum up to and with his own.
    up_to: i64,
    due: Instant,
    say: oneshot::Sender<Result<Answer, Error>>,
}

impl Work {
    pub(super) fn new(
        tally: &Arc<Tally>,
        amount: i64,
        bound: Option<i64>,
        due: Instant,
        say: oneshot::Sender<Result<Answer, Error>>,
    ) -> Self {
        let mut work = Self { bound, amount: 0, adds: 0, callers: Vec::new(), tally: Arc::clone(tally) };
        work.join(amount, due, say);
        work
    }

    pub(super) fn amount(&self) -> i64 {
        self.amount
    }

    /// Whether an add without a bound can go with these.
    pub(super) fn takes(&self, amount: i64) -> bool {
        self.bound.is_none() && (self.amount + amount).abs() <= LARGEST
    }

    pub(super) fn join(&mut self, amount: i64, due: Instant, say: oneshot::Sender<Result<Answer, Error>>) {
        self.amount += amount;
        self.adds += 1;
        self.tally.undelivered.send_modify(|adds| *adds += 1);
        self.callers.push(Caller { up_to: self.amount, due, say });
    }

    /// When the first of them has to be told something.
    pub(super) fn due(&self) -> Option<Instant> {
        self.callers.first().map(|caller| caller.due)
    }

    /// All of them are counted, or none is for its bound. Each is told the total after its own.
    pub(super) fn deliver(mut self, verdict: Verdict, total: i64) {
        let before = total - self.amount;
        for caller in self.callers.drain(..) {
            let _ = caller.say.send(Ok(match verdict {
                Verdict::Above => Answer::Above { total },
                _ => Answer::Counted { total: before + caller.up_to },
            }));
        }
        self.end();
    }

    /// Surely none of them is counted, or will be.
    pub(super) fn refuse(mut self, error: &Error) {
        self.tally.refused(self.adds);
        self.tell(error);
        self.end();
    }

    /// Nobody can tell any more, and sending it again could count it twice.
    pub(super) fn lose(mut self, after: Duration) {
        let message = format!("no answer for {after:?}; it may have been counted, or not, and is not sent again");
        self.tally.unknown(self.adds);
        self.tell(&Error::new(ErrorKind::Unknown, "redis", message));
        self.end();
    }

    /// Lets go of those who have waited long enough. `false`: then there is nothing left to do.
    pub(super) fn expire(&mut self, now: Instant, may_have_run: bool) -> bool {
        let late = self.callers.iter().take_while(|caller| caller.due <= now).count();
        if late > 0 && self.bound.is_some() {
            let (kind, fate) = if may_have_run {
                self.tally.unknown(1);
                (ErrorKind::Unknown, "it may have been counted, or not")
            } else {
                self.tally.refused(1);
                (ErrorKind::NotSent, "nothing was counted; try again")
            };
            self.tell(&Error::new(kind, "redis", format!("no answer by the deadline; {fate}")));
            self.end();
            return false;
        }
        for caller in self.callers.drain(..late) {
            let _ = caller.say.send(Ok(Answer::Queued));
        }
        true
    }

    fn tell(&mut self, error: &Error) {
        for caller in self.callers.drain(..) {
            let _ = caller.say.send(Err(error.clone()));
        }
    }

    fn end(&mut self) {
        let adds = std::mem::take(&mut self.adds);
        self.tally.undelivered.send_modify(|undelivered| *undelivered -= adds);
    }
}

/// What is dropped on its way is lost, and told as such.
impl Drop for Work {
    fn drop(&mut self) {
        if self.adds > 0 {
            self.tally.unknown(self.adds);
            self.end();
        }
    }
}
