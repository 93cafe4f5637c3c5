//! What a call did cost in the end: refunds, and what it fell short of.

use tokio::sync::oneshot;

use super::SharedLimit;
use super::entry::Entry;
use super::escrow::ask_home;
use super::further::ATTEMPTS;
use super::job::{Miss, Work};
use super::lane::Lane;
use super::losses::Lost;
use super::view::View;
use crate::clock::Micros;
use crate::decision::{Charge, Receipt};
use crate::error::{Error, ErrorKind};
use crate::flow::call::check_receipt;
use crate::key::Slot;
use crate::sync::Arc;

impl SharedLimit {
    /// As [`settle`](Self::settle), for a caller who waits `within` so many microseconds, or within the limiter's deadline if it says
    /// none. What is not done by then goes on without him.
    ///
    /// # Cancel safety
    /// As [`settle`](Self::settle).
    pub(crate) async fn settle_within(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        receipt: Receipt,
        actual: u64,
        within: Option<Micros>,
    ) -> Result<(), Error> {
        let due = self.due(within);
        let (limit, entry) = (Arc::clone(self), Arc::clone(entry));
        let mut settling = Box::pin(async move {
            let settled = limit.settle(&entry, &receipt, actual).await;
            limit.rest(entry);
            settled
        });
        if let Some(settled) = self.before(due, settling.as_mut()).await {
            return settled;
        }
        let _ = self.engine.spawn(async move { drop(settling.await) });
        let message = "no answer by the deadline; what comes back, or is charged, is on its way: do not settle again";
        Err(Error::new(ErrorKind::Unknown, "deadline", message))
    }

    /// Corrects a charge to what the work did cost in the end; 0 gives all of it back.
    ///
    /// # Cancel safety
    /// Once polled, it is on its way whether it is dropped or not; but a key that this process has forgotten is looked up
    /// first.
    pub(super) async fn settle(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        receipt: &Receipt,
        actual: u64,
    ) -> Result<(), Error> {
        check_receipt(&self.name, entry.owner, receipt)?;
        if receipt.is_of_nothing() {
            return Ok(());
        }
        let Some(short) = actual.checked_sub(receipt.permits).filter(|short| *short > 0) else {
            return self.refund(entry, receipt, receipt.permits - actual).await;
        };
        let slot = receipt.charges().next().map_or(entry.home, |charge| charge.slot);
        let (limit, key) = (Arc::clone(self), Arc::clone(entry));
        let (done, charged) = oneshot::channel();
        // A task of its own: it may take several runs, and must not stop between them.
        self.engine.spawn(async move {
            let _ = done.send(limit.charge(&key, slot, short).await);
        })?;
        charged.await.unwrap_or_else(|_| Err(Miss::Ended { sent: true }.into_error()))
    }

    /// Gives back `permits` of a receipt, from the end of what was gathered.
    pub(super) async fn refund(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        receipt: &Receipt,
        permits: u64,
    ) -> Result<(), Error> {
        if receipt.charges().next().is_none() {
            entry.forgive(permits);
            return Ok(());
        }
        let mut left = permits;
        let mut answers = Vec::new();
        let mut view = entry.view();
        let mut is_known = receipt.charges().all(|charge| lane_of(&view, &charge).is_some());
        // A key that this process had forgotten meanwhile: home knows its plan.
        if !is_known && ask_home(self, entry).await {
            (view, is_known) = (entry.view(), true);
        }
        let mut lost = 0;
        for charge in receipt.charges().rev() {
            let back = left.min(charge.permits);
            left -= back;
            match lane_of(&view, &charge).filter(|_| back > 0) {
                Some(lane) => {
                    entry.open(lane);
                    answers.push(self.put(entry, lane, Work::Refund(Box::new(charge.refund(back)))));
                }
                // What was charged to a share that is no more is void.
                None if is_known => {}
                None => lost += back,
            }
        }
        self.lose(&entry.key, Lost::unreturned(lost));
        for answer in answers {
            match answer.await {
                Ok(_) | Err(Miss::Stale) => {}
                Err(miss) => return Err(miss.into_error()),
            }
        }
        if lost > 0 {
            let message = format!("home does not say which shard {lost} permits belong to; they do not go back");
            return Err(Error::new(ErrorKind::NotSent, "redis", message));
        }
        Ok(())
    }

    /// Charges what a receipt fell short of, first where its call was decided.
    async fn charge(self: &Arc<Self>, entry: &Arc<Entry>, slot: Slot, permits: u64) -> Result<(), Error> {
        let mut left = permits;
        for _ in 0..ATTEMPTS {
            let mut view = entry.view();
            if view.lanes.iter().all(|lane| lane.slot != slot) && ask_home(self, entry).await {
                view = entry.view();
            }
            let first = view.lanes.iter().find(|lane| lane.slot == slot).unwrap_or(view.home());
            let parts = match self.parts(entry, &view, first, left).await {
                Ok(parts) => parts,
                Err(Miss::Stale) => continue,
                Err(miss) => return Err(miss.into_error()),
            };
            let debts = parts.into_iter().filter(|(_, part)| *part > 0);
            let put = |(lane, part)| (lane, part, self.put(entry, lane, Work::Debt(part)));
            let debts: Vec<_> = debts.map(put).collect();
            for (lane, part, debt) in debts {
                match debt.await {
                    Ok(_) => left -= part,
                    Err(Miss::Stale) => {}
                    Err(miss @ Miss::Ended { .. }) => return Err(miss.into_error()),
                    Err(Miss::Failed(error)) if error.kind() == ErrorKind::Unknown => return Err(error),
                    // It surely was not: when the shard can be charged, it is.
                    Err(Miss::Failed(_)) => {
                        self.owe(lane, part);
                        left -= part;
                    }
                }
            }
            if left == 0 {
                return Ok(());
            }
        }
        Err(Miss::Stale.into_error())
    }

    /// What each shard is to be charged. A shard that owes is no help to the others, who would go on admitting: so each
    /// pays from what it has, and only what nobody has is a debt, of the first.
    async fn parts<'a>(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        view: &'a View,
        first: &'a Arc<Lane>,
        permits: u64,
    ) -> Result<Vec<(&'a Arc<Lane>, u64)>, Miss> {
        if !view.is_split() || first.ceiling.known().most(&first.share, self.clock.now()) >= permits {
            return Ok(vec![(first, permits)]);
        }
        let others = view.lanes.iter().filter(|lane| lane.slot != first.slot);
        let looks: Vec<_> =
            [first].into_iter().chain(others).map(|lane| (lane, self.put(entry, lane, Work::Look))).collect();
        let (mut parts, mut left) = (Vec::with_capacity(looks.len()), permits);
        for (lane, look) in looks {
            let part = look.await?.free().min(left);
            left -= part;
            parts.push((lane, part));
        }
        parts[0].1 += left;
        Ok(parts)
    }
}

/// The lane that a charge came by. Home is home under any plan; what a grant that is no more was charged is void.
pub(super) fn lane_of<'a>(view: &'a View, charge: &Charge) -> Option<&'a Arc<Lane>> {
    view.lanes.iter().find(|lane| lane.slot == charge.slot && (lane.is_home || lane.id == charge.id))
}
