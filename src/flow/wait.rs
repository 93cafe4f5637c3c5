//! A call that waits for its permits.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::call::{Call, Definition, acquire, change, deny_behind, wake};
use super::line::Turn;
use crate::clock::{Alarm, Micros};
use crate::decision::{Allowed, Decision};
use crate::kernel::{Batch, Refund};
use crate::store::keyed;
use crate::store::local::Cell;

/// Resolves to a decision by its deadline. Dropping it leaves the line; if it was let into a pacing queue already,
/// its place there is given back.
pub(crate) struct Waiting<'a> {
    definition: &'a Definition,
    cell: keyed::Pin<Cell>,
    permits: u64,
    deadline: Micros,
    stage: Stage,
    /// Rings when there is something to do: the permit is due, or a deadline.
    alarm: Option<Alarm>,
}

enum Stage {
    Arriving,
    InLine {
        ticket: u64,
    },
    /// Charged; a pacing queue lets it go at `start`.
    Paced {
        start: Micros,
        allowed: Option<Allowed>,
    },
    Done,
}

/// What a look at the cell came to.
enum Step {
    Decided(Decision),
    Until(Micros),
    Paced(Allowed),
}

impl<'a> Waiting<'a> {
    /// The permits must have been checked.
    pub(crate) fn new(call: &Call<'a>, permits: u64, within: Duration) -> Self {
        let within = Micros::try_from(within.as_micros()).unwrap_or(Micros::MAX);
        Self {
            definition: call.definition,
            cell: call.definition.store.pin(call.place),
            permits,
            deadline: call.definition.clock.now().saturating_add(within),
            stage: Stage::Arriving,
            alarm: None,
        }
    }

    /// Under the key's lock. Also returns the call that is next, if this one made way for it.
    fn step(&mut self, now: Micros, waker: &Waker) -> (Step, Option<Waker>) {
        let Self { definition, cell, permits, deadline, stage, .. } = self;
        let (limit, share) = (&definition.limit, &definition.store.share);
        let owner = cell.hash();
        cell.with(|cell| {
            let expired = cell.line.expire(now);
            if matches!(stage, Stage::Arriving) {
                let ticket = cell.line.join(*permits, *deadline, waker);
                *stage = Stage::InLine { ticket };
            }
            let Stage::InLine { ticket } = *stage else { unreachable!("only a call in line looks at the cell") };
            let done = match cell.line.turn(ticket, waker) {
                Turn::Expired => deny_behind(cell, share, now, limit, *permits),
                Turn::Behind { ahead, .. } if now >= *deadline => {
                    deny_behind(cell, share, now, limit, ahead.saturating_add(*permits))
                }
                Turn::Behind { head_deadline, .. } => {
                    return (Step::Until(head_deadline.saturating_add(1).min(*deadline)), expired);
                }
                Turn::Head => match acquire(cell, share, owner, now, *permits) {
                    Decision::Denied(denied) => {
                        let due = now.saturating_add(denied.retry_after().as_micros() as Micros);
                        if due <= *deadline {
                            return (Step::Until(due), None);
                        }
                        Decision::Denied(denied) // no permit will be there in time
                    }
                    Decision::Allowed(allowed) => {
                        let start = now.saturating_add(allowed.wait().as_micros() as Micros);
                        *stage = Stage::Done;
                        let next = cell.line.leave(ticket);
                        if start == now {
                            return (Step::Decided(Decision::Allowed(allowed)), next);
                        }
                        if start <= *deadline {
                            return (Step::Paced(allowed), next);
                        }
                        // Its turn would come too late: back out, as the tail of the queue it can.
                        give_back(cell, definition, now, &allowed);
                        let denied = deny_until(cell, definition, now, start - *deadline);
                        return (Step::Decided(denied), next);
                    }
                },
            };
            *stage = Stage::Done;
            (Step::Decided(done), cell.line.leave(ticket).or(expired))
        })
    }
}

fn give_back(cell: &mut Cell, definition: &Definition, now: Micros, allowed: &Allowed) -> Option<Waker> {
    let receipt = allowed.receipt();
    let refunds = [Refund { permits: receipt.permits, at: receipt.at, line: receipt.line }];
    let batch = Batch { refunds: &refunds, ..Batch::default() };
    change(cell, &definition.store.share, now, &batch)
}

fn deny_until(cell: &mut Cell, definition: &Definition, now: Micros, wait: Micros) -> Decision {
    let share = &definition.store.share;
    let header = cell.run(share, now, &Batch::default(), &mut []);
    Decision::denied(share, &header, wait)
}

impl Future for Waiting<'_> {
    type Output = Decision;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Decision> {
        let this = self.get_mut();
        let now = this.definition.clock.now();
        if !matches!(this.stage, Stage::Paced { .. }) {
            let (step, next) = this.step(now, context.waker());
            wake(next);
            match step {
                Step::Decided(decision) => return Poll::Ready(decision),
                Step::Until(due) => {
                    this.alarm = Some(this.definition.clock.wake_at(due, context.waker()));
                    return Poll::Pending;
                }
                Step::Paced(allowed) => {
                    let start = now + allowed.wait().as_micros() as Micros;
                    this.stage = Stage::Paced { start, allowed: Some(allowed) };
                }
            }
        }
        let Stage::Paced { start, allowed } = &mut this.stage else { unreachable!("polled after it was done") };
        if now < *start {
            this.alarm = Some(this.definition.clock.wake_at(*start, context.waker()));
            return Poll::Pending;
        }
        let allowed = allowed.take().expect("polled after it was done").waited();
        this.stage = Stage::Done;
        Poll::Ready(Decision::Allowed(allowed))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let now = self.definition.clock.now();
        let next = self.cell.with(|cell| match &self.stage {
            Stage::InLine { ticket } => cell.line.leave(*ticket),
            Stage::Paced { allowed: Some(allowed), .. } => give_back(cell, self.definition, now, allowed),
            Stage::Arriving | Stage::Done | Stage::Paced { allowed: None, .. } => None,
        });
        wake(next);
    }
}
