//! A row of a round: the calls that came to it by one thread, each with a seat.
//!
//! Where calls come in crowds each thread has a row of its own, so that threads do not fight over the lines of a cache; else all calls
//! of a round are in one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

use super::job::{Miss, Outcome, Work};
use super::lane::Lane;
use super::round::Decided;
use super::seat::Seat;
use crate::clock::Micros;
use crate::error::{Error, ErrorKind};
use crate::kernel::{Ask, Refund, UNSPENT, Verdict};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, Mutex, OnceLock, lock};

/// What all calls of a round have in common: where it goes, or went, and what it was told.
pub(super) struct Trip {
    pub lane: Arc<Lane>,
    /// It is on its way, and may run.
    pub sent: AtomicBool,
    told: OnceLock<Told>,
}

struct Told {
    asks: Vec<Ask>,
    result: Result<Decided, Miss>,
}

/// Where a call finds its verdict.
#[derive(Clone, Copy)]
pub(super) enum Place {
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
pub(super) const LAST: u32 = u32::MAX;

impl Trip {
    pub(super) fn new(lane: &Arc<Lane>) -> Arc<Self> {
        lane.counts.crowd.begin();
        Arc::new(Self { lane: Arc::clone(lane), sent: AtomicBool::new(false), told: OnceLock::new() })
    }

    /// What the shard said to all of it.
    pub(super) fn decided(&self) -> Option<&Decided> {
        self.told.get()?.result.as_ref().ok()
    }

    /// A round whose task went away after it was answered keeps its answer.
    pub(super) fn tell(&self, asks: Vec<Ask>, result: Result<Decided, Miss>) {
        let _ = self.told.set(Told { asks, result });
    }

    /// What it was told, at this place of it.
    fn verdict(&self, place: Option<Place>) -> Option<Result<Verdict, Miss>> {
        let Told { asks, result } = self.told.get()?;
        let Some(place) = place else {
            // Whoever had its answer went away before this call was given its place of it.
            return Some(Err(result.as_ref().err().cloned().unwrap_or(Miss::Ended { sent: true })));
        };
        Some(match (place, result) {
            (Place::Ask { ask, ahead, count }, Ok(decided)) => {
                let ask = if ask == LAST { asks.len() - 1 } else { ask as usize };
                let (permits, all) = (asks[ask].permits, decided.verdicts[ask]);
                let granted = all.granted.saturating_sub(ahead).min(count);
                // Only a queue has one.
                let ahead = if decided.share.is_paced() { ahead as i64 * permits as i64 } else { 0 };
                let line = all.line + ahead * decided.share.cost();
                Ok(Verdict { granted, lack: all.lack, line })
            }
            (Place::Late, _) => Err(late(&self.lane, false)),
            (Place::Refund, Err(Miss::Failed(error))) if error.kind() != ErrorKind::Unknown => Err(Miss::Stale),
            (_, Ok(_)) => Ok(Verdict::default()),
            (_, Err(miss)) => Err(miss.clone()),
        })
    }
}

impl Drop for Trip {
    fn drop(&mut self) {
        self.lane.counts.crowd.end();
    }
}

pub(super) struct Row {
    pub trip: Arc<Trip>,
    pub(super) seats: Mutex<Seats>,
    /// Of each seat, once the round is answered.
    places: OnceLock<Vec<Place>>,
}

pub(super) struct Seats {
    pub taken: Vec<Taken>,
    /// When the first one was.
    pub since: Micros,
    /// The first deadline of those who wait.
    pub first_due: Micros,
    /// What may still join without the lane being told of it,
    pub room: Room,
    /// and what has.
    pub untold: Joined,
}

/// One call's seat, as the round has it.
pub(super) struct Taken {
    pub work: Work,
    pub waker: Option<Waker>,
    /// When it was taken, and its deadline, in microseconds after the row's first seat was; [`NEVER`] if it has none.
    at: u32,
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

/// What may join.
#[derive(Clone, Copy, Default)]
pub(super) struct Room {
    pub calls: usize,
    /// That they ask for, together.
    pub permits: u64,
}

/// What has joined.
#[derive(Clone, Copy, Default)]
pub(super) struct Joined {
    pub calls: usize,
    pub permits: u64,
    /// The largest ask among them.
    pub largest: u64,
}

impl Joined {
    pub(super) fn add(&mut self, other: Self) {
        self.calls += other.calls;
        self.permits += other.permits;
        self.largest = self.largest.max(other.largest);
    }

    /// A call that asks for so many.
    pub(super) fn one(permits: u64) -> Self {
        Self { calls: 1, permits, largest: permits }
    }
}

impl Default for Seats {
    fn default() -> Self {
        Self { taken: Vec::new(), since: 0, first_due: Micros::MAX, room: Room::default(), untold: Joined::default() }
    }
}

impl Seats {
    fn take(&mut self, work: Work, (now, due): (Micros, Micros), waker: Option<Waker>) -> u32 {
        let index = self.taken.len();
        if index == 0 {
            self.since = now;
        }
        let after = |moment: Micros| u32::try_from(moment.saturating_sub(self.since)).unwrap_or(NEVER);
        self.taken.push(Taken { work, waker, at: after(now), due: after(due), caller: Caller::Waits });
        self.first_due = self.first_due.min(due);
        index as u32
    }

