//! A lane: the calls of this process that go to one shard.
//!
//! While a batch is on its way the next one gathers; an idle lane sends at once. So nothing waits for a timer, and the
//! more calls there are, the fewer script runs each of them costs.

use std::collections::VecDeque;

use tokio::sync::oneshot;

use super::ceiling::Ceiling;
use super::job::{Answer, Job, Miss, Outcome, Work};
use crate::clock::Micros;
use crate::error::{Error, ErrorKind};
use crate::kernel::Refund;
use crate::key::Slot;
use crate::limit::Share;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Arc, Mutex, lock};
use crate::wire::GrantId;

/// Calls of one run: what the scripts are made for.
const MOST_ASKS: usize = 1_024;
/// Calls that may wait for one shard. At a millisecond a batch that is 100 ms of waiting; more would be of no use.
const MOST_WAITING: usize = 100_000;

/// Refunds that wait for a shard that can't be reached. What is above it is lost: the limit is that much stricter.
const MOST_KEPT: usize = 10_000;

/// How long a shard whose last request failed is not hopped to: a connection is tried again at least that often.
const SICK: Micros = 1_000_000;

/// One shard as this process uses it.
pub(crate) struct Lane {
    pub slot: Slot,
    pub sub_key: Box<[u8]>,
    /// What the shard is asked under: its grant id, for home the id of its ledger.
    pub id: GrantId,
    pub share: Share,
    /// Permits a period, and at once.
    pub permits: u64,
    pub burst: u64,
    pub is_home: bool,
    /// Milliseconds that its state lives at the least.
    pub least_ttl: u64,
    pub ceiling: Ceiling,
    /// When its state was last written for the sake of its time to live.
    pub touched: AtomicU64,
    /// Until then, by this process's clock, nobody hops here: the last request failed.
    sick_until: AtomicU64,
    /// Shared with the lanes to the same slot before and after this one.
    pub counts: Arc<Counts>,
    waiting: AtomicUsize,
    queue: Mutex<Queue>,
}

/// What this process had of one shard.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub runs: AtomicU64,
    pub allowed: AtomicU64,
    pub denied: AtomicU64,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Of calls that nobody waits for any more.
    refunds: Vec<Refund>,
    /// Those that could not be sent: they go along with the next batch, and none is sent for their sake.
    kept: Vec<Refund>,
    /// A batch is on its way.
    busy: bool,
}

/// What goes out together.
#[derive(Default)]
pub(super) struct Load {
    pub jobs: Vec<Job>,
    pub refunds: Vec<Refund>,
}

impl Lane {
    #[allow(clippy::too_many_arguments, reason = "each is a field, and there is one caller")]
    pub(super) fn new(
        slot: Slot,
        sub_key: Box<[u8]>,
        id: GrantId,
        share: Share,
        (permits, burst): (u64, u64),
        is_home: bool,
        least_ttl: u64,
        counts: Arc<Counts>,
    ) -> Self {
        Self {
            slot,
            sub_key,
            id,
            share,
            permits,
            burst,
            is_home,
            least_ttl,
            ceiling: Ceiling::new(share),
            touched: AtomicU64::new(0),
            sick_until: AtomicU64::new(0),
            counts,
            waiting: AtomicUsize::new(0),
            queue: Mutex::default(),
        }
    }

    pub(super) fn failed(&self, now: Micros) {
        self.sick_until.store(now + SICK, Ordering::Relaxed);
    }

    pub(super) fn answered(&self) {
        if self.sick_until.load(Ordering::Relaxed) > 0 {
            self.sick_until.store(0, Ordering::Relaxed);
        }
    }

    pub(super) fn is_sick(&self, now: Micros) -> bool {
        now < self.sick_until.load(Ordering::Relaxed)
    }

    /// The most permits that the shard can have, as far as it can be reached.
    pub(crate) fn most(&self, now: Micros) -> u64 {
        if self.is_sick(now) { 0 } else { self.ceiling.most(now) }
    }

