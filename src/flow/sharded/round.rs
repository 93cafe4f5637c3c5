//! A round: the calls that go to a shard together, and the one answer that all of them read.
//!
//! One allocation a round instead of one a call. Whoever answers it wakes all who wait; each finds its own verdict by
//! its place. Whoever goes away before that says so, and what was granted to it comes back to the lane. So does what is granted
//! to a call whose deadline has passed: the limiter lets it go, as if it had gone by itself.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

use super::job::{Miss, Outcome, Work};
use super::lane::Lane;
use super::seat::Seat;
use crate::clock::Micros;
use crate::decision::StoreFacts;
use crate::error::{Error, ErrorKind};
use crate::kernel::{Ask, Header, Refund, UNSPENT, Verdict};
use crate::limit::Share;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, Mutex, OnceLock, lock};
use crate::wire::{GrantId, Verdicts};

pub(super) struct Round {
    /// Where it goes, or went.
    pub lane: Arc<Lane>,
    /// It is on its way, and may run.
    pub sent: AtomicBool,
    pub(super) seats: Mutex<Seats>,
    answer: OnceLock<Answered>,
}

/// One call's seat, as the round has it.
pub(super) struct Taken {
    work: Work,
    pub waker: Option<Waker>,
    /// Its deadline, in microseconds after the round's first seat was taken; [`NEVER`] if it has none.
    due: u32,
    pub caller: Caller,
}

/// A deadline that is more than an hour away, or none.
const NEVER: u32 = u32::MAX;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Caller {
    Waits,
    /// Went away.
    Gone,
    /// Was let go: its deadline has passed, when the round was out or not.
    Late {
        sent: bool,
    },
    /// Was let go and admitted all the same: what it is granted, it keeps.
    Admitted,
}

pub(super) struct Seats {
    pub taken: Vec<Taken>,
    /// When the first one was.
    since: Micros,
    /// The first deadline of those who wait.
    first_due: Micros,
}

impl Default for Seats {
    fn default() -> Self {
        Self { taken: Vec::new(), since: 0, first_due: Micros::MAX }
    }
}

impl Seats {
    fn due(&self, seat: &Taken) -> Micros {
        if seat.due == NEVER { Micros::MAX } else { self.since + Micros::from(seat.due) }
    }
}

/// Where a call finds its verdict.
#[derive(Clone, Copy)]
enum Place {
    /// In this one of the asks, or the [`LAST`], behind so many others.
    Ask { ask: u32, ahead: u64, count: u64 },
    /// It asked for nothing: the header says it all.
    Header,
    /// It gives back. What was surely not sent is kept for the next round.
    Refund,
    /// Its deadline passed before the round was sent, or before the answer came; then what it was granted went back.
    Late,
}

/// Leases are one ask behind all others: they are for calls that are yet to come.
const LAST: u32 = u32::MAX;

struct Answered {
    places: Vec<Place>,
    asks: Vec<Ask>,
    result: Result<Decided, Miss>,
}

/// What a run decided.
pub(super) struct Decided {
    pub header: Header,
    /// What the shard's numbers are to be read by.
    pub share: Share,
    pub id: GrantId,
    /// When the run was sent, by this process's clock.
    pub sent: Micros,
    /// What is left on all shards after it.
    pub facts: StoreFacts,
    pub verdicts: Verdicts,
}

/// What a round comes to when it is sent.
#[derive(Default)]
pub(super) struct Sealed {
    places: Vec<Place>,
    pub asks: Vec<Ask>,
    /// Permits that leases ask for together, and for how long a shard keeps room for them.
    leased: u64,
    pub held_for: Micros,
    pub refunds: Vec<Refund>,
    pub debt: u64,
    pub reset: bool,
    pub make: bool,
    /// Whether there is anything to send.
    pub wanted: bool,
    /// Permits that its calls ask for, without leases; also those that are not sent.
    pub asked: u64,
}

impl Round {
    pub(super) fn new(lane: &Arc<Lane>) -> Arc<Self> {
        let (sent, seats, answer) = (AtomicBool::new(false), Mutex::default(), OnceLock::new());
        lane.counts.crowd.begin();
        Arc::new(Self { lane: Arc::clone(lane), sent, seats, answer })
    }

    /// A seat in a round that is over: for a call that can't be taken.
    pub(super) fn refused(lane: &Arc<Lane>, miss: Miss) -> Seat {
        let answered = Answered { places: vec![Place::Header], asks: Vec::new(), result: Err(miss) };
        let (lane, sent, answer) = (Arc::clone(lane), AtomicBool::new(false), OnceLock::from(answered));
        lane.counts.crowd.begin();
        Seat { round: Some(Arc::new(Self { lane, sent, seats: Mutex::default(), answer })), index: 0 }
    }

