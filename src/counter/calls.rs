//! What the calls on counters of one name have in common: their deadline, how many there may be, and what had no answer.

use std::time::{Duration, Instant};

use super::Unanswered;
use super::patience::Patience;
use crate::error::{Error, ErrorKind};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

pub(super) struct Calls {
    /// The limiter's.
    deadline: Duration,
    /// Requests of all counters of the limiter.
    crowd: Crowd,
    pub missed: Arc<Missed>,
}

impl Calls {
    pub(super) fn new(deadline: Duration, crowd: Crowd) -> Self {
        Self { deadline, crowd, missed: Arc::default() }
    }

    /// When a call has to end that begins now.
    pub(super) fn due(&self, patience: Patience) -> Instant {
        Instant::now() + patience.0.unwrap_or(self.deadline)
    }

    /// Lets in so many requests, or none of them.
    ///
    /// # Errors
    /// If there is no room for all.
    pub(super) fn enter(&self, requests: usize) -> Result<Vec<Seat>, Error> {
        self.crowd.enter(requests).ok_or_else(|| {
            self.missed.crowded();
            let message = format!(
                "{} requests of counters are under way already, and nothing was asked; ask for less at once, see that the \
                 store answers, or raise it",
                self.crowd.most
            );
            Error::new(ErrorKind::NotSent, "max_in_flight", message)
        })
    }
}

/// What was not answered, or not in time.
#[derive(Default)]
pub(super) struct Missed {
    late: AtomicU64,
    crowded: AtomicU64,
}

impl Missed {
    pub(super) fn late(&self, calls: u64) {
        self.late.fetch_add(calls, Ordering::Relaxed);
    }

    pub(super) fn crowded(&self) {
        self.crowded.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> Unanswered {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Unanswered { late: read(&self.late), crowded: read(&self.crowded) }
    }
}

/// How many there are at once, and may be.
#[derive(Clone)]
pub(super) struct Crowd {
    inside: Arc<AtomicUsize>,
    most: usize,
}

impl Crowd {
    /// `inside` may be another crowd's too: then both count all.
    pub(super) fn new(inside: &Arc<AtomicUsize>, most: usize) -> Self {
        Self { inside: Arc::clone(inside), most }
    }

    /// Seats for all of these, or for none.
    pub(super) fn enter(&self, count: usize) -> Option<Vec<Seat>> {
        self.take(count).then(|| (0..count).map(|_| self.seat()).collect())
    }

    pub(super) fn enter_one(&self) -> Option<Seat> {
        self.take(1).then(|| self.seat())
    }

    fn take(&self, count: usize) -> bool {
        let room = |inside: usize| Some(inside + count).filter(|all| *all <= self.most);
        self.inside.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).is_ok()
    }

    fn seat(&self) -> Seat {
        Seat(Arc::clone(&self.inside))
    }
}

/// One of them, until it is dropped.
pub(super) struct Seat(Arc<AtomicUsize>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_has_room_for_all_or_none() {
        let inside = Arc::default();
        let (crowd, other) = (Crowd::new(&inside, 3), Crowd::new(&inside, 4));
        let two = crowd.enter(2).expect("room");
        assert!(crowd.enter(2).is_none() && other.enter(3).is_none());
        let one = crowd.enter_one().expect("the last seat");
        assert!(crowd.enter_one().is_none());
        drop(two);
        assert!(other.enter(3).is_some(), "what was dropped makes room");
        drop(one);
        assert_eq!(inside.load(Ordering::Relaxed), 0);
    }
}
