//! Permits that are charged and not handed out yet. Whoever goes away before that gives them back.

use tokio::sync::oneshot;

use super::SharedLimit;
use super::entry::Entry;
use super::job::{Answer, Work, ended};
use super::lane::Lane;
use crate::decision::{Allowed, Charge};
use crate::sync::Arc;

/// An ask on its way. Its answer may come when nobody waits for it any more, or lie ready when its caller goes away.
pub(super) struct Asked<'a> {
    limit: &'a Arc<SharedLimit>,
    entry: &'a Arc<Entry>,
    lane: &'a Arc<Lane>,
    permits: u64,
    answer: oneshot::Receiver<Answer>,
}

impl<'a> Asked<'a> {
    pub(super) fn new(limit: &'a Arc<SharedLimit>, entry: &'a Arc<Entry>, lane: &'a Arc<Lane>, permits: u64) -> Self {
        Self { limit, entry, lane, permits, answer: limit.put(entry, lane, Work::Ask(permits)) }
    }

    /// # Cancel safety
    /// A permit that has come, or comes after this was dropped, is given back.
    pub(super) async fn answer(mut self) -> Answer {
        (&mut self.answer).await.unwrap_or_else(|_| ended())
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        // From here on the lane finds that nobody waits, and gives back what comes.
        self.answer.close();
        if let Ok(Ok(found)) = self.answer.try_recv()
            && found.verdict.granted > 0
        {
            let charge = found.charge(self.lane.slot, self.permits);
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
                give_back(self.limit, self.entry, lane, charge);
            }
        }
    }
}

fn give_back(limit: &Arc<SharedLimit>, entry: &Arc<Entry>, lane: &Arc<Lane>, charge: &Charge) {
    lane.ceiling.clear();
    limit.give_back(entry, lane, charge.refund(charge.permits));
}
