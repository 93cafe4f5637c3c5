//! The line of calls that wait for one key.
//!
//! It stands under the lock of its key, so taking a permit and leaving the line are one step. Calls that do not
//! wait see that there is a line and are denied, however few permits they ask for: nobody overtakes. The price is
//! that a large ask at the head holds up small ones behind it; the alternative is that it starves.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use crate::clock::Micros;

/// Boxed only while somebody waits: a key without a line pays one word for it.
#[derive(Default)]
pub(crate) struct Line(Option<Box<Waiters>>);

/// Calls that may wait for one key, in one process. As many as may wait for a shard: 20 MB of them, and longer lines move too slowly for
/// anybody in them.
pub(crate) const MOST: usize = 100_000;

/// Never used twice, also not by another line: a call that was cleared away must not take over a newcomer's place.
static TICKETS: AtomicU64 = AtomicU64::new(0);

struct Waiters {
    /// In the order of their tickets.
    queue: VecDeque<Waiter>,
    /// Permits that all of them want.
    permits: u64,
    /// No deadline lies before this.
    earliest: Micros,
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
    /// Behind others; the head leaves by `head_deadline`.
    Behind { head_deadline: Micros },
    /// Its deadline passed and somebody else cleared it away.
    Expired,
}

/// What is left to do once the key's lock is open, because it may run foreign code: waking, and letting go of wakers.
/// The last waker of a task may drop that task, and with it a call that waits for this very key.
#[derive(Default)]
#[must_use = "the next call in line waits to be woken"]
pub(crate) struct Afterwards {
    /// The head, if it is to look again.
    wake: Option<Waker>,
    /// Calls that were given their answer, and who gives it.
    #[cfg(feature = "redis")]
    pub also_wake: Vec<Waker>,
    pub drop: Vec<Waker>,
}

/// The call at the head of a line.
#[cfg(feature = "redis")]
#[derive(Clone, Copy)]
pub(crate) struct Head {
    pub ticket: u64,
    pub permits: u64,
    pub deadline: Micros,
}

impl Afterwards {
    pub(crate) fn run(self) {
        if let Some(waker) = self.wake {
            waker.wake();
        }
        #[cfg(feature = "redis")]
        self.also_wake.into_iter().for_each(Waker::wake);
        drop(self.drop);
    }
}

impl Line {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Nobody else may join.
    pub(crate) fn is_full(&self) -> bool {
        self.0.as_ref().is_some_and(|waiters| waiters.queue.len() >= MOST)
    }

    /// Permits wanted by those who wait.
    pub(crate) fn permits(&self) -> u64 {
        self.0.as_ref().map_or(0, |waiters| waiters.permits)
    }

