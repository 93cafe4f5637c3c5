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
        waiters.queue.push_back(Waiter { ticket: waiters.tickets, permits, deadline, waker: waker.clone() });
        waiters.tickets
    }

    /// Where `ticket` stands; it will be woken by `waker` from now on.
    pub(crate) fn turn(&mut self, ticket: u64, waker: &Waker) -> Turn {
        let Some(waiters) = &mut self.0 else { return Turn::Expired };
        let Some(head) = waiters.queue.front() else { return Turn::Expired };
        let head_deadline = head.deadline;
        let mut ahead = 0;
        for (place, waiter) in waiters.queue.iter_mut().enumerate() {
            if waiter.ticket == ticket {
                waiter.waker.clone_from(waker);
                return if place == 0 { Turn::Head } else { Turn::Behind { ahead, head_deadline } };
            }
            ahead += waiter.permits;
        }
        Turn::Expired
    }

    /// Takes `ticket` out of the line. Wake what it returns once the lock is open: the new head.
    #[must_use]
    pub(crate) fn leave(&mut self, ticket: u64) -> Option<Waker> {
        let waiters = self.0.as_mut()?;
        let place = waiters.queue.iter().position(|waiter| waiter.ticket == ticket)?;
        let left = waiters.queue.remove(place)?;
        waiters.permits -= left.permits;
        if waiters.queue.is_empty() {
            self.0 = None;
        }
        if place == 0 { self.head() } else { None }
    }

    /// Clears heads whose deadline has passed: a future that nobody polls must not hold up the rest.
    /// Wake what it returns once the lock is open.
    #[must_use]
    pub(crate) fn expire(&mut self, now: Micros) -> Option<Waker> {
        let waiters = self.0.as_mut()?;
        let before = waiters.queue.len();
        while let Some(late) = waiters.queue.pop_front_if(|head| head.deadline < now) {
            waiters.permits -= late.permits;
        }
        let cleared = waiters.queue.len() < before;
        if waiters.queue.is_empty() {
            self.0 = None;
        }
        if cleared { self.head() } else { None }
    }

    /// The waker of the head, for when a permit has come back.
    pub(crate) fn head(&self) -> Option<Waker> {
        Some(self.0.as_ref()?.queue.front()?.waker.clone())
    }
}
