//! Adds on their way to a shared store: each exactly once, or told.
//!
//! Each shard of a key has one request out at a time, with a number. Adds that come meanwhile are summed up and go next. A
//! request without an answer is sent again with the same number: the shard remembers the last one of each client, and counts
//! no number twice. Nothing is sent again when the shard may have forgotten.

use std::collections::{HashMap, VecDeque};
use std::pin::pin;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot};

use super::asking::{Aim, into_error};
use super::calls::Crowd;
use super::clocks::Clocks;
use super::counters::overflow;
use super::hot::Hot;
use super::kernel::{Generation, Once, Terms, Verdict};
use super::lane::Lane;
use super::patience::Patience;
use super::shards::{Shard, Shards};
use super::work::{Answer, Caller, Tally, Work};
use crate::clock::Micros;
use crate::error::{Error, ErrorKind};
use crate::observe;
use crate::store::cluster::Fault;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, lock};
use crate::wire::{CountReply, CountRun, Script};

/// Callers that may wait for adds of one name, as many as for a shard of a limit: two million a second, none of which is answered. Beyond
/// that adds go without one, and those with a bound don't go.
const MOST_CALLERS: usize = 100_000;

/// Requests that may wait for one shard. Adds without a bound are summed up and need one; of those with a bound each needs
/// its own, and a thousand of 50 µs take as long as a call waits by default.
const MOST_REQUESTS: usize = 1_000;

pub(super) struct Delivery {
    pub shards: Shards,
    pub terms: Terms,
    name: Box<str>,
    /// How many shards of keys may have something undelivered.
    queue: usize,
    /// Drawn with the first add: a process may fork until then.
    client: OnceLock<u64>,
    numbers: AtomicU64,
    /// By sub-key. One that is here has a task.
    pub lanes: Mutex<HashMap<Box<[u8]>, Queue>>,
    clocks: Clocks,
    hot: Hot,
    /// Who waits for an answer, of all keys.
    callers: Crowd,
    pub tally: Arc<Tally>,
}

/// What waits behind the request that is out to one shard of one key.
pub(super) struct Queue {
    waiting: VecDeque<Work>,
    /// When the lane looks at deadlines next, and what has it look at once.
    looks_at: Instant,
    hurry: Arc<Notify>,
}

/// Where an add goes.
struct Choice {
    shard: Shard,
    /// The key's first one, if that is another.
    first: Option<Shard>,
}

/// A request and what is known of its fate.
pub(super) struct Attempt {
    pub work: Work,
    number: u64,
    /// What the key's first shard counts, as its first copy said; none to that one itself.
    generation: Option<Generation>,
    /// The first copy that may have run.
    pub unknown: Option<Copied>,
    pub failed: u32,
}

/// When a copy was sent, and until when it may count by the shard's clock. All that follow have no longer: by then its number may be
/// forgotten, however far that clock has jumped meanwhile.
#[derive(Clone, Copy)]
pub(super) struct Copied {
    since: Instant,
    not_after: Micros,
}

impl Delivery {
    pub(super) fn new(shards: Shards, name: &str, terms: Terms, queue: usize) -> Self {
        let tally = Arc::new(Tally::new(name, &shards.calls.missed));
        Self {
            shards,
            terms,
            name: name.into(),
            queue,
            client: OnceLock::new(),
            numbers: AtomicU64::new(0),
            lanes: Mutex::default(),
            clocks: Clocks::new(),
            hot: Hot::default(),
            callers: Crowd::new(&Arc::default(), MOST_CALLERS),
            tally,
        }
    }

    /// Takes an add. It is delivered whether anybody waits for the answer or not.
    ///
    /// # Errors
    /// When there is no room for it, or the limiter has ended.
    pub(super) fn put(
        self: &Arc<Self>,
        key: &[u8],
        amount: i64,
        bound: Option<i64>,
        patience: Patience,
    ) -> Result<oneshot::Receiver<Result<Answer, Error>>, Error> {
        self.shards.engine.check()?;
        let due = self.shards.calls.due(patience);
        let (say, told) = oneshot::channel();
        let caller = match self.callers.enter_one() {
            Some(seat) => Some(Caller::new(due, say, seat)),
            None if bound.is_none() => self.tally.queued_at_once(say),
            None => return Err(self.tally.crowded(format_args!("{MOST_CALLERS} adds of all keys"))),
        };
        let Choice { shard, first } = self.choose(key);
        let hurry;
        {
            let lanes = &mut *lock(&self.lanes);
            if let Some(lane) = lanes.get_mut(&shard.sub_key) {
                let is_full = lane.waiting.len() >= MOST_REQUESTS;
                match lane.waiting.back_mut() {
                    Some(last) if bound.is_none() && last.takes(amount) => last.join(amount, caller),
                    _ if is_full => {
                        return Err(self.tally.crowded(format_args!("{MOST_REQUESTS} requests to its shard")));
                    }
                    _ => lane.waiting.push_back(Work::new(&self.tally, amount, bound, caller)),
                }
                lane.look_by(due);
                return Ok(told);
            }
            if lanes.len() >= self.queue {
                self.tally.refused();
                return Err(self.is_full());
            }
            let queue = Queue::of(Work::new(&self.tally, amount, bound, caller));
            hurry = Arc::clone(&queue.hurry);
            lanes.insert(shard.sub_key.clone(), queue);
        }
        self.start(shard, first, hurry)?;
        Ok(told)
    }