    /// When it was taken.
    pub(super) fn at(&self, seat: &Taken) -> Micros {
        self.since + Micros::from(seat.at)
    }

    pub(super) fn due(&self, seat: &Taken) -> Micros {
        if seat.due == NEVER { Micros::MAX } else { self.since + Micros::from(seat.due) }
    }
}

impl Row {
    pub(super) fn new(trip: &Arc<Trip>) -> Arc<Self> {
        Arc::new(Self { trip: Arc::clone(trip), seats: Mutex::default(), places: OnceLock::new() })
    }

    /// The one row of a round that is over: for a call that can't be taken.
    pub(super) fn refused(lane: &Arc<Lane>, miss: Miss) -> Seat {
        let trip = Trip::new(lane);
        trip.tell(Vec::new(), Err(miss));
        let places = OnceLock::from(vec![Place::Header]);
        Seat { row: Some(Arc::new(Self { trip, seats: Mutex::default(), places })), index: 0 }
    }

    /// Takes a seat, to be answered before `due`.
    pub(super) fn join(self: &Arc<Self>, work: Work, times: (Micros, Micros), waker: Option<Waker>) -> Seat {
        let index = lock(&self.seats).take(work, times, waker);
        Seat { row: Some(Arc::clone(self)), index }
    }

    /// The same for a call that asks for permits, where there is room that the lane was told of. One whose deadline would be the first
    /// is for the lane to know of.
    #[inline]
    pub(super) fn join_untold(
        self: &Arc<Self>,
        permits: u64,
        (now, due): (Micros, Micros),
        waker: &mut Option<Waker>,
    ) -> Option<Seat> {
        let seats = &mut *lock(&self.seats);
        if seats.room.calls == 0 || seats.room.permits < permits || due < seats.first_due {
            return None;
        }
        seats.room.calls -= 1;
        seats.room.permits -= permits;
        seats.untold.add(Joined::one(permits));
        let index = seats.take(Work::Ask(permits), (now, due), waker.take());
        Some(Seat { row: Some(Arc::clone(self)), index })
    }

    /// What has joined without the lane being told; no more may. Says also how many more could have.
    pub(super) fn close(&self) -> (Joined, usize) {
        let seats = &mut *lock(&self.seats);
        let room = std::mem::take(&mut seats.room);
        (std::mem::take(&mut seats.untold), room.calls)
    }

    /// Lets so many join untold, unless some still may. Says what has joined so before, and how many calls more may now.
    pub(super) fn open(&self, room: Room) -> (Joined, usize) {
        let seats = &mut *lock(&self.seats);
        let more = if seats.room.calls == 0 { room.calls } else { 0 };
        seats.room = Room { calls: seats.room.calls + more, permits: room.permits };
        (std::mem::take(&mut seats.untold), more)
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
                seat.caller = Caller::Late { sent: self.trip.sent.load(Ordering::Relaxed) };
                late.calls += 1;
                late.wakers.extend(seat.waker.take());
            } else {
                seats.first_due = seats.first_due.min(due);
            }
        }
    }

    /// Answers everybody, when the trip was told. What comes back are permits that nobody waits for.
    pub(super) fn answer(self: &Arc<Self>, mut places: Vec<Place>, surplus: &mut Vec<Refund>) {
        let mut back = Vec::new();
        let taken = {
            let mut seats = lock(&self.seats);
            for (index, seat) in seats.taken.iter().enumerate() {
                if matches!(seat.caller, Caller::Waits | Caller::Admitted) {
                    continue;
                }
                if let (Some(ask), Some(Ok(verdict))) = (seat.work.ask(), self.trip.verdict(places.get(index).copied()))
                    && verdict.granted > 0
                {
                    back.push((ask.permits * verdict.granted, verdict, seat.work.is_held()));
                }
                // It may not have been polled since, and must not find what went back.
                if let (Caller::Late { .. }, true, Some(place)) =
                    (seat.caller, self.trip.decided().is_some(), places.get_mut(index))
                {
                    *place = Place::Late;
                }
            }
            let _ = self.places.set(places);
            std::mem::take(&mut seats.taken)
        };
        wake(taken.into_iter().filter_map(|seat| seat.waker));
        surplus.extend(back.into_iter().map(|(permits, verdict, is_held)| {
            let refund = Outcome { row: Arc::clone(self), verdict }.refund(permits);
            if is_held { Refund { line: UNSPENT, ..refund } } else { refund }
        }));
    }

    pub(super) fn is_answered(&self) -> bool {
        self.places.get().is_some()
    }

    /// What was said to one call; none as long as nothing was.
    pub(super) fn verdict(&self, index: u32) -> Option<Result<Verdict, Miss>> {
        let places = self.places.get()?;
        self.trip.verdict(places.get(index as usize).copied())
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
