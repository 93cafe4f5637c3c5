//! One call on the embedded store, from its check to its decision.

use std::time::Duration;

use super::line::Afterwards;
use super::wait::Waiting;
use crate::decision::{Decision, Peek, Receipt};
use crate::error::{Error, ErrorKind};
use crate::flow::shadow::Shadow;
use crate::kernel::{Ask, Batch, Header, Verdict};
use crate::limit::Limit;
use crate::store::keyed::Work;
use crate::store::local::{Cell, LocalStore, Place};

/// A named limit, as all its clones and handles share it.
pub(crate) struct Definition {
    pub name: Box<str>,
    pub limit: Limit,
    pub store: LocalStore,
    pub shadow: Shadow,
}

/// A call on one key of a limit.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a, P> {
    pub definition: &'a Definition,
    pub place: P,
}

impl<P: Place> Call<'_, P> {
    /// The synchronous way of a call: one lock, no allocation. Compiled into one function for keys and one for handles.
    #[inline(always)]
    pub(crate) fn try_acquire(&self, permits: u64) -> Result<Decision, Error> {
        let Definition { limit, store, .. } = self.definition;
        limit.check_permits(permits)?;
        let (header, verdict, afterwards) = self.place.work(store, AtOnce { of: self.definition, permits });
        if let Some(afterwards) = afterwards {
            afterwards.run();
        }
        Ok(Decision::local(&store.share, self.place.hash(), permits, &header, &verdict))
    }

    /// `at_once` asks without waiting: most calls need no more.
    pub(crate) async fn acquire_within(
        &self,
        permits: u64,
        timeout: Duration,
        at_once: impl FnOnce() -> Result<Decision, Error>,
    ) -> Result<Decision, Error> {
        self.definition.limit.check_permits(permits)?;
        // A pacing queue is not asked that way: what it lets in may have to wait still.
        if !self.definition.store.share.is_paced() {
            let decision = at_once()?;
            if decision.is_allowed() || timeout.is_zero() {
                return Ok(decision);
            }
        }
        Ok(Waiting::new(self, permits, timeout).await)
    }

    pub(crate) fn peek(&self) -> Peek {
        let store = &self.definition.store;
        let look = |cell: &mut Cell| {
            let header = cell.run(&store.share, &store.clock, &Batch::default());
            Peek::local(&store.share, &header)
        };
        self.place.with_own(store, look).unwrap_or_else(|| look(&mut store.first_cell(self.place)))
    }

    /// A key without a cell of its own has nothing to give back to: either its bucket filled up long ago, or the
    /// permits came out of an overflow that others share, who must not gain by it.
    pub(crate) fn refund(&self, receipt: &Receipt, permits: u64) -> Result<(), Error> {
        self.check_receipt(receipt)?;
        let store = &self.definition.store;
        let refunds = [receipt.refund(permits)];
        let batch = Batch { refunds: &refunds, ..Batch::default() };
        if let Some(afterwards) = self.place.with_own(store, |cell| change(cell, self.definition, &batch)) {
            afterwards.run();
        }
        Ok(())
    }

    pub(crate) fn settle(&self, receipt: &Receipt, actual: u64) -> Result<(), Error> {
        if receipt.is_of_nothing() {
            return Ok(());
        }
        if actual <= receipt.permits {
            return self.refund(receipt, receipt.permits - actual);
        }
        self.check_receipt(receipt)?;
        let store = &self.definition.store;
        let batch = Batch { debt: actual - receipt.permits, ..Batch::default() };
        self.place.with(store, |cell| change(cell, self.definition, &batch)).run();
        Ok(())
    }

    pub(crate) fn reset(&self) {
        let store = &self.definition.store;
        let batch = Batch { reset: true, ..Batch::default() };
        // Pinned: a key without a cell of its own gets one for the while, for the overflow is not its to reset.
        store.pinned(self.place).with(|cell| change(cell, self.definition, &batch)).run();
    }

    fn check_receipt(&self, receipt: &Receipt) -> Result<(), Error> {
        check_receipt(&self.definition.name, self.place.hash(), receipt)
    }
}

/// A receipt is good at the limit and key that gave it; one of nothing does no harm anywhere.
pub(super) fn check_receipt(name: &str, owner: u64, receipt: &Receipt) -> Result<(), Error> {
    if receipt.owner == owner || receipt.is_of_nothing() {
        return Ok(());
    }
    let message = format!("was given for another key or by another limit than {name:?}; the charge stays as it is");
    Err(Error::new(ErrorKind::ForeignReceipt, "receipt", message))
}

/// A call that does not wait takes its turn at a key.
struct AtOnce<'a> {
    of: &'a Definition,
    permits: u64,
}

impl Work<Cell> for AtOnce<'_> {
    /// Boxed: only where there is a line may there be something to do afterwards.
    type Output = (Header, Verdict, Option<Box<Afterwards>>);

    #[inline(always)]
    fn on(self, cell: &mut Cell) -> Self::Output {
        let Self { of, permits } = self;
        let store = &of.store;
        let afterwards = if cell.line.is_empty() { None } else { Some(Box::new(clear_line(cell, store))) };
        let (header, verdict) = match cell.line.permits() {
            0 => cell.ask(&store.share, &store.clock, Ask { permits, count: 1 }),
            ahead => ask_behind(cell, of, permits, ahead),
        };
        (header, verdict, afterwards)
    }
}

/// Denies a call that stands behind others: not before the permits that they want, and its own, have come.
#[cold]
pub(super) fn ask_behind(cell: &mut Cell, of: &Definition, permits: u64, ahead: u64) -> (Header, Verdict) {
    let wanted = permits.saturating_add(ahead).min(of.limit.burst());
    cell.ask(&of.store.share, &of.store.clock, Ask { permits: wanted, count: 0 })
}

#[cold]
fn clear_line(cell: &mut Cell, store: &LocalStore) -> Afterwards {
    let mut afterwards = Afterwards::default();
    cell.line.expire(store.clock.now(), &mut afterwards);
    afterwards
}

/// Runs a batch that may make room for the head of the line.
pub(super) fn change(cell: &mut Cell, of: &Definition, batch: &Batch<'_>) -> Afterwards {
    let mut afterwards = Afterwards::default();
    cell.run(&of.store.share, &of.store.clock, batch);
    cell.line.wake_head(&mut afterwards);
    afterwards
}
