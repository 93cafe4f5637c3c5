//! Permits that are charged and not handed out yet. Whoever goes away before that gives them back.

use super::SharedLimit;
use super::entry::Entry;
use super::job::{Answer, Outcome, Work};
use super::lane::Lane;
use super::round::Seat;
use crate::decision::{Allowed, Charge};
use crate::sync::Arc;

/// An ask on its way. Its answer may come when nobody waits for it any more, or lie ready when its caller goes away.
pub(super) struct Asked<'a> {
    limit: &'a Arc<SharedLimit>,
    entry: &'a Arc<Entry>,
    lane: &'a Arc<Lane>,
    seat: Seat,
    /// The permits of each call, or of a lease.
    permits: u64,
    /// The caller has its answer.
    answered: bool,
}

impl<'a> Asked<'a> {
    pub(super) fn new(limit: &'a Arc<SharedLimit>, entry: &'a Arc<Entry>, lane: &'a Arc<Lane>, work: Work) -> Self {
        let permits = work.ask().map_or(0, |ask| ask.permits);
        Self { limit, entry, lane, seat: limit.put(entry, lane, work), permits, answered: false }
    }

    /// # Cancel safety
    /// A permit that has come, or comes after this was dropped, is given back.
    pub(super) async fn answer(mut self) -> Answer {
        let answer = (&mut self.seat).await;
        self.answered = true;
        answer
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        if let Some(Ok(found @ Outcome { verdict, .. })) = self.seat.leave()
            && verdict.granted > 0
        {
            let charge = found.charge(self.lane.slot, self.permits * verdict.granted);
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
    lane.ceiling.clear();
    limit.give_back(entry, lane, charge.refund(charge.permits));
}