    /// A place in the order of arrival.
    pub(crate) fn ticket() -> u64 {
        TICKETS.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn join(&mut self, permits: u64, deadline: Micros, waker: &Waker) -> u64 {
        // Drawn under the key's lock, so it is the last.
        let ticket = Self::ticket();
        self.join_as(ticket, permits, deadline, waker);
        ticket
    }

    /// The same for a call that drew its ticket when it arrived: it stands before those who arrived later.
    pub(crate) fn join_as(&mut self, ticket: u64, permits: u64, deadline: Micros, waker: &Waker) {
        let empty = || Box::new(Waiters { queue: VecDeque::new(), permits: 0, earliest: Micros::MAX });
        let waiters = self.0.get_or_insert_with(empty);
        waiters.permits += permits;
        waiters.earliest = waiters.earliest.min(deadline);
        let place = waiters.queue.partition_point(|waiter| waiter.ticket < ticket);
        waiters.queue.insert(place, Waiter { ticket, permits, deadline, waker: waker.clone() });
    }

    /// Where `ticket` stands; it will be woken by `waker` from now on.
    pub(crate) fn turn(&mut self, ticket: u64, waker: &Waker, afterwards: &mut Afterwards) -> Turn {
        let Some((waiters, place)) = self.find(ticket) else { return Turn::Expired };
        let waiter = &mut waiters.queue[place];
        if !waiter.waker.will_wake(waker) {
            afterwards.drop.push(std::mem::replace(&mut waiter.waker, waker.clone()));
        }
        if place == 0 { Turn::Head } else { Turn::Behind { head_deadline: waiters.queue[0].deadline } }
    }

    /// Permits wanted by those ahead of `ticket`.
    pub(crate) fn ahead_of(&mut self, ticket: u64) -> u64 {
        let Some((waiters, place)) = self.find(ticket) else { return 0 };
        waiters.queue.range(..place).map(|waiter| waiter.permits).sum()
    }

    /// Takes `ticket` out of the line; if it was the head, the next one is to be woken.
    pub(crate) fn leave(&mut self, ticket: u64, now: Micros, afterwards: &mut Afterwards) {
        let Some((_, place)) = self.find(ticket) else { return };
        afterwards.drop.extend(self.take(ticket));
        if place == 0 {
            self.wake_head(afterwards);
        }
        // The next one may be long dead.
        self.expire(now, afterwards);
    }

    /// Clears calls whose deadline has passed: a future that nobody polls must not hold up the rest. Says which.
    pub(crate) fn expire(&mut self, now: Micros, afterwards: &mut Afterwards) -> Vec<u64> {
        let mut expired = Vec::new();
        let Some(waiters) = &mut self.0 else { return expired };
        if now <= waiters.earliest {
            return expired; // nobody's has
        }
        let head = waiters.queue.front().map(|head| head.ticket);
        let (mut permits, mut earliest) = (0, Micros::MAX);
        for waiter in std::mem::take(&mut waiters.queue) {
            if waiter.deadline < now {
                expired.push(waiter.ticket);
                afterwards.drop.push(waiter.waker);
                continue;
            }
            permits += waiter.permits;
            earliest = earliest.min(waiter.deadline);
            waiters.queue.push_back(waiter);
        }
        (waiters.permits, waiters.earliest) = (permits, earliest);
        if waiters.queue.front().map(|head| head.ticket) != head {
            self.wake_head(afterwards);
        }
        self.tidy();
        expired
    }

    /// Takes `ticket` out of the line, and wakes nobody.
    pub(crate) fn take(&mut self, ticket: u64) -> Option<Waker> {
        let (waiters, place) = self.find(ticket)?;
        let left = waiters.queue.remove(place)?;
        waiters.permits -= left.permits;
        self.tidy();
        Some(left.waker)
    }

    fn find(&mut self, ticket: u64) -> Option<(&mut Waiters, usize)> {
        let waiters = self.0.as_deref_mut()?;
        let place = waiters.queue.binary_search_by_key(&ticket, |waiter| waiter.ticket).ok()?;
        Some((waiters, place))
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

/// For those who have somebody ask for them.
#[cfg(feature = "redis")]
impl Line {
    pub(crate) fn head(&self) -> Option<Head> {
        let head = self.0.as_ref()?.queue.front()?;
        Some(Head { ticket: head.ticket, permits: head.permits, deadline: head.deadline })
    }

    /// How many at the head want the same number of permits, as far as `most`.
    pub(crate) fn alike(&self, most: usize) -> usize {
        let Some(waiters) = &self.0 else { return 0 };
        let head = waiters.queue.front().map_or(0, |head| head.permits);
        waiters.queue.iter().take(most).take_while(|waiter| waiter.permits == head).count()
    }

    /// The deadline of `ticket`, if it is in line; it will be woken by `waker` from now on.
    pub(crate) fn deadline_of(&mut self, ticket: u64, waker: &Waker, afterwards: &mut Afterwards) -> Option<Micros> {
        match self.turn(ticket, waker, afterwards) {
            Turn::Head | Turn::Behind { .. } => self.find(ticket).map(|(waiters, place)| waiters.queue[place].deadline),
            Turn::Expired => None,
        }
    }
}
