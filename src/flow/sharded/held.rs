//! Permits that are charged and not handed out yet. Whoever goes away before that gives them back.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::entry::Entry;
use super::job::{Answer, Work};
use super::lane::Lane;
use super::queue::Drive;
use super::seat::Seat;
use super::settle::lane_of;
use super::{Put, SharedLimit};
use crate::clock::Micros;
use crate::decision::{Allowed, Charge, Receipt};
use crate::key::Slot;
use crate::sync::Arc;

/// An ask on its way. Its answer may come when nobody waits for it any more, or lie ready when its caller goes away.
///
/// A call that is alone with an idle lane sends by itself, whenever it is polled. As soon as a second one waits for the
/// lane, and when this one has its answer or goes away, what is left of the sending becomes a task.
///
/// # Cancel safety
/// A permit that has come, or comes after this was dropped, is given back.
#[must_use = "dropping it gives the call up"]
pub(super) struct Asked<'a> {
    limit: &'a Arc<SharedLimit>,
    entry: &'a Arc<Entry>,
    /// Permits that were asked for, all or none; of a lease, one by one.
    permits: u64,
    pub slot: Slot,
    seat: Seat,
    /// The sending was left to this call.
    alone: bool,
    /// Its waker is where it has to be: the very poll that comes next has nothing to do.
    fresh: bool,
    /// The lane has as many as go together with it.
    pub fills: bool,
}

impl<'a> Asked<'a> {
    /// Takes a seat, to be answered before `due`, for a caller that polls this at once, and that `waker` wakes.
    pub(super) fn new(
        limit: &'a Arc<SharedLimit>,
        entry: &'a Arc<Entry>,
        lane: &Arc<Lane>,
        ask: Work,
        (now, due): (Micros, Micros),
        waker: Waker,
    ) -> Self {
        let permits = ask.ask().map_or(0, |ask| ask.permits);
        let mut waker = Some(waker);
        let (seat, put) = limit.put_alone(entry, lane, ask, (now, due), &mut waker);
        let (fresh, fills) = (waker.is_none(), matches!(put, Put::Full));
        let mut asked = Self { limit, entry, permits, slot: lane.slot, seat, alone: false, fresh, fills };
        if let (Put::Alone(drive), Some(waker)) = (put, waker) {
            asked.send(drive, &waker);
            asked.fresh = asked.alone && !asked.seat.is_over();
        }
        asked
    }

    /// Sends as far as it goes, and leaves the rest to this call, or to a task if somebody else waits by now.
    #[inline(never)]
    fn send(&mut self, mut drive: Drive, waker: &Waker) {
        if drive.as_mut().poll(&mut Context::from_waker(waker)).is_pending() {
            match self.seat.leave_to(drive, waker) {
                Some(drive) => self.limit.spawn(drive),
                None => self.alone = true,
            }
        }
    }

    /// See [`Seat::admit`].
    pub(super) fn admit(&mut self) -> bool {
        self.leave_sending();
        self.seat.admit()
    }

    /// Whatever is still to be sent is no affair of this call any more.
    fn leave_sending(&mut self) {
        if let Some(drive) = self.take_over() {
            self.limit.spawn(drive);
        }
    }

    /// What was left to this call, unless somebody else has it by now.
    fn take_over(&mut self) -> Option<Drive> {
        if std::mem::take(&mut self.alone) { self.seat.take_over() } else { None }
    }
}

impl Future for Asked<'_> {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        if std::mem::take(&mut self.fresh) {
            return Poll::Pending;
        }
        if let Some(drive) = self.take_over() {
            self.send(drive, context.waker());
            // The sending wakes this call: its seat need not.
            if self.alone && !self.seat.is_over() {
                return Poll::Pending;
            }
            self.leave_sending();
        }
        Pin::new(&mut self.seat).poll(context)
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.leave_sending();
        if let Some(Ok(found)) = self.seat.leave()
            && found.verdict.granted > 0
        {
            let charge = found.charge(self.permits * found.verdict.granted);
            give_back(self.limit, self.entry, found.lane(), &charge);
        }
    }
}

/// What was gathered so far.
pub(super) struct Parts<'a> {
    pub limit: &'a Arc<SharedLimit>,
    pub entry: &'a Arc<Entry>,
    taken: Vec<(Arc<Lane>, Charge)>,
}

impl<'a> Parts<'a> {
    pub(super) fn new(limit: &'a Arc<SharedLimit>, entry: &'a Arc<Entry>) -> Self {
        Self { limit, entry, taken: Vec::new() }
    }

    pub(super) fn add(&mut self, lane: &Arc<Lane>, charge: Charge) {
        self.taken.push((Arc::clone(lane), charge));
    }

    pub(super) fn keep(mut self) -> Vec<Charge> {
        std::mem::take(&mut self.taken).into_iter().map(|(_, charge)| charge).collect()
    }
}

impl Drop for Parts<'_> {
    fn drop(&mut self) {
        for (lane, charge) in self.taken.drain(..) {
            give_back(self.limit, self.entry, &lane, &charge);
        }
    }
}

/// A place in a pacing queue whose turn is waited for.
pub(super) struct Turn<'a> {
    limit: &'a Arc<SharedLimit>,
    entry: &'a Arc<Entry>,
    allowed: Option<Allowed>,
}

impl<'a> Turn<'a> {
    pub(super) fn new(limit: &'a Arc<SharedLimit>, entry: &'a Arc<Entry>, allowed: Allowed) -> Self {
        Self { limit, entry, allowed: Some(allowed) }
    }

    /// It has come.
    pub(super) fn take(mut self) -> Option<Allowed> {
        self.allowed.take()
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(allowed) = self.allowed.take() {
            self.limit.give_back_all(self.entry, allowed.into_receipt());
        }
    }
}

impl SharedLimit {
    /// Gives back what a call was charged that nobody was told of, and waits for nothing.
    pub(crate) fn give_back_all(self: &Arc<Self>, entry: &Arc<Entry>, receipt: Receipt) {
        if receipt.charges().next().is_none() {
            return entry.forgive(receipt.permits());
        }
        let view = entry.view();
        if receipt.charges().any(|charge| lane_of(&view, &charge).is_none()) {
            // Of a key that this process has forgotten, or whose plan is another by now: home is asked for it first.
            let (limit, entry) = (Arc::clone(self), Arc::clone(entry));
            let _ = self.engine.spawn(async move {
                let _ = limit.settle(&entry, &receipt, 0).await;
                limit.rest(entry);
            });
            return;
        }
        for charge in receipt.charges() {
            if let Some(lane) = lane_of(&view, &charge) {
                give_back(self, entry, lane, &charge);
            }
        }
    }
}

fn give_back(limit: &Arc<SharedLimit>, entry: &Arc<Entry>, lane: &Arc<Lane>, charge: &Charge) {
    entry.open(lane);
    limit.give_back(entry, lane, charge.refund(charge.permits));
}
