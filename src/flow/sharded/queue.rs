//! What waits for a lane, and the right to send it.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::Waker;

use super::ahead::Ahead;
use super::job::Miss;
use super::lane::Lane;
use super::round::{Round, Sealed};
use super::row::{Joined, Trip};
use crate::kernel::Refund;
use crate::sync::atomic::Ordering;
use crate::sync::{Arc, lock};

/// Calls of one round: what the scripts are made for.
pub(super) const MOST_ASKS: usize = if cfg!(races) { 4 } else { 1_024 };
/// Calls that ask for this part of what a share holds are as many as go together: the next ones find another share.
const PART: u64 = 4;

/// What waits for a lane, and who sends it.
#[derive(Default)]
pub(super) struct Queue {
    /// What goes out next; calls join the last one.
    pub rounds: VecDeque<Arc<Round>>,
    /// How many seats of that one are taken, or may be without a look at the lane.
    pub seats: usize,
    /// Some threads may take seats of it without a look at the lane.
    pub is_open: bool,
    /// Of calls that nobody waits for any more.
    pub refunds: Vec<Refund>,
    /// Those that could not be sent: they go along with the next round, and none is sent for their sake.
    pub kept: Vec<Refund>,
    /// A round is on its way,
    pub busy: bool,
    /// and so many permits go back with it that nobody waits for.
    pub returning: u64,
    /// Permits that went back, and nobody knows whether they arrived: whoever sent them is gone.
    pub lost: u64,
    /// What sends, while the only one who waits for it does so himself.
    pub alone: Option<Alone>,
    pub ahead: Ahead,
    /// Permits that calls have asked for since it was last full.
    fill: u64,
}

/// What sends for a lane: a task, or a call that is alone with it.
pub(super) type Drive = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A call that sends for its lane whenever it is polled.
pub(super) struct Alone {
    pub drive: Drive,
    pub waker: Waker,
    /// Of the round that it waits for: whose drive this is.
    pub trip: Arc<Trip>,
}

/// What is to be done so that a call that was put into a lane goes out.
pub(super) enum Start {
    /// It goes with the next round.
    Nothing,
    /// The same, and the lane has as many as go together.
    Full,
    /// It can't be taken: too many wait already.
    Crowded,
    /// The lane was idle.
    Send(Load),
    /// It was idle, but lately calls came together: those that are about to come are let in first.
    Gather,
    /// Somebody was alone with the lane. Now that two wait for it, neither may depend on the other being polled.
    Spawn(Drive, Waker),
}

/// What goes out together.
pub(super) struct Load {
    pub round: Arc<Round>,
    pub refunds: Vec<Refund>,
}

impl Queue {
    /// Calls have joined: they are on their way.
    pub(super) fn hear(&mut self, lane: &Lane, joined: Joined) {
        if joined.calls == 0 {
            return;
        }
        self.fill += joined.permits;
        self.ahead.permits += joined.permits;
        self.ahead.largest = self.ahead.largest.max(joined.largest);
        lane.ahead.store(self.ahead.packed(), Ordering::Relaxed);
        // Written under the lock only.
        lane.waiting.store(lane.waiting() + joined.calls, Ordering::Relaxed);
    }

    /// Nobody joins the last round any more without a look at the lane.
    pub(super) fn close(&mut self, lane: &Lane) {
        if std::mem::take(&mut self.is_open) {
            let joined = lane.stripes.close();
            self.hear(lane, joined);
        }
    }

    /// Seats that threads could have taken without a look at the lane, and have not, are free again.
    pub(super) fn recall(&mut self, lane: &Lane) {
        if self.is_open {
            let (joined, unused) = lane.stripes.recall();
            self.hear(lane, joined);
            self.seats -= unused;
        }
    }

    /// Whether the lane of a share with this burst has as many calls as go together.
    pub(super) fn fills(&mut self, burst: u64) -> bool {
        let is_full = self.seats == MOST_ASKS || self.fill >= burst / PART;
        if is_full {
            self.fill = 0;
        }
        is_full
    }

    /// What is to be sent now; nothing while a round is on its way.
    pub(super) fn take(&mut self, lane: &Arc<Lane>) -> Option<Load> {
        if self.busy || (self.rounds.is_empty() && self.refunds.is_empty()) {
            return None;
        }
        self.busy = true;
        let mut refunds: Vec<_> = self.refunds.drain(..self.refunds.len().min(MOST_ASKS)).collect();
        // Not all at once: what is left of them must not look like something to send.
        refunds.extend(self.kept.drain(..self.kept.len().min(MOST_ASKS - refunds.len())));
        self.returning = sum(&refunds);
        let round = self.rounds.pop_front().unwrap_or_else(|| Round::new(lane));
        if self.rounds.is_empty() {
            self.close(lane);
        }
        Some(Load { round, refunds })
    }
}

/// Permits that these give back.
pub(super) fn sum<'a>(refunds: impl IntoIterator<Item = &'a Refund>) -> u64 {
    refunds.into_iter().map(|refund| refund.permits).sum()
}

/// The right to send for a lane, one round after the other. However it ends, the lane is free again and nobody is
/// left without an answer.
pub(super) struct Sending {
    pub lane: Arc<Lane>,
    /// What is on its way.
    round: Option<Arc<Round>>,
    /// Given up in good order: whoever comes next has a right of his own.
    ended: bool,
}

impl Sending {
    pub(super) fn new(lane: Arc<Lane>, load: Option<&Load>) -> Self {
        Self { lane, round: load.map(|load| Arc::clone(&load.round)), ended: false }
    }

    /// The next load, or the end.
    pub(super) fn next(&mut self) -> Option<Load> {
        let queue = &mut *lock(&self.lane.queue);
        (queue.busy, queue.returning) = (false, 0);
        let load = queue.take(&self.lane);
        self.round = load.as_ref().map(|load| Arc::clone(&load.round));
        self.ended = load.is_none();
        load
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        // Only a runtime that ends, or a bug, leads here.
        let left = {
            let queue = &mut *lock(&self.lane.queue);
            queue.busy = false;
            queue.lost += std::mem::take(&mut queue.returning);
            queue.lost += queue.rounds.iter().chain(&self.round).map(|round| round.returning()).sum::<u64>();
            queue.close(&self.lane);
            queue.ahead = Ahead::default();
            self.lane.ahead.store(0, Ordering::Relaxed);
            self.lane.waiting.store(0, Ordering::Relaxed);
            std::mem::take(&mut queue.rounds)
        };
        if let Some(round) = &self.round {
            let sent = round.trip.sent.load(Ordering::Relaxed);
            round.answer(Sealed::default(), Err(Miss::Ended { sent }));
        }
        for round in left {
            round.answer(Sealed::default(), Err(Miss::Ended { sent: false }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After how many calls for so many permits a lane is full; twice in a row.
    fn full_after(burst: u64, permits: u64) -> [usize; 2] {
        let mut queue = Queue::default();
        [0, 1].map(|_| {
            queue.seats = 0;
            loop {
                queue.seats += 1;
                queue.fill += permits;
                if queue.fills(burst) {
                    return queue.seats;
                }
            }
        })
    }

    #[test]
    fn a_lane_is_full_with_a_round_or_a_part_of_its_share() {
        assert_eq!(full_after(1_000_000, 1), [MOST_ASKS; 2]);
        assert_eq!(full_after(400, 1), [100; 2]);
        assert_eq!(full_after(400, 30), [4; 2]);
        assert_eq!(full_after(1, 1), [1; 2], "a share that holds one");
    }
}
