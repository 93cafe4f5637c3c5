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
use crate::store::local::{Cell, Pinned, Place};

/// Resolves to a decision by its deadline. Dropping it leaves the line; if it was let into a pacing queue already,
/// its place there is given back.
pub(crate) struct Waiting<'a> {
    definition: &'a Definition,
    cell: Pinned<'a>,
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
            cell: call.definition.store.pinned(call.place),
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
            let behind = |cell: &mut Cell, ahead| {
                let (header, verdict) = ask_behind(cell, definition, *permits, ahead);
                Step::Decided(Decision::local(&definition.store.share, owner, *permits, &header, &verdict))
            };
            let ticket = match *stage {
                Stage::InLine { ticket } => ticket,
                _ if cell.line.is_full() => {
                    let ahead = cell.line.permits();
                    return behind(cell, ahead);
                }
                _ => cell.line.join(*permits, *deadline, waker),
            };
            *stage = Stage::InLine { ticket };
            let step = match cell.line.turn(ticket, waker, &mut afterwards) {
                Turn::Behind { head_deadline } if clock.now() < *deadline => {
                    Step::Until(head_deadline.saturating_add(1).min(*deadline))
                }
                Turn::Behind { .. } | Turn::Expired => {
                    let ahead = cell.line.ahead_of(ticket);
                    behind(cell, ahead)
                }
                Turn::Head => try_at_head(cell, definition, owner, *permits, *deadline),
            };
            if !matches!(step, Step::Until(_)) {
                cell.line.leave(ticket, clock.now(), &mut afterwards);
            }
            step
        });
        afterwards.run();
        step
    }
}

/// The call at the head asks. Times count from the clock that decided.
fn try_at_head(cell: &mut Cell, of: &Definition, owner: u64, permits: u64, deadline: Micros) -> Step {
    let (share, clock) = (&of.store.share, &of.store.clock);
    let (header, verdict) = cell.ask(share, clock, Ask { permits, count: 1 });
    let after = |wait: Duration| header.now.saturating_add(wait.as_micros() as Micros);
    match Decision::local(share, owner, permits, &header, &verdict) {
        // Due only after the deadline: no permit will be there in time.
        Decision::Denied(denied) if after(denied.retry_after()) > deadline => Step::Decided(Decision::Denied(denied)),
        Decision::Denied(denied) => Step::Until(after(denied.retry_after())),
        Decision::Allowed(allowed) if allowed.wait().is_zero() => Step::Decided(Decision::Allowed(allowed)),
        Decision::Allowed(allowed) if after(allowed.wait()) <= deadline => {
            Step::Paced { start: after(allowed.wait()), allowed }
        }
        Decision::Allowed(allowed) => {
            // Its turn would come too late: back out, as the tail of the queue it can.
            let header = cell.run(share, clock, &Batch { refunds: &[refund(&allowed)], ..Batch::default() });
            let late = (after(allowed.wait()) - deadline) as i64 * share.rate();
            Step::Decided(Decision::denied(share, &header, late))
        }
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
            Stage::InLine { ticket } => {
                cell.line.leave(*ticket, self.definition.store.clock.now(), &mut afterwards);
            }
            Stage::Paced { allowed, .. } => {
                let batch = Batch { refunds: &[refund(allowed)], ..Batch::default() };
                afterwards = change(cell, self.definition, &batch);
            }
            Stage::Arriving | Stage::Done => {}
        });
        afterwards.run();
    }
}
