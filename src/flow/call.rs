//! One call on the embedded store, from its check to its decision.

use std::task::Waker;
use std::time::Duration;

use super::wait::Waiting;
use crate::clock::{Clock, Micros};
use crate::decision::{Decision, Peek, Receipt};
use crate::error::{Error, ErrorKind};
use crate::kernel::{Ask, Batch, Refund, Verdict};
use crate::limit::{Limit, Share};
use crate::store::local::{Cell, LocalStore, Place};

/// A named limit, as all its clones and handles share it.
pub(crate) struct Definition {
    pub name: Box<str>,
    pub limit: Limit,
    pub clock: Clock,
    pub store: LocalStore,
}

/// A call on one key of a limit.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub definition: &'a Definition,
    pub place: Place<'a>,
}

impl Call<'_> {
    /// The synchronous way of a call: no lock but the key's, no allocation.
    pub(crate) fn try_acquire(&self, permits: u64) -> Result<Decision, Error> {
        let Definition { limit, clock, store, .. } = self.definition;
        limit.check_permits(permits)?;
        let now = clock.now();
        let owner = self.place.hash();
        let (decision, head) = store.with(self.place, now, |cell| {
            let head = cell.line.expire(now);
            let decision = if cell.line.is_empty() {
                acquire(cell, &store.share, owner, now, permits)
            } else {
                deny_behind(cell, &store.share, now, limit, permits.saturating_add(cell.line.permits()))
            };
            (decision, head)
        });
        wake(head);
        Ok(decision)
    }

    pub(crate) async fn acquire_within(&self, permits: u64, timeout: Duration) -> Result<Decision, Error> {
        // Most calls need not wait. A pacing queue is not tried here: what it lets in may have to wait still.
        if !self.definition.store.share.is_paced() {
            let decision = self.try_acquire(permits)?;
            if decision.is_allowed() || timeout.is_zero() {
                return Ok(decision);
            }
        }
        self.definition.limit.check_permits(permits)?;
        Ok(Waiting::new(self, permits, timeout).await)
    }

    pub(crate) fn peek(&self) -> Peek {
        let Definition { clock, store, .. } = self.definition;
        let now = clock.now();
        let look = |cell: &mut Cell| {
            let header = cell.run(&store.share, now, &Batch::default(), &mut []);
            Peek::local(&store.share, &header)
        };
        store.with_own(self.place, look).unwrap_or_else(|| look(&mut store.first_cell(self.place)))
    }

    /// A key without a cell of its own has nothing to give back to: either its bucket filled up long ago, or the
    /// permits came out of an overflow that others share, who must not gain by it.
    pub(crate) fn refund(&self, receipt: &Receipt, permits: u64) -> Result<(), Error> {
        self.check_receipt(receipt)?;
        let Definition { clock, store, .. } = self.definition;
        let now = clock.now();
        let refunds = [Refund { permits, at: receipt.at, line: receipt.line }];
        let batch = Batch { refunds: &refunds, ..Batch::default() };
        let head = store.with_own(self.place, |cell| change(cell, &store.share, now, &batch));
        wake(head.flatten());
        Ok(())
    }

    pub(crate) fn settle(&self, receipt: &Receipt, actual: u64) -> Result<(), Error> {
        if actual <= receipt.permits {
            return self.refund(receipt, receipt.permits - actual);
        }
        self.check_receipt(receipt)?;
        let Definition { clock, store, .. } = self.definition;
        let now = clock.now();
        let batch = Batch { debt: actual - receipt.permits, ..Batch::default() };
        wake(store.with(self.place, now, |cell| change(cell, &store.share, now, &batch)));
        Ok(())
    }

    pub(crate) fn reset(&self) {
        let Definition { clock, store, .. } = self.definition;
        let now = clock.now();
        let batch = Batch { reset: true, ..Batch::default() };
        // Pinned: a key without a cell of its own gets one, for the overflow is not its to reset.
        wake(store.pin(self.place).with(|cell| change(cell, &store.share, now, &batch)));
    }

    fn check_receipt(&self, receipt: &Receipt) -> Result<(), Error> {
        if receipt.owner == self.place.hash() {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::ForeignReceipt,
            "receipt",
            format!(
                "was given for another key or by another limit than {:?}; the charge stays as it is",
                self.definition.name
            ),
        ))
    }
}

/// Takes the permits if they are there.
pub(super) fn acquire(cell: &mut Cell, share: &Share, owner: u64, now: Micros, permits: u64) -> Decision {
    let mut verdicts = [Verdict::default()];
    let asks = [Ask { permits, count: 1 }];
    let batch = Batch { asks: &asks, ..Batch::default() };
    let header = cell.run(share, now, &batch, &mut verdicts);
    Decision::local(share, owner, permits, &header, &verdicts[0])
}

/// Denies a call that stands behind others: not before `wanted` permits, theirs and its own, have come.
pub(super) fn deny_behind(cell: &mut Cell, share: &Share, now: Micros, limit: &Limit, wanted: u64) -> Decision {
    let mut verdicts = [Verdict::default()];
    let asks = [Ask { permits: wanted.min(limit.burst()), count: 0 }];
    let batch = Batch { asks: &asks, ..Batch::default() };
    let header = cell.run(share, now, &batch, &mut verdicts);
    Decision::denied(share, &header, verdicts[0].wait)
}

/// Runs a batch that may make room. Wake what it returns once the lock is open.
pub(super) fn change(cell: &mut Cell, share: &Share, now: Micros, batch: &Batch<'_>) -> Option<Waker> {
    cell.run(share, now, batch, &mut []);
    cell.line.head()
}

pub(super) fn wake(head: Option<Waker>) {
    if let Some(head) = head {
        head.wake();
    }
}
