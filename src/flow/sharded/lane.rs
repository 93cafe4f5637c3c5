//! A lane: the calls of this process that go to one shard.
//!
//! While a round is on its way the next one gathers; an idle lane sends at once, or as soon as those are in who come together. So nothing waits for a timer, and the
//! more calls there are, the fewer script runs each of them costs.

use std::task::Waker;
use std::time::Duration;

use tokio::sync::Notify;

use super::ahead::Ahead;
use super::ceiling::{Ceiling, Known, Note};
use super::counts::Counts;
use super::job::{Miss, Work};
use super::queue::{Alone, Drive, Load, MOST_ASKS, Queue, Start, sum};
use super::round::{Decided, Round, Sealed};
use super::row::{Joined, Late, Row, Trip};
use super::seat::Seat;
use super::stripes::{Stripes, UNTOLD};
use crate::clock::Micros;
use crate::error::{Error, ErrorKind};
use crate::kernel::{Header, Refund, Verdict};
use crate::key::Slot;
use crate::limit::Share;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Arc, Mutex, lock};
use crate::wire::GrantId;

/// Rounds that may wait for one shard. At a millisecond each that is 100 ms of waiting; more would be of no use.
const MOST_ROUNDS: usize = 100;

/// Refunds that wait for a shard that can't be reached. What is above it is lost: the limit is that much stricter.
const MOST_KEPT: usize = 10_000;

