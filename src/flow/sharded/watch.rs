//! Keeps the deadlines of the calls on a lane: by whoever sends for it, so that no caller needs a timer.

use std::pin::Pin;
use std::time::Duration;

use tokio::time::Instant;

use super::SharedLimit;
use super::lane::Lane;
use super::round::Round;
use super::row::Late;
use crate::clock::Micros;
use crate::store::cluster::Timer;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicBool, Ordering};

/// Looks at the deadlines of a lane while something is on its way there.
pub(super) struct Watch<'a> {
    limit: &'a SharedLimit,
    lane: &'a Arc<Lane>,
    /// Set for the first deadline that was known when it was set. Most rounds are answered long before, and the next ones find
    /// it as it is: so it is set once in a deadline, and not for every round.
    timer: Timer<'a>,
    set_for: Micros,
    /// When the round counts as overdue, once a call was let go: by the limiter's deadline. One call that has less time than
    /// others says nothing of the shard.
    overdue_at: Micros,
}

impl<'a> Watch<'a> {
    pub(super) fn new(limit: &'a SharedLimit, lane: &'a Arc<Lane>) -> Self {
        Self {
            limit,
            lane,
            timer: limit.engine.transport.timers().timer(),
            set_for: Micros::MAX,
            overdue_at: Micros::MAX,
        }
    }

    /// Waits for the end of `sending`, by which `round` goes out, and lets those go meanwhile whose deadline passes, in the round
    /// and behind it. Says whether it is out of date: some of it were told that it was not sent, and it is not out and has no
    /// answer, which `is_over` would say. Then it is to be sent without them.
    pub(super) async fn over(
        &mut self,
        round: &Arc<Round>,
        mut sending: Pin<&mut impl Future<Output = ()>>,
        is_over: &AtomicBool,
    ) -> bool {
        self.overdue_at = Micros::MAX;
        loop {
            self.set(round.first_due().min(self.lane.first_due()).min(self.overdue_at));
            tokio::select! {
                biased;
                () = &mut sending => return false,
                () = &mut self.timer => {}
                () = self.lane.hurry.notified() => {}
            }
            let is_late = self.look(round);
            let is_in = |flag: &AtomicBool| !flag.load(Ordering::Relaxed);
            if is_late && is_in(&round.trip.sent) && is_in(is_over) {
                return true;
            }
        }
    }

    /// Has the timer ring at the latest then.
    fn set(&mut self, due: Micros) {
        let now = self.limit.clock.now();
        // A moment that nobody waits for any more does no harm: it is looked at again when it rings.
        if self.timer.is_set() && self.set_for <= due {
            return;
        }
        let due = self.lane.look_by(due);
        // A timer has its end, also where nobody has a deadline.
        let wait = Duration::from_micros(due.saturating_sub(now).min(3_600_000_000));
        self.set_for = due;
        self.timer.set(Instant::now() + wait);
    }

    /// Says whether calls of the round were let go.
    fn look(&mut self, round: &Round) -> bool {
        let now = self.limit.clock.now();
        let mut late = Late::default();
        round.expire(now, &mut late);
        let is_late = late.calls > 0;
        if is_late {
            self.overdue_at = round.since() + self.limit.deadline;
        }
        if now >= self.overdue_at {
            self.overdue_at = Micros::MAX;
            self.limit.overdue(self.lane, round.since(), now);
        }
        self.lane.expire(now, &mut late);
        self.limit.failures.late.fetch_add(late.calls, Ordering::Relaxed);
        late.wake();
        is_late
    }
}

impl SharedLimit {
    /// What a shard was asked `then` has no answer by the deadline.
    pub(super) fn overdue(&self, lane: &Lane, then: Micros, now: Micros) {
        lane.overdue(then, now);
        self.engine.transport.is_overdue(lane.slot);
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.lane.looks_at.store(Micros::MAX, Ordering::Relaxed);
    }
}
