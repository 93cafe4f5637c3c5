//! A call that waits for its permits.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::call::{Call, Definition, ask_behind, change};
use super::line::{Afterwards, Turn};
use crate::clock::{Alarm, Micros};
use crate::decision::{Allowed, Decision};
use crate::kernel::{Ask, Batch, Refund};
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
        allowed: Allowed,
    },
    Done,
}

/// What a look at the cell came to.
enum Step {
    Decided(Decision),
    /// Nothing to do before then.
    Until(Micros),
    /// Let into a pacing queue.
    Paced {
        start: Micros,
        allowed: Allowed,
    },
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

    /// Takes a place in line if it has none, looks where it stands, and tries if it is at the head.
    fn step(&mut self, waker: &Waker) -> Step {
        let Self { definition, cell, permits, deadline, stage, .. } = self;
        let clock = &definition.store.clock;
        let owner = cell.hash();
        let mut afterwards = Afterwards::default();
        let step = cell.with(|cell| {
            cell.line.expire(clock.now(), &mut afterwards);
            let ticket = match *stage {
                Stage::InLine { ticket } => ticket,
                _ => cell.line.join(*permits, *deadline, waker),
            };
            *stage = Stage::InLine { ticket };
            let share = &definition.store.share;
            let decide = |(header, verdict)| Decision::local(share, owner, *permits, &header, &verdict);
            let step = match cell.line.turn(ticket, waker, &mut afterwards) {
                Turn::Behind { head_deadline, .. } if clock.now() < *deadline => {
                    Step::Until(head_deadline.saturating_add(1).min(*deadline))
                }
                Turn::Behind { ahead, .. } => Step::Decided(decide(ask_behind(cell, definition, *permits, ahead))),
                Turn::Expired => Step::Decided(decide(ask_behind(cell, definition, *permits, 0))),
                Turn::Head => match decide(cell.ask(share, clock, Ask { permits: *permits, count: 1 })) {
                    Decision::Denied(denied) => {
                        let due = clock.now().saturating_add(denied.retry_after().as_micros() as Micros);
                        // Later than the deadline: no permit will be there in time.
                        if due <= *deadline { Step::Until(due) } else { Step::Decided(Decision::Denied(denied)) }
                    }
                    Decision::Allowed(allowed) if allowed.wait().is_zero() => Step::Decided(Decision::Allowed(allowed)),
                    Decision::Allowed(allowed) => {
                        // Read after the queue let it in: rather a moment late than too near to the one before.
                        let start = clock.now().saturating_add(allowed.wait().as_micros() as Micros);
                        if start <= *deadline {
                            Step::Paced { start, allowed }
                        } else {
                            // Its turn would come too late: back out, as the tail of the queue it can.
                            let header =
                                cell.run(share, clock, &Batch { refunds: &[refund(&allowed)], ..Batch::default() });
                            let late = (start - *deadline) as i64 * share.rate();
                            Step::Decided(Decision::denied(share, &header, late))
                        }
                    }
                },
            };
            if !matches!(step, Step::Until(_)) {
                cell.line.leave(ticket, &mut afterwards);
            }
            step
        });
        afterwards.run();
        step
    }
}

fn refund(allowed: &Allowed) -> Refund {
    allowed.receipt().refund(allowed.receipt().permits)
}

impl Future for Waiting<'_> {
    type Output = Decision;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Decision> {
        let this = self.get_mut();
        if matches!(this.stage, Stage::Arriving | Stage::InLine { .. }) {
            match this.step(context.waker()) {
                Step::Until(due) => return this.sleep(due, context),
                Step::Paced { start, allowed } => this.stage = Stage::Paced { start, allowed },
                Step::Decided(decision) => {
                    this.stage = Stage::Done;
                    return Poll::Ready(decision);
                }
            }
        }
        let Stage::Paced { start, .. } = this.stage else { unreachable!("polled after it was done") };
        if this.definition.store.clock.now() < start {
            return this.sleep(start, context);
        }
        match std::mem::replace(&mut this.stage, Stage::Done) {
            Stage::Paced { allowed, .. } => Poll::Ready(Decision::Allowed(allowed.waited())),
            _ => unreachable!("it was paced"),
        }
    }
}

impl Waiting<'_> {
    fn sleep(&mut self, until: Micros, context: &Context<'_>) -> Poll<Decision> {
        self.alarm = Some(self.definition.store.clock.wake_at(until, context.waker()));
        Poll::Pending
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut afterwards = Afterwards::default();
        self.cell.with(|cell| match &self.stage {
            Stage::InLine { ticket } => cell.line.leave(*ticket, &mut afterwards),
            Stage::Paced { allowed, .. } => {
                let batch = Batch { refunds: &[refund(allowed)], ..Batch::default() };
                afterwards = change(cell, self.definition, &batch);
            }
            Stage::Arriving | Stage::Done => {}
        });
        afterwards.run();
    }
}