/// The load of a shard that has not said what it is.
pub(super) const UNKNOWN: u64 = u64::MAX;

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
    /// Runs a second that it had to write for, all clients' together, as of its last answer; [`UNKNOWN`] before the first.
    pub load: AtomicU64,
    /// When its state was last written for the sake of its time to live.
    pub touched: AtomicU64,
    /// Shared with the lanes to the same slot before and after this one.
    pub counts: Arc<Counts>,
    pub(super) waiting: AtomicUsize,
    /// The first deadline of the calls that wait for the next round, or earlier.
    first_due: AtomicU64,
    /// Its last round had more than one call: whoever finds it idle is likely not to come alone.
    pub is_shared: AtomicBool,
    /// When whoever sends for the lane looks at deadlines next, and what has him look at once.
    pub looks_at: AtomicU64,
    pub hurry: Notify,
    /// The [`Ahead`] of the queue, for those who read it without a lock.
    pub(super) ahead: AtomicU64,
    pub(super) queue: Mutex<Queue>,
    pub(super) stripes: Stripes,
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
            ceiling: Ceiling::new(),
            load: AtomicU64::new(UNKNOWN),
            touched: AtomicU64::new(0),
            counts,
            waiting: AtomicUsize::new(0),
            first_due: AtomicU64::new(Micros::MAX),
            is_shared: AtomicBool::new(false),
            looks_at: AtomicU64::new(Micros::MAX),
            hurry: Notify::new(),
            ahead: AtomicU64::new(0),
            queue: Mutex::default(),
            stripes: Stripes::new(),
        }
    }

    /// A request of it that was sent `then` had no answer: until the next one that has, calls go elsewhere.
    pub(super) fn failed(&self, then: Micros, now: Micros, why: &str) {
        self.counts.fallback.begin(then);
        self.counts.health.failed(now, why);
    }

    /// One that was sent `then` has none by the deadline.
    pub(super) fn overdue(&self, then: Micros, now: Micros) {
        self.counts.fallback.begin(then);
        self.counts.health.overdue(now);
    }

    /// What a call learns that it can't decide.
    pub(super) fn sick(&self, now: Micros) -> Error {
        let why = self.counts.health.why().unwrap_or_else(|| "no answer by the deadline".into());
        let again = Duration::from_micros(self.tried_in(now));
        let message = format!("a shard does not answer ({why}) and is tried again in {again:?}; nothing was charged");
        Error::new(ErrorKind::NotSent, "redis", message)
    }

    /// It has answered in time.
    pub(super) fn answered(&self, now: Micros) {
        self.counts.fallback.end(self.counts.health.answered(), now);
    }

    pub(super) fn is_sick(&self, now: Micros) -> bool {
        self.counts.health.is_sick(now)
    }

    /// How long until a shard that is sick is tried again.
    pub(super) fn tried_in(&self, now: Micros) -> Micros {
        self.counts.health.tried_in(now)
    }

    /// The most permits that the shard can have, as far as it can be reached.
    pub(crate) fn most(&self, now: Micros) -> u64 {
        if self.is_sick(now) { 0 } else { self.ceiling.known().most(&self.share, now) }
    }

    /// How long until it could grant so many permits, behind the calls of this process that are on their way; zero if it
    /// could now, and none if never.
    #[inline]
    pub(super) fn opens_in(&self, known: &Known, permits: u64, now: Micros) -> Option<Micros> {
        known.opens_in(&self.share, permits, Ahead::of(self.ahead.load(Ordering::Relaxed), permits), now)
    }

    /// Whether it is worth asking for so many permits.
    pub(super) fn is_open(&self, permits: u64, now: Micros) -> bool {
        !self.is_sick(now) && self.opens_in(&self.ceiling.known(), permits, now) == Some(0)
    }

    /// The most permits that the shard can have when the calls on their way to it have theirs.
    pub(super) fn spare(&self, now: Micros) -> u64 {
        self.most(now).saturating_sub(Ahead::all(self.ahead.load(Ordering::Relaxed)))
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Puts a call into the lane that has come just `now`, by which verdicts are in order. The caller sees to what has to start. Whoever finds the lane
    /// idle may send by himself, and then his seat need not wake him: his waker is left to him.
    pub(super) fn put(
        self: &Arc<Self>,
        work: Work,
        (now, due): (Micros, Micros),
        waker: &mut Option<Waker>,
    ) -> (Seat, Start) {
        let permits = if let Work::Ask(permits) = work { permits } else { 0 };
        if permits > 0
            && let Some(seat) = self.stripes.join(permits, (now, due), waker)
        {
            return (seat, Start::Nothing);
        }
        let queue = &mut *lock(&self.queue);
        if queue.seats == MOST_ASKS {
            queue.recall(self);
        }
        if queue.rounds.is_empty() || queue.seats == MOST_ASKS {
            if queue.rounds.len() == MOST_ROUNDS || self.counts.crowd.is_full() {
                return (self.turn_away(queue.rounds.len() == MOST_ROUNDS), Start::Crowded);
            }
            queue.close(self);
            queue.rounds.push_back(Round::new(self));
            queue.seats = 0;
        }
        queue.seats += 1;
        if queue.seats == UNTOLD {
            self.stripes.make();
        }
        let gathers = !queue.busy && self.is_shared.load(Ordering::Relaxed);
        queue.busy |= gathers;
        let waker = waker.take_if(|_| queue.busy);
        let round = queue.rounds.back().expect("one is there by now");
        // If the lane is idle, the round goes at once: nobody may join who would depend on this call.
        let own = if queue.busy { self.stripes.row(round) } else { None };
        let (row, is_own) = own.map_or_else(|| (round.row(), false), |row| (row, true));
        let seat = row.join(work, (now, due), waker);
        let mut joined = Joined::one(permits);
        if is_own {
            let (untold, more) = row.open(self.stripes.room(MOST_ASKS - queue.seats, self.burst, permits));
            joined.add(untold);
            queue.seats += more;
            queue.is_open = true;
        }
        queue.hear(self, joined);
        if due < self.first_due.load(Ordering::Relaxed) {
            self.first_due.store(due, Ordering::Relaxed);
            if due < self.looks_at.load(Ordering::Relaxed) {
                self.hurry.notify_one();
            }
        }
        let start = match (queue.take(self), queue.alone.take()) {
            (Some(load), _) => Start::Send(load),
            (None, None) if gathers => Start::Gather,
            (None, Some(Alone { drive, waker, .. })) => Start::Spawn(drive, waker),
            (None, None) if permits > 0 && queue.fills(self.burst) => Start::Full,
            (None, None) => Start::Nothing,
        };
        (seat, start)
    }

    /// The seat of a call that there is no room for: here, or in the whole limiter.
    #[cold]
    fn turn_away(self: &Arc<Self>, is_full: bool) -> Seat {
        let message = if is_full {
            format!("{} calls wait for one shard already; nothing was charged", MOST_ROUNDS * MOST_ASKS)
        } else {
            let most = self.counts.crowd.most;
            format!("{most} requests of all keys are under way already; nothing was charged; see max_in_flight")
        };
        Row::refused(self, Miss::not_sent("redis", message))
    }

    /// The first deadline of the calls that wait for the next round, or earlier.
    pub(super) fn first_due(&self) -> Micros {
        self.first_due.load(Ordering::Relaxed)
    }

    /// Says when deadlines are looked at next: at `due`, or at the first deadline of those who wait if that is earlier. Under the
    /// lock that calls join under: one that comes meanwhile is seen here, or sees this and hurries.
    pub(super) fn look_by(&self, due: Micros) -> Micros {
        let _queue = lock(&self.queue);
        let due = due.min(self.first_due());
        self.looks_at.store(due, Ordering::Relaxed);
        due
    }

    /// Lets those of them go whose deadline has passed.
    pub(super) fn expire(&self, now: Micros, late: &mut Late) {
        if now < self.first_due() {
            return;
        }
        let queue = &*lock(&self.queue);
        let mut first_due = Micros::MAX;
        for round in &queue.rounds {
            round.expire(now, late);
            first_due = first_due.min(round.first_due());
        }
        self.first_due.store(first_due, Ordering::Relaxed);
    }

    /// Leaves it to a call of this round to send for the lane, until `waker` wakes it. It comes back if somebody else waits
    /// by now.
    pub(super) fn leave_to(&self, trip: &Arc<Trip>, drive: Drive, waker: &Waker) -> Option<Drive> {
        let queue = &mut *lock(&self.queue);
        if !queue.rounds.is_empty() {
            return Some(drive);
        }
        queue.alone = Some(Alone { drive, waker: waker.clone(), trip: Arc::clone(trip) });
        None
    }

    /// What was left to a call of this round, unless somebody else has taken it over.
    pub(super) fn take_over(&self, trip: &Arc<Trip>) -> Option<Drive> {
        let alone = lock(&self.queue).alone.take_if(|alone| Arc::ptr_eq(&alone.trip, trip));
        alone.map(|alone| alone.drive)
    }

    /// Sends back what nobody waits for.
    pub(super) fn give_back(self: &Arc<Self>, refund: Refund) -> Option<Load> {
        let queue = &mut *lock(&self.queue);
        queue.refunds.push(refund);
        queue.take(self)
    }

    /// Keeps what was surely not given back for the next round. It waits for one: nothing is sent for its sake. Says how many
    /// permits there is no room for: they are lost.
    #[must_use = "what is lost is counted"]
    pub(super) fn keep(&self, refunds: Vec<Refund>) -> u64 {
        let kept = &mut lock(&self.queue).kept;
        let mut refunds = refunds.into_iter();
        kept.extend(refunds.by_ref().take(MOST_KEPT.saturating_sub(kept.len())));
        refunds.map(|refund| refund.permits).sum()
    }

    /// What was kept, for the lane that goes on in its place.
    pub(super) fn take_kept(&self) -> Vec<Refund> {
        std::mem::take(&mut lock(&self.queue).kept)
    }

    /// The shard has taken refunds: those that waited for it are sent.
    pub(super) fn send_kept(&self) {
        let queue = &mut *lock(&self.queue);
        queue.refunds.append(&mut queue.kept);
    }

    /// What went back with the last round has arrived, or is seen to.
    pub(super) fn returned(&self) {
        lock(&self.queue).returning = 0;
    }

    /// Whether something goes back that nobody waits for, or has to.
    pub(super) fn is_returning(&self) -> bool {
        let queue = lock(&self.queue);
        queue.returning > 0 || !queue.refunds.is_empty() || !queue.kept.is_empty()
    }

    /// Whether something is on its way back, or is with the next round.
    pub(super) fn is_giving_back(&self) -> bool {
        let queue = lock(&self.queue);
        queue.returning > 0 || !queue.refunds.is_empty()
    }

    /// At the end: permits that did not go back, or may not have.
    pub(super) fn write_off(&self) -> u64 {
        let queue = &mut *lock(&self.queue);
        std::mem::take(&mut queue.lost) + sum(&queue.refunds.split_off(0)) + sum(&queue.kept.split_off(0))
    }

    /// Whether the shard has to be charged or given something, also if no call comes.
    pub(super) fn is_behind(&self) -> bool {
        self.counts.fallback.owes() || self.has_kept()
    }

    pub(super) fn has_kept(&self) -> bool {
        !lock(&self.queue).kept.is_empty()
    }

    /// Takes note of what the shard answered.
    pub(super) fn note(
        &self,
        sealed: &Sealed,
        header: &Header,
        share: &Share,
        verdicts: &[Verdict],
        (sent, cap): (Micros, Micros),
    ) {
        let (mut allowed, mut permits, mut denied, mut lacking) = (0, 0, 0, None);
        for (ask, verdict) in sealed.asks.iter().zip(verdicts) {
            allowed += verdict.granted;
            permits += verdict.granted * ask.permits;
            denied += ask.count - verdict.granted;
            if verdict.granted < ask.count && lacking.is_none() {
                lacking = Some((ask.permits, verdict.lack));
            }
        }
        self.counts.allowed.fetch_add(allowed, Ordering::Relaxed);
        self.counts.denied.fetch_add(denied, Ordering::Relaxed);
        if permits > 0 {
            self.counts.fallback.granted(permits, sent);
        }
        // What these calls took is in the answer: first they must be on their way no more.
        self.leave(sealed);
        self.ceiling.note(&Note { share, header, denied: lacking, sent, cap });
    }

    /// Answers a round that came back from the shard. Permits that nobody waits for any more go back with the next one.
    pub(super) fn decide(&self, round: &Arc<Round>, sealed: Sealed, decided: Decided) {
        let surplus = round.answer(sealed, Ok(decided));
        if !surplus.is_empty() {
            lock(&self.queue).refunds.extend(surplus);
        }
    }

    /// Answers a round that did not.
    pub(super) fn miss(&self, round: &Arc<Round>, sealed: Sealed, miss: Miss) {
        self.leave(&sealed);
        round.answer(sealed, Err(miss));
    }

    /// These calls are on their way no more.
    pub(super) fn leave(&self, sealed: &Sealed) {
        let ahead = &mut lock(&self.queue).ahead;
        self.waiting.store(self.waiting() - sealed.calls(), Ordering::Relaxed);
        ahead.permits -= sealed.asked;
        if ahead.permits == 0 {
            ahead.largest = 0;
        }
        self.ahead.store(ahead.packed(), Ordering::Relaxed);
    }
}

/// `now` by the clock that ceilings go by.
pub(super) fn is_due(last: &AtomicU64, now: Micros, period: Micros) -> bool {
    let before = last.load(Ordering::Relaxed);
    now.saturating_sub(before) >= period
        && last.compare_exchange(before, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}