    /// Whether it is worth asking for so many permits.
    pub(super) fn allows(&self, permits: u64, now: Micros) -> bool {
        !self.is_sick(now) && self.ceiling.allows(permits, now)
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Puts a call into the lane. If the lane was idle, what is to be sent comes back, and the caller sees to it.
    pub(super) fn put(&self, work: Work) -> (oneshot::Receiver<Answer>, Option<Load>) {
        let (done, answer) = oneshot::channel();
        let job = Job::new(work, done);
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let queue = &mut *lock(&self.queue);
        if queue.jobs.len() >= MOST_WAITING {
            let message = format!("{MOST_WAITING} calls wait for one shard already; nothing was charged");
            self.answer(job, Err(Miss::Failed(Error::new(ErrorKind::NotSent, "redis", message))));
            return (answer, None);
        }
        queue.jobs.push_back(job);
        (answer, queue.take())
    }

    /// Sends back what nobody waits for.
    pub(super) fn give_back(&self, refund: Refund) -> Option<Load> {
        let queue = &mut *lock(&self.queue);
        queue.refunds.push(refund);
        queue.take()
    }

    /// Keeps what was surely not given back for the next batch. It waits for one: nothing is sent for its sake.
    pub(super) fn keep(&self, refunds: Vec<Refund>) {
        let kept = &mut lock(&self.queue).kept;
        let room = MOST_KEPT.saturating_sub(kept.len());
        kept.extend(refunds.into_iter().take(room));
    }

    pub(super) fn answer(&self, job: Job, answer: Answer) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        job.answer(answer);
    }

    /// Gives a call its outcome. A permit that nobody waits for any more goes back with the next batch.
    pub(super) fn decide(&self, job: Job, outcome: Outcome) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        let work = job.work;
        if matches!(work, Work::Ask(_)) {
            let counts = if outcome.verdict.granted > 0 { &self.counts.allowed } else { &self.counts.denied };
            counts.fetch_add(1, Ordering::Relaxed);
        }
        if let (Work::Ask(permits), Err(_)) = (work, job.done.send(Ok(outcome)))
            && outcome.verdict.granted > 0
        {
            lock(&self.queue).refunds.push(outcome.charge(self.slot, permits).refund(permits));
        }
    }
}

impl Queue {
    /// What is to be sent now; nothing while a batch is on its way.
    fn take(&mut self) -> Option<Load> {
        if self.busy || (self.jobs.is_empty() && self.refunds.is_empty()) {
            return None;
        }
        self.busy = true;
        let count = self.jobs.len().min(MOST_ASKS);
        self.refunds.append(&mut self.kept);
        let refunds = self.refunds.drain(..self.refunds.len().min(MOST_ASKS)).collect();
        Some(Load { jobs: self.jobs.drain(..count).collect(), refunds })
    }
}

/// The right to send for a lane, one batch after the other. However it ends, the lane is free again and nobody is
/// left without an answer: a call whose completion is dropped learns so.
pub(super) struct Sending {
    pub lane: Arc<Lane>,
    /// Given up in good order: whoever comes next has a right of his own.
    ended: bool,
}

impl Sending {
    pub(super) fn new(lane: Arc<Lane>) -> Self {
        Self { lane, ended: false }
    }

    /// The next load, or the end.
    pub(super) fn next(&mut self) -> Option<Load> {
        let queue = &mut *lock(&self.lane.queue);
        queue.busy = false;
        let load = queue.take();
        self.ended = load.is_none();
        load
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let left = {
            let queue = &mut *lock(&self.lane.queue);
            queue.busy = false;
            std::mem::take(&mut queue.jobs)
        };
        // Only a runtime that ends, or a bug, leads here.
        for job in left {
            let message = "the limiter's runtime has ended; nothing was charged";
            self.lane.answer(job, Err(Miss::Failed(Error::new(ErrorKind::NotSent, "runtime", message))));
        }
    }
}

/// `now` by the clock that ceilings go by.
pub(super) fn is_due(last: &AtomicU64, now: Micros, period: Micros) -> bool {
    let before = last.load(Ordering::Relaxed);
    now.saturating_sub(before) >= period
        && last.compare_exchange(before, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}
