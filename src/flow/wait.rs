//! A call that waits for its permits.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::call::{Call, Definition, ask_behind, change, wake};
use super::line::Turn;
use crate::clock::{Alarm, Micros};
use crate::decision::{Allowed, Decision};
use crate::kernel::{Ask, Batch};
use crate::store::keyed;
use crate::store::local::{Cell, Place};

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
    /// Nothing to do before then.
    Until(Micros),
}

impl<'a> Waiting<'a> {
    /// The permits must have been checked.
    pub(crate) fn new(call: &Call<'a, impl Place>, permits: u64, within: Duration) -> Self {
        let within = Micros::try_from(within.as_micros()).unwrap_or(Micros::MAX);
        Self {
            definition: call.definition,
            cell: call.definition.store.pin(call.place),
            permits,
            deadline: call.definition.store.clock.now().saturating_add(within),
            stage: Stage::Arriving,
            alarm: None,
        }
    }

    /// Under the key's lock. Also returns the call that is next, if this one made way for it.
    fn step(&mut self, waker: &Waker) -> (Step, Option<Waker>) {
        let Self { definition, cell, permits, deadline, stage, .. } = self;
        let (share, owner) = (&definition.store.share, cell.hash());
        let decide = |(header, verdict)| Decision::local(share, owner, *permits, &header, &verdict);
        cell.with(|cell| {
            let now = definition.store.clock.now(); // under the lock: a turn in a queue counts from here
            let expired = cell.line.expire(now);
            let ticket = match *stage {
                Stage::InLine { ticket } => ticket,
                _ => cell.line.join(*permits, *deadline, waker),
            };
            *stage = Stage::InLine { ticket };
            let done = match cell.line.turn(ticket, waker) {
                Turn::Behind { head_deadline, .. } if now < *deadline => {
                    return (Step::Until(head_deadline.saturating_add(1).min(*deadline)), expired);
                }
                Turn::Behind { ahead, .. } => decide(ask_behind(cell, definition, *permits, ahead)),
                Turn::Expired => decide(ask_behind(cell, definition, *permits, 0)),
                Turn::Head => {
                    match decide(cell.ask(share, &definition.store.clock, Ask { permits: *permits, count: 1 })) {
                        Decision::Denied(denied) => {
                            let due = now.saturating_add(denied.retry_after().as_micros() as Micros);
                            if due <= *deadline {
                                return (Step::Until(due), None);
                            }
                            Decision::Denied(denied) // no permit will be there in time
                        }
                        Decision::Allowed(allowed) => {
                            let start = now.saturating_add(allowed.wait().as_micros() as Micros);
                            if start > now && start <= *deadline {
                                let next = cell.line.leave(ticket);
                                *stage = Stage::Paced { start, allowed: Some(allowed) };
                                return (Step::Until(start), next);
                            }
                            if start == now {
                                Decision::Allowed(allowed)
                            } else {
                                // Its turn would come too late: back out, as the tail of the queue it can.
                                give_back(cell, definition, &allowed);
                                let (header, _) = ask_behind(cell, definition, *permits, 0);
                                Decision::denied(share, &header, (start - *deadline) as i64 * share.rate())
                            }
                        }
                    }
                }
            };
            *stage = Stage::Done;
            (Step::Decided(done), cell.line.leave(ticket).or(expired))
        })
    }
}

fn give_back(cell: &mut Cell, of: &Definition, allowed: &Allowed) -> Option<Waker> {
    let refunds = [allowed.receipt().refund(allowed.receipt().permits)];
    change(cell, of, &Batch { refunds: &refunds, ..Batch::default() })
}

impl Future for Waiting<'_> {
    type Output = Decision;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Decision> {
        let this = self.get_mut();
        let now = this.definition.store.clock.now();
        let due = match &mut this.stage {
            Stage::Paced { start, allowed } if now >= *start => {
                let allowed = allowed.take().expect("polled after it was done");
                return Poll::Ready(Decision::Allowed(allowed.waited()));
            }
            Stage::Paced { start, .. } => *start,
            Stage::Arriving | Stage::InLine { .. } => {
                let (step, next) = this.step(context.waker());
                wake(next);
                match step {
                    Step::Decided(decision) => return Poll::Ready(decision),
                    Step::Until(due) => due,
                }
            }
            Stage::Done => unreachable!("polled after it was done"),
        };
        this.alarm = Some(this.definition.store.clock.wake_at(due, context.waker()));
        Poll::Pending
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let next = self.cell.with(|cell| match &self.stage {
            Stage::InLine { ticket } => cell.line.leave(*ticket),
            Stage::Paced { allowed: Some(allowed), .. } => give_back(cell, self.definition, allowed),
            Stage::Arriving | Stage::Done | Stage::Paced { allowed: None, .. } => None,
        });
        wake(next);
    }
}