    fn start(self: &Arc<Self>, shard: Shard, first: Option<Shard>, hurry: Arc<Notify>) -> Result<(), Error> {
        let lane = Lane { delivery: Arc::downgrade(self), shard, first, hurry, is_over: false };
        self.shards.engine.spawn(lane.drive())
    }

    fn is_full(&self) -> Error {
        let message = format!(
            "{} keys have adds that are not delivered yet, and nothing was counted; see that the store answers, or raise `queue`",
            self.queue
        );
        Error::new(ErrorKind::NotSent, "queue", message)
    }

    /// Surely not counted where it was sent to: it goes to the first shard instead, if that has a place in the queue. The one it comes
    /// from has none any more once nothing waits there.
    fn hand_over(self: &Arc<Self>, from: &Shard, first: &Shard, work: Work) {
        let hurry;
        {
            let lanes = &mut *lock(&self.lanes);
            if let Some(lane) = lanes.get_mut(&first.sub_key) {
                let due = work.due();
                lane.waiting.push_back(work);
                if let Some(due) = due {
                    lane.look_by(due);
                }
                return;
            }
            let leaves = lanes.get(&from.sub_key).is_some_and(|lane| lane.waiting.is_empty());
            if lanes.len() - usize::from(leaves) >= self.queue {
                return work.refuse(&self.is_full());
            }
            let queue = Queue::of(work);
            hurry = Arc::clone(&queue.hurry);
            lanes.insert(first.sub_key.clone(), queue);
        }
        // If the limiter has ended, what waits ends with the lane, and is told as lost.
        let _ = self.start(first.clone(), None, hurry);
    }

    /// A key's first shard, unless that has too much to do: then any.
    fn choose(&self, key: &[u8]) -> Choice {
        let first = self.shards.shard(key, 0);
        if self.shards.count > 1 && self.hot.counts(&first.sub_key, Instant::now()).is_some() {
            let index = rand::random_range(0..self.shards.count);
            if index > 0 {
                return Choice { shard: self.shards.shard(key, index), first: Some(first) };
            }
        }
        Choice { shard: first, first: None }
    }

    /// What goes next. None: the lane is over.
    pub(super) fn next(&self, shard: &Shard) -> Option<Attempt> {
        let lanes = &mut *lock(&self.lanes);
        let lane = lanes.get_mut(&shard.sub_key)?;
        let Some(work) = lane.waiting.pop_front() else {
            lanes.remove(&shard.sub_key);
            return None;
        };
        let number = self.numbers.fetch_add(1, Ordering::Relaxed) + 1;
        Some(Attempt { work, number, generation: None, unknown: None, failed: 0 })
    }

