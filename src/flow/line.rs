//! The line of calls that wait for one key.
//!
//! It stands under the lock of its key, so taking a permit and leaving the line are one step. Calls that do not
//! wait see that there is a line and are denied, however few permits they ask for: nobody overtakes. The price is
//! that a large ask at the head holds up small ones behind it; the alternative is that it starves.

use std::collections::VecDeque;
use std::task::Waker;

use crate::clock::Micros;

/// Boxed only while somebody waits: a key without a line pays one word for it.
#[derive(Default)]
pub(crate) struct Line(Option<Box<Waiters>>);

#[derive(Default)]
struct Waiters {
    queue: VecDeque<Waiter>,
    /// Permits that all of them want.
    permits: u64,
    tickets: u64,
}

struct Waiter {
    ticket: u64,
    permits: u64,
    deadline: Micros,
    waker: Waker,
}

/// Where a waiting call stands.
pub(crate) enum Turn {
    /// At the head: its to try.
    Head,
    /// Behind others that want `ahead` permits. The head leaves by `head_deadline`.
    Behind { ahead: u64, head_deadline: Micros },
    /// Its deadline passed and somebody else cleared it away.
    Expired,
}

/// What is left to do once the key's lock is open, because it may run foreign code: waking, and letting go of wakers.
/// The last waker of a task may drop that task, and with it a call that waits for this very key.
#[derive(Default)]
#[must_use = "the next call in line waits to be woken"]
pub(crate) struct Afterwards {
    wake: Option<Waker>,
    drop: Vec<Waker>,
}

impl Afterwards {
    pub(crate) fn run(self) {
        if let Some(waker) = self.wake {
            waker.wake();
        }
        drop(self.drop);
    }
}

impl Line {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Permits wanted by those who wait.
    pub(crate) fn permits(&self) -> u64 {
        self.0.as_ref().map_or(0, |waiters| waiters.permits)
    }

    pub(crate) fn join(&mut self, permits: u64, deadline: Micros, waker: &Waker) -> u64 {
        let waiters = self.0.get_or_insert_default();
        waiters.tickets += 1;
        waiters.permits += permits;
        let ticket = waiters.tickets;
        waiters.queue.push_back(Waiter { ticket, permits, deadline, waker: waker.clone() });
        ticket
    }

    /// Where `ticket` stands; it will be woken by `waker` from now on.
    pub(crate) fn turn(&mut self, ticket: u64, waker: &Waker, afterwards: &mut Afterwards) -> Turn {
        let Some(waiters) = &mut self.0 else { return Turn::Expired };
        let Some(head) = waiters.queue.front() else { return Turn::Expired };
        let head_deadline = head.deadline;
        let mut ahead = 0;
        for (place, waiter) in waiters.queue.iter_mut().enumerate() {
            if waiter.ticket == ticket {
                if !waiter.waker.will_wake(waker) {
                    afterwards.drop.push(std::mem::replace(&mut waiter.waker, waker.clone()));
                }
                return if place == 0 { Turn::Head } else { Turn::Behind { ahead, head_deadline } };
            }
            ahead += waiter.permits;
        }
        Turn::Expired
    }

    /// Takes `ticket` out of the line; if it was the head, the next one is to be woken.
    pub(crate) fn leave(&mut self, ticket: u64, afterwards: &mut Afterwards) {
        let Some(waiters) = &mut self.0 else { return };
        let Some(place) = waiters.queue.iter().position(|waiter| waiter.ticket == ticket) else { return };
        if let Some(left) = waiters.queue.remove(place) {
            waiters.permits -= left.permits;
            afterwards.drop.push(left.waker);
        }
        if place == 0 {
            self.wake_head(afterwards);
        }
        self.tidy();
    }

    /// Clears heads whose deadline has passed: a future that nobody polls must not hold up the rest.
    pub(crate) fn expire(&mut self, now: Micros, afterwards: &mut Afterwards) {
        let Some(waiters) = &mut self.0 else { return };
        let mut cleared = false;
        while let Some(late) = waiters.queue.pop_front_if(|head| head.deadline < now) {
            waiters.permits -= late.permits;
            afterwards.drop.push(late.waker);
            cleared = true;
        }
        if cleared {
            self.wake_head(afterwards);
        }
        self.tidy();
    }

    /// The head is to be woken: a permit may have come back, or it is the head only now.
    pub(crate) fn wake_head(&self, afterwards: &mut Afterwards) {
        let head = self.0.as_ref().and_then(|waiters| waiters.queue.front());
        if let Some(head) = head
            && let Some(before) = afterwards.wake.replace(head.waker.clone())
        {
            afterwards.drop.push(before);
        }
    }

    fn tidy(&mut self) {
        if self.0.as_ref().is_some_and(|waiters| waiters.queue.is_empty()) {
            self.0 = None;
        }
    }
}
