//! Adds that go as one, and those who wait for them.

use std::collections::VecDeque;
use std::fmt;
use std::time::Instant;

use tokio::sync::{oneshot, watch};

use super::Dropped;
use super::calls::{Missed, Seat};
use super::kernel::{LARGEST, Verdict};
use crate::error::{Error, ErrorKind};
use crate::observe;
use crate::sync::Arc;

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
    missed: Arc<Missed>,
    /// All of it as of one moment: who sees that nothing is undelivered sees what was dropped, too.
    standing: watch::Sender<Standing>,
}

#[derive(Clone, Copy, Default)]
struct Standing {
    undelivered: u64,
    dropped: Dropped,
}

/// How adds end.
#[derive(Clone, Copy)]
enum Fate {
    /// Delivered, and answered.
    Answered,
    /// Surely not counted.
    Refused,
    /// Given up, and perhaps counted.
    Unknown,
}

impl Tally {
    pub(super) fn new(name: &str, missed: &Arc<Missed>) -> Self {
        Self { name: name.into(), missed: Arc::clone(missed), standing: watch::Sender::default() }
    }

    /// Too many wait already for one more to be told later. It is summed up with others, which takes no room.
    pub(super) fn queued_at_once(&self, say: Say) -> Option<Caller> {
        self.missed.crowded();
        let _ = say.send(Ok(Answer::Queued));
        None
    }

    /// One is not taken, because so much waits already.
    pub(super) fn crowded(&self, what: fmt::Arguments<'_>) -> Error {
        self.missed.crowded();
        self.refused();
        let message =
            format!("{what} wait already, and nothing was counted; try again later, from fewer callers at once");
        Error::new(ErrorKind::NotSent, "key", message)
    }

    /// One was never taken.
    pub(super) fn refused(&self) {
        self.standing.send_modify(|standing| standing.dropped.refused += 1);
        observe::adds_dropped(&self.name, 1, true);
    }

    fn begun(&self) {
        self.standing.send_modify(|standing| standing.undelivered += 1);
    }

    fn ended(&self, adds: u64, fate: Fate) {
        self.standing.send_modify(|standing| {
            standing.undelivered -= adds;
            match fate {
                Fate::Answered => {}
                Fate::Refused => standing.dropped.refused += adds,
                Fate::Unknown => standing.dropped.unknown += adds,
            }
        });
        match fate {
            Fate::Answered => {}
            Fate::Refused => observe::adds_dropped(&self.name, adds, true),
            Fate::Unknown => observe::adds_dropped(&self.name, adds, false),
        }
    }

    pub(super) fn undelivered(&self) -> u64 {
        self.standing.borrow().undelivered
    }

    pub(super) fn dropped(&self) -> Dropped {
        self.standing.borrow().dropped
    }

    /// Until nothing is undelivered.
    ///
    /// # Cancel safety
    /// It changes nothing.
    pub(super) fn empty(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut standing = self.standing.subscribe();
        async move {
            let _ = standing.wait_for(|standing| standing.undelivered == 0).await;
        }
    }
}

/// Adds that go as one: any number without a bound, or one that has a bound.
pub(super) struct Work {
    pub bound: Option<i64>,
    amount: i64,
    adds: u64,
    /// In the order of their deadlines.
    callers: VecDeque<Caller>,
    tally: Arc<Tally>,
}

/// How a caller is told.
pub(super) type Say = oneshot::Sender<Result<Answer, Error>>;

/// Who waits for an answer.
pub(super) struct Caller {
    /// The sum up to and with his own.
    up_to: i64,
    due: Instant,
    say: Say,
    _seat: Seat,
}

impl Caller {
    pub(super) fn new(due: Instant, say: Say, seat: Seat) -> Self {
        Self { up_to: 0, due, say, _seat: seat }
    }
}

impl Work {
    pub(super) fn new(tally: &Arc<Tally>, amount: i64, bound: Option<i64>, caller: Option<Caller>) -> Self {
        let mut work = Self { bound, amount: 0, adds: 0, callers: VecDeque::new(), tally: Arc::clone(tally) };
        work.join(amount, caller);
        work
    }

    pub(super) fn amount(&self) -> i64 {
        self.amount
    }

    /// Whether an add without a bound can go with these.
    pub(super) fn takes(&self, amount: i64) -> bool {
        self.bound.is_none() && (self.amount + amount).abs() <= LARGEST
    }

    pub(super) fn join(&mut self, amount: i64, caller: Option<Caller>) {
        self.amount += amount;
        self.adds += 1;
        self.tally.begun();
        let Some(caller) = caller else { return };
        // Mostly the last one: few have a deadline of their own.
        let at = self.callers.iter().rposition(|other| other.due <= caller.due).map_or(0, |last| last + 1);
        self.callers.insert(at, Caller { up_to: self.amount, ..caller });
    }

    /// When the first of them has to be told something.
    pub(super) fn due(&self) -> Option<Instant> {
        self.callers.front().map(|caller| caller.due)
    }

    /// All of them are counted, or none is for its bound. Each is told the total after its own.
    pub(super) fn deliver(mut self, verdict: Verdict, total: i64) {
        self.end(Fate::Answered);
        let before = total - self.amount;
        for caller in self.callers.drain(..) {
            let _ = caller.say.send(Ok(match verdict {
                Verdict::Above => Answer::Above { total },
                _ => Answer::Counted { total: before + caller.up_to },
            }));
        }
    }

    /// Surely none of them is counted, or will be.
    pub(super) fn refuse(mut self, error: &Error) {
        self.tell(error, Fate::Refused);
    }

    /// Nobody can tell any more, and sending it again could count it twice.
    pub(super) fn lose(mut self, why: &str) {
        let message = format!("{why}; it may have been counted, or not, and is not sent again");
        self.tell(&Error::new(ErrorKind::Unknown, "redis", message), Fate::Unknown);
    }

    /// Lets go of those who have waited long enough. `false`: then there is nothing left to do.
    pub(super) fn expire(&mut self, now: Instant, may_have_run: bool) -> bool {
        let late = self.callers.iter().take_while(|caller| caller.due <= now).count();
        self.tally.missed.late(late as u64);
        if late > 0 && self.bound.is_some() {
            let (fate, kind, known) = if may_have_run {
                (Fate::Unknown, ErrorKind::Unknown, "it may have been counted, or not")
            } else {
                (Fate::Refused, ErrorKind::NotSent, "nothing was counted; try again")
            };
            self.tell(&Error::new(kind, "redis", format!("no answer by the deadline; {known}")), fate);
            return false;
        }
        for caller in self.callers.drain(..late) {
            let _ = caller.say.send(Ok(Answer::Queued));
        }
        true
    }

    fn tell(&mut self, error: &Error, fate: Fate) {
        self.end(fate);
        for caller in self.callers.drain(..) {
            let _ = caller.say.send(Err(error.clone()));
        }
    }

    /// Before anybody is told: who looks then has to see it.
    fn end(&mut self, fate: Fate) {
        self.tally.ended(std::mem::take(&mut self.adds), fate);
    }
}

/// What is dropped on its way is lost, and told as such.
impl Drop for Work {
    fn drop(&mut self) {
        if self.adds > 0 {
            self.end(Fate::Unknown);
        }
    }
}