    /// Takes a seat, to be answered before `due`. Says how many are taken now.
    pub(super) fn join(self: &Arc<Self>, work: Work, now: Micros, due: Micros, waker: Option<Waker>) -> (Seat, usize) {
        let mut seats = lock(&self.seats);
        let index = seats.taken.len();
        if index == 0 {
            seats.since = now;
        }
        let after = u32::try_from(due.saturating_sub(seats.since)).unwrap_or(NEVER);
        seats.taken.push(Taken { work, waker, due: after, caller: Caller::Waits });
        seats.first_due = seats.first_due.min(due);
        (Seat { round: Some(Arc::clone(self)), index: index as u32 }, index + 1)
    }

    /// What is to be sent: nothing for calls that nobody waits for, or whose deadline has passed, unless they were admitted for its
    /// sake. Nobody may join after this.
    pub(super) fn seal(&self, now: Micros) -> Sealed {
        let mut sealed = Sealed::default();
        let seats = lock(&self.seats);
        sealed.places.reserve_exact(seats.taken.len());
        for seat in &seats.taken {
            sealed.asked += if let Work::Ask(permits) = seat.work { permits } else { 0 };
            let is_late =
                matches!(seat.caller, Caller::Late { .. }) || seats.due(seat) <= now && seat.caller != Caller::Admitted;
            let is_off = is_late || seat.caller == Caller::Gone && seat.work.dies_with_its_caller();
            let place = if is_off { Place::Late } else { sealed.add(&seat.work) };
            sealed.places.push(place);
        }
        if sealed.leased > 0 {
            sealed.asks.push(Ask { permits: 1, count: sealed.leased });
        }
        sealed
    }

    /// The first deadline of those who wait.
    pub(super) fn first_due(&self) -> Micros {
        lock(&self.seats).first_due
    }

    /// Somebody who asked has not come to his deadline yet.
    pub(super) fn is_waited_for(&self, now: Micros) -> bool {
        let seats = lock(&self.seats);
        let waits = |seat: &Taken| seat.caller == Caller::Waits && matches!(seat.work, Work::Ask(_));
        seats.taken.iter().any(|seat| waits(seat) && seats.due(seat) > now)
    }

    /// Permits that its calls give back, as long as it has no answer.
    pub(super) fn returning(&self) -> u64 {
        let back = |seat: &Taken| if let Work::Refund(refund) = &seat.work { refund.permits } else { 0 };
        lock(&self.seats).taken.iter().map(back).sum()
    }

    /// When its first seat was taken.
    pub(super) fn since(&self) -> Micros {
        lock(&self.seats).since
    }

    /// Lets those go whose deadline has passed. What wakes them is to be called when no lock is held.
    pub(super) fn expire(&self, now: Micros, late: &mut Late) {
        let seats = &mut *lock(&self.seats);
        if now < seats.first_due {
            return;
        }
        seats.first_due = Micros::MAX;
        for seat in &mut seats.taken {
            if seat.caller != Caller::Waits || seat.due == NEVER {
                continue;
            }
            let due = seats.since + Micros::from(seat.due);
            if due <= now {
                seat.caller = Caller::Late { sent: self.sent.load(Ordering::Relaxed) };
                late.calls += 1;
                late.wakers.extend(seat.waker.take());
            } else {
                seats.first_due = seats.first_due.min(due);
            }
        }
    }

    /// Answers everybody. What comes back are permits that nobody waits for.
    pub(super) fn answer(self: &Arc<Self>, sealed: Sealed, result: Result<Decided, Miss>) -> Vec<Refund> {
        let mut answered = Answered { places: sealed.places, asks: sealed.asks, result };
        let mut surplus = Vec::new();
        let seats = {
            let mut seats = lock(&self.seats);
            for (index, seat) in seats.taken.iter().enumerate() {
                if matches!(seat.caller, Caller::Waits | Caller::Admitted) {
                    continue;
                }
                if let (Some(ask), Ok(verdict)) = (seat.work.ask(), answered.verdict(&self.lane, index))
                    && verdict.granted > 0
                {
                    surplus.push((ask.permits * verdict.granted, verdict, seat.work.is_held()));
                }
                // It may not have been polled since, and must not find what went back.
                if let (Caller::Late { .. }, true, Some(place)) =
                    (seat.caller, answered.result.is_ok(), answered.places.get_mut(index))
                {
                    *place = Place::Late;
                }
            }
            // A round whose task went away after it was answered keeps its answer.
            let _ = self.answer.set(answered);
            std::mem::take(&mut seats.taken)
        };
        wake(seats.into_iter().filter_map(|seat| seat.waker));
        let back = |(permits, verdict, is_held)| {
            let refund = Outcome { round: Arc::clone(self), verdict }.refund(permits);
            if is_held { Refund { line: UNSPENT, ..refund } } else { refund }
        };
        surplus.into_iter().map(back).collect()
    }