    /// Sends a request once. Gives it back if it has to be sent again.
    pub(super) async fn send(self: &Arc<Self>, lane: &Lane, mut attempt: Attempt) -> Option<Attempt> {
        let (shard, first, now) = (&lane.shard, lane.first.as_ref(), Instant::now());
        if let Some(first) = first
            && attempt.generation.is_none()
        {
            attempt.generation = self.hot.counts(&first.sub_key, now);
            if attempt.generation.is_none() {
                self.hand_over(shard, first, attempt.work);
                return None;
            }
        }
        // The tenth that is left out is for clocks that drift apart, and masters that take over.
        let lasts = Duration::from_micros(self.terms.horizon * 9 / 10);
        let not_after = || self.clocks.at(shard.slot, now) + lasts.as_micros() as Micros;
        let copied = attempt.unknown.unwrap_or_else(|| Copied { since: now, not_after: not_after() });
        if now - copied.since >= lasts {
            attempt.work.lose(&format!("no answer for {lasts:?}"));
            return None;
        }
        let client = *self.client.get_or_init(rand::random);
        let once = Once { client, number: attempt.number, not_after: copied.not_after };
        let (amount, bound) = (attempt.work.amount(), attempt.work.bound);
        let run = CountRun::Add { amount, bound, once, generation: attempt.generation };
        let sent = AtomicBool::new(false);
        let write = |cmd: &mut redis::Cmd| run.write(&self.terms, first.is_none(), cmd);
        let mut reply = pin!(shard.run(&self.shards.engine, Script::Counter, write, &sent, CountReply::parse));
        let reply = loop {
            let due = self.next_due(shard, &attempt.work);
            tokio::select! {
                biased;
                reply = &mut reply => break reply,
                () = tokio::time::sleep_until(due.into()) => {}
                () = lane.hurry.notified() => {}
            }
            let may_have_run = attempt.unknown.is_some() || sent.load(Ordering::Relaxed);
            if !self.expire(shard, &mut attempt.work, may_have_run) {
                return None;
            }
        };
        match reply {
            Ok(reply) => {
                self.clocks.learn(shard.slot, reply.now, Instant::now());
                if self.shards.count > 1 && first.is_none() {
                    let counts = (reply.is_hot && reply.generation.ends > 0).then_some(reply.generation);
                    self.hot.heard(&shard.sub_key, counts, Instant::now());
                }
                match reply.verdict {
                    Verdict::Done | Verdict::Above => attempt.work.deliver(reply.verdict, reply.total),
                    Verdict::Overflow => attempt.work.refuse(&overflow(reply.total)),
                    // Now its clock is known.
                    Verdict::Late if attempt.unknown.is_none() => return Some(attempt.again()),
                    Verdict::Late => attempt.work.lose("no answer until it was too late by the server's clock"),
                    Verdict::Over => {
                        if let Some(first) = first {
                            self.hot.heard(&first.sub_key, None, Instant::now());
                            self.hand_over(shard, first, attempt.work);
                        }
                    }
                    Verdict::Crowded => return self.failed(shard, attempt, &crowded(), copied),
                }
                None
            }
            Err(fault) => self.failed(shard, attempt, &fault, copied),
        }
    }

    fn failed(&self, shard: &Shard, mut attempt: Attempt, fault: &Fault, copied: Copied) -> Option<Attempt> {
        // A store that is away fails every try of every key: each request tells once.
        if attempt.failed == 0 {
            observe::fault(&self.name, &shard.sub_key, fault, 1);
        }
        if matches!(fault, Fault::Unknown(_)) {
            attempt.unknown = Some(copied);
        } else if attempt.work.bound.is_some() && attempt.unknown.is_none() {
            // Whoever asks whether there is room wants to know now, not that it is asked later.
            attempt.work.refuse(&into_error(Aim::Change, fault.clone()));
            return None;
        }
        Some(attempt.again())
    }

    /// When somebody who waits here has to be told something. Whoever comes later and has less time says so.
    pub(super) fn next_due(&self, shard: &Shard, work: &Work) -> Instant {
        let far = Instant::now() + Duration::from_secs(3_600);
        let own = work.due().unwrap_or(far);
        let lanes = &mut *lock(&self.lanes);
        let Some(lane) = lanes.get_mut(&shard.sub_key) else { return own };
        lane.looks_at = lane.waiting.iter().filter_map(Work::due).min().map_or(own, |due| due.min(own));
        lane.looks_at
    }

    /// Lets go of those who have waited long enough. `false`: the work itself is over.
    pub(super) fn expire(&self, shard: &Shard, work: &mut Work, may_have_run: bool) -> bool {
        let now = Instant::now();
        if let Some(lane) = lock(&self.lanes).get_mut(&shard.sub_key) {
            lane.waiting.retain_mut(|work| work.expire(now, false));
        }
        work.expire(now, may_have_run)
    }
}

impl Queue {
    fn of(work: Work) -> Self {
        // The lane looks when it begins.
        let looks_at = Instant::now();
        Self { waiting: VecDeque::from([work]), looks_at, hurry: Arc::default() }
    }

    /// Somebody has to be told something by then.
    fn look_by(&mut self, due: Instant) {
        if due < self.looks_at {
            self.looks_at = due;
            self.hurry.notify_one();
        }
    }
}

impl Attempt {
    fn again(mut self) -> Self {
        self.failed += 1;
        self
    }
}

fn crowded() -> Fault {
    Fault::Refused(format!(
        "{} clients have added to this shard within its horizon, as many as it remembers; use more shards or a shorter horizon",
        super::kernel::MOST_CLIENTS
    ))
}
