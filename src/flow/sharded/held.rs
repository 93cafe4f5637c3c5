//! Permits that are charged and not handed out yet. Whoever goes away before that gives them back.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::SharedLimit;
use super::entry::Entry;
use super::job::{Answer, Outcome, Work};
use super::lane::{Drive, Lane};
use super::round::Seat;
use crate::clock::Micros;
use crate::decision::{Allowed, Charge};
use crate::sync::Arc;

/// An ask on its way. Its answer may come when nobody waits for it any more, or lie ready when its caller goes away.
///
/// A call that is alone with an idle lane sends by itself, whenever it is polled. As soon as a second one waits for the
/// lane, and when this one has its answer or goes away, what is left of the sending becomes a task.
pub(super) struct Asked<'a> {
    limit: &'a Arc<SharedLimit>,
    entry: &'a Arc<Entry>,
    lane: &'a Arc<Lane>,
    work: Work,
    since: Micros,
    /// From the first poll on.
    seat: Option<Seat>,
    /// What sends, until it was first polled.
    drive: Option<Drive>,
    /// It may be left to this call.
    alone: bool,
    /// The caller has its answer.
    answered: bool,
}

impl<'a> Asked<'a> {
    pub(super) fn new(
        limit: &'a Arc<SharedLimit>,
        entry: &'a Arc<Entry>,
        lane: &'a Arc<Lane>,
        work: Work,
        since: Micros,
    ) -> Self {
        Self { limit, entry, lane, work, since, seat: None, drive: None, alone: false, answered: false }
    }

    /// # Cancel safety
    /// A permit that has come, or comes after this was dropped, is given back.
    pub(super) async fn answer(mut self) -> Answer {
        let answer = poll_fn(|context| self.poll(context)).await;
        self.answered = true;
        answer
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Answer> {
        if self.seat.is_none() {
            let waker = Some(context.waker());
            let (seat, drive) = self.limit.put_alone(self.entry, self.lane, self.work, self.since, waker);
            (self.seat, self.alone, self.drive) = (Some(seat), drive.is_some(), drive);
        }
        if self.alone {
            self.send(context);
            // The sending wakes this call: its seat need not.
            if self.alone && self.seat.as_ref().is_none_or(|seat| !seat.is_answered()) {
                return Poll::Pending;
            }
        }
        match &mut self.seat {
            Some(seat) => Pin::new(seat).poll(context),
            None => Poll::Pending,
        }
    }

    fn send(&mut self, context: &mut Context<'_>) {
        let drive = self.take_over();
        self.alone = false;
        let (Some(mut drive), Some(seat)) = (drive, &self.seat) else { return };
        if drive.as_mut().poll(context).is_pending() {
            match self.lane.leave_to(seat, drive, context.waker()) {
                Some(drive) => self.limit.spawn(drive),
                None => self.alone = true,
            }
        }
    }

    /// What was left to this call, unless somebody else has it by now.
    fn take_over(&mut self) -> Option<Drive> {
        let seat = self.seat.as_ref()?;
        self.drive.take().or_else(|| self.lane.take_over(seat))
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if self.alone
            && let Some(drive) = self.take_over()
        {
            self.limit.spawn(drive);
        }
        let (false, Some(seat), Some(ask)) = (self.answered, &mut self.seat, self.work.ask()) else { return };
        if let Some(Ok(found @ Outcome { verdict, .. })) = seat.leave()
            && verdict.granted > 0
        {
            let charge = found.charge(self.lane.slot, ask.permits * verdict.granted);
            give_back(self.limit, self.entry, self.lane, &charge);
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
        let Some(allowed) = &self.allowed else { return };
        let view = self.entry.view();
        for charge in allowed.receipt().charges() {
            if let Some(lane) = view.lanes.iter().find(|lane| lane.slot == charge.slot) {
                give_back(self.limit, self.entry, lane, &charge);
            }
        }
    }
}

fn give_back(limit: &Arc<SharedLimit>, entry: &Arc<Entry>, lane: &Arc<Lane>, charge: &Charge) {
    entry.open(lane);
    limit.give_back(entry, lane, charge.refund(charge.permits));
}