    /// What the shard said to all of it.
    pub(super) fn decided(&self) -> Option<&Decided> {
        self.answer.get()?.result.as_ref().ok()
    }

    pub(super) fn is_answered(&self) -> bool {
        self.answer.get().is_some()
    }

    /// What it said to one call; none as long as it has not spoken.
    pub(super) fn verdict(&self, index: usize) -> Option<Result<Verdict, Miss>> {
        self.answer.get().map(|answered| answered.verdict(&self.lane, index))
    }
}

impl Drop for Round {
    fn drop(&mut self) {
        self.lane.counts.crowd.end();
    }
}

impl Answered {
    fn verdict(&self, of: &Lane, index: usize) -> Result<Verdict, Miss> {
        let Self { places, asks, result } = self;
        let place = places.get(index).copied().unwrap_or(Place::Header);
        match (place, result) {
            (Place::Ask { ask, ahead, count }, Ok(decided)) => {
                let ask = if ask == LAST { asks.len() - 1 } else { ask as usize };
                let (permits, all) = (asks[ask].permits, decided.verdicts[ask]);
                let granted = all.granted.saturating_sub(ahead).min(count);
                // Only a queue has one.
                let ahead = if decided.share.is_paced() { ahead as i64 * permits as i64 } else { 0 };
                let line = all.line + ahead * decided.share.cost();
                Ok(Verdict { granted, lack: all.lack, line })
            }
            (Place::Late, _) => Err(late(of, false)),
            (Place::Refund, Err(Miss::Failed(error))) if error.kind() != ErrorKind::Unknown => Err(Miss::Stale),
            (_, Ok(_)) => Ok(Verdict::default()),
            (_, Err(miss)) => Err(miss.clone()),
        }
    }
}

/// Calls that were let go.
#[derive(Default)]
pub(super) struct Late {
    pub calls: u64,
    wakers: Vec<Waker>,
}

impl Late {
    /// When no lock is held.
    pub(super) fn wake(self) {
        wake(self.wakers);
    }
}

fn wake(wakers: impl IntoIterator<Item = Waker>) {
    for waker in wakers {
        // One that panics is its owner's affair; the others still have to be woken.
        let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
    }
}

/// What a call learns whose deadline has passed.
pub(super) fn late(lane: &Lane, sent: bool) -> Miss {
    let slot = lane.slot.number();
    let why = lane.counts.health.why().map(|why| format!(" (the last time: {why})")).unwrap_or_default();
    if sent {
        let message = format!(
            "the shard in slot {slot} did not answer by the deadline{why}; the permits may be charged, and are given back if the \
             answer still comes; do not ask again for this call"
        );
        return Miss::Failed(Error::new(ErrorKind::Unknown, "deadline", message));
    }
    let message =
        format!("the shard in slot {slot} did not get to it by the deadline{why}; nothing was charged; try again");
    Miss::not_sent("deadline", message)
}

impl Sealed {
    /// Permits that leases ask for.
    pub(super) fn leased(&self) -> u64 {
        self.leased
    }

    /// How many calls had a seat.
    pub(super) fn calls(&self) -> usize {
        self.places.len()
    }

    fn add(&mut self, work: &Work) -> Place {
        self.wanted = true;
        match work {
            Work::Ask(_) | Work::Look => {}
            Work::Lease { permits, held_for } => {
                let ahead = self.leased;
                self.leased += permits;
                self.held_for = self.held_for.max(Micros::from(*held_for));
                return Place::Ask { ask: LAST, ahead, count: *permits };
            }
            Work::Make => self.make = true,
            Work::Reset => self.reset = true,
            Work::Debt(permits) => self.debt = self.debt.saturating_add(*permits),
            Work::Refund(refund) => self.refunds.push(**refund),
        }
        let Some(Ask { permits, count }) = work.ask() else {
            return if matches!(work, Work::Refund(_)) { Place::Refund } else { Place::Header };
        };
        let mut ahead = 0;
        match self.asks.last_mut() {
            Some(ask) if ask.permits == permits => {
                ahead = ask.count;
                ask.count += count;
            }
            _ => self.asks.push(Ask { permits, count }),
        }
        Place::Ask { ask: self.asks.len() as u32 - 1, ahead, count }
    }
}
