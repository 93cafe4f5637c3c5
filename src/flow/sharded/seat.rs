//! A call's seat in a round, as the call has it.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::job::{Answer, Miss, Outcome};
use super::queue::Drive;
use super::row::{Caller, Row, late};
use crate::sync::{Arc, lock};

/// A call's seat, as the call has it: resolves to its outcome.
///
/// Dropped before the round was sent, an ask costs nothing.
#[must_use = "dropping it gives the call up"]
pub(super) struct Seat {
    /// Until an outcome has taken it along.
    pub row: Option<Arc<Row>>,
    pub index: u32,
}

impl Seat {
    /// Leaves it to this call to send for its lane. It comes back if that can't be.
    pub(super) fn leave_to(&self, drive: Drive, waker: &Waker) -> Option<Drive> {
        match &self.row {
            Some(row) => row.trip.lane.leave_to(&row.trip, drive, waker),
            None => Some(drive),
        }
    }

    /// What was left to this call, unless somebody else has it by now.
    pub(super) fn take_over(&self) -> Option<Drive> {
        self.row.as_ref().and_then(|row| row.trip.lane.take_over(&row.trip))
    }

    /// Whether there is nothing more to wait for: it was answered, or its deadline has passed.
    pub(super) fn is_over(&self) -> bool {
        let is_late = |row: &Row| {
            lock(&row.seats)
                .taken
                .get(self.index as usize)
                .is_some_and(|seat| matches!(seat.caller, Caller::Late { .. }))
        };
        self.row.as_ref().is_none_or(|row| row.is_answered() || is_late(row))
    }

    /// The call was let go, and admitted without its shard: if that grants it something after all, that was it. Says whether
    /// the shard has to be charged for it: its answer has come, and what it granted goes back already. Where no answer came nobody
    /// knows, and nothing may be charged twice.
    pub(super) fn admit(&mut self) -> bool {
        let Some(row) = self.row.take() else { return false };
        let mut seats = lock(&row.seats);
        match seats.taken.get_mut(self.index as usize) {
            Some(seat) => {
                seat.caller = Caller::Admitted;
                false
            }
            None => row.trip.decided().is_some(),
        }
    }

    /// Gives the seat up. An outcome that is there already comes back; one that comes later goes to the lane.
    pub(super) fn leave(&mut self) -> Option<Answer> {
        let row = self.row.as_ref()?;
        if !row.is_answered() {
            let left = lock(&row.seats).taken.get_mut(self.index as usize).map(|seat| {
                seat.caller = Caller::Gone;
                seat.waker.take()
            });
            // The last waker of a task may drop the task: not under the lock.
            if left.is_some() {
                self.row = None;
                return None;
            }
        }
        self.outcome()
    }

    /// Its outcome, once.
    fn outcome(&mut self) -> Option<Answer> {
        let verdict = self.row.as_ref()?.verdict(self.index)?;
        let row = self.row.take()?;
        Some(verdict.map(|verdict| Outcome { row, verdict }))
    }
}

impl Future for Seat {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        if let Some(answer) = self.outcome() {
            return Poll::Ready(answer);
        }
        let Some(row) = &self.row else { return Poll::Ready(Err(Miss::Ended { sent: true })) };
        let mut seats = lock(&row.seats);
        // It is answered under the lock.
        let Some(seat) = seats.taken.get_mut(self.index as usize) else {
            drop(seats);
            return Poll::Ready(self.outcome().unwrap_or(Err(Miss::Ended { sent: true })));
        };
        if let Caller::Late { sent } = seat.caller {
            drop(seats);
            return Poll::Ready(Err(late(&row.trip.lane, sent)));
        }
        let before = match &seat.waker {
            Some(waker) if waker.will_wake(context.waker()) => None,
            _ => seat.waker.replace(context.waker().clone()),
        };
        drop(seats);
        // The last waker of a task may drop the task.
        drop(before);
        Poll::Pending
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let _ = self.leave();
    }
}
