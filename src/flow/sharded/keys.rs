//! The keys that this process knows, bounded in their number.
//!
//! A key in use has an [`Entry`]. Of one that is idle and not split there is nothing that its home would not tell with
//! the next answer, except that it is worth no question for a while, and what it had lately, in case that home does not answer: so
//! that is all that is kept of it.

use std::hash::BuildHasher;
use std::ops::Deref;

use hashbrown::HashTable;

use super::SharedLimit;
use super::call::SILENCE;
use super::entry::Entry;
use super::lane::Counts;
use super::meter::Meter;
use crate::clock::Micros;
use crate::decision::{DecidedBy, Decision, StoreFacts};
use crate::error::Error;
use crate::sync::{Arc, Mutex, lock};

/// Segments, each under its own lock: 16 threads meet in 1 of 4 calls at the worst, for some 20 ns.
const SEGMENTS: usize = 64;
/// Keys that a full segment looks at for each new one.
const SWEEP: usize = 8;
/// Buckets of a segment that are gone through under its lock at once: some 10 µs,
const STRIDE: usize = 256;
/// and keys that are found in them at the most: they are charged together, in one pipeline.
const TOGETHER: usize = 64;

pub(super) struct Keys {
    segments: Box<[Mutex<Segment>]>,
    hasher: foldhash::quality::RandomState,
}

#[derive(Default)]
struct Segment {
    table: HashTable<Tracked>,
    bound: usize,
    hand: usize,
}

/// 48 bytes and those of the key.
struct Tracked {
    hash: u64,
    key: Box<[u8]>,
    state: Tracking,
}

const _: () = assert!(size_of::<Tracked>() == 48);

enum Tracking {
    /// By calls, tasks, leases or handles, or there is more to keep than has room here.
    InUse(Arc<Entry>),
    Idle {
        /// Until then no ask can be granted, by this process's clock.
        shut_until: Micros,
        lately: Meter,
    },
    /// Idle, and its shard does not answer, or did not a moment ago: what calls are decided by, and what it owes.
    Without { shut_until: Micros, counts: Arc<Counts> },
}

/// A key as it was found.
enum Found {
    InUse(Arc<Entry>),
    /// It was idle, and is in use from now on: its calls are decided without its shard.
    Without(Arc<Entry>),
    /// Worth no question until then.
    Idle(Micros),
}

/// How far keys were gone through.
#[derive(Default)]
pub(super) struct Hand {
    segment: usize,
    bucket: usize,
}

/// What was found on the way.
#[derive(Default)]
pub(super) struct Walked {
    /// Those whose shard is to be charged or given something, and can be tried.
    pub keys: Vec<Box<[u8]>>,
    /// There are such, now or later.
    pub has_seen: bool,
    /// All keys have been gone through.
    pub is_lap: bool,
}

/// An entry that a call uses. The last one who does lets the key fall idle.
pub(crate) struct InUse<'a> {
    limit: &'a SharedLimit,
    /// Taken only when it is dropped.
    entry: Option<Arc<Entry>>,
}

impl Deref for InUse<'_> {
    type Target = Arc<Entry>;

    fn deref(&self) -> &Arc<Entry> {
        self.entry.as_ref().expect("taken only when it is dropped")
    }
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        if let Some(entry) = self.entry.take() {
            self.limit.rest(entry);
        }
    }
}

impl SharedLimit {
    /// The entry of a key.
    pub(crate) fn entry(&self, key: &[u8]) -> InUse<'_> {
        InUse { limit: self, entry: Some(self.keys.entry(self, key)) }
    }

    /// As [`try_acquire`](Self::try_acquire), for a key that may not be in use.
    pub(crate) fn try_acquire_by_key(self: &Arc<Self>, key: &[u8], permits: u64) -> Result<Option<Decision>, Error> {
        self.check_permits(permits)?;
        match self.keys.find(self, key) {
            Found::InUse(entry) => self.try_acquire(&entry, permits),
            Found::Without(entry) => self.try_acquire(&InUse { limit: self, entry: Some(entry) }, permits),
            Found::Idle(shut_until) => Ok(self.shut_while_idle(key, permits, shut_until)),
        }
    }

    /// A denial, if it is known in process. Nothing is taken.
    pub(crate) fn denies(&self, key: &[u8], permits: u64) -> Option<Decision> {
        let entry = match self.keys.find(self, key) {
            Found::InUse(entry) | Found::Without(entry) => InUse { limit: self, entry: Some(entry) },
            Found::Idle(shut_until) => return self.shut_while_idle(key, permits, shut_until),
        };
        let now = self.clock.now();
        if !entry.waits.is_empty()
            && let Some(denied) = self.behind(&entry, permits, now)
        {
            return Some(denied);
        }
        let view = entry.load();
        // A lease may have some, and of a shard that does not answer the policy may know better.
        if entry.purse.is_some() || view.lanes.iter().any(|lane| lane.is_sick(now)) {
            return None;
        }
        self.shut(&entry, &view, permits, now)
    }

    fn shut_while_idle(&self, key: &[u8], permits: u64, shut_until: Micros) -> Option<Decision> {
        let now = self.clock.now();
        let wait = shut_until.checked_sub(now).filter(|wait| *wait > 0)?;
        self.tell_denied(key, permits, now);
        // All of it is used: what is kept of an idle key does not tell when it was.
        let reset_after = wait.max(self.defined.load().period);
        let facts = StoreFacts { remaining: 0, reset_after, exact: false, decided_by: DecidedBy::Ceiling, part: 0 };
        Some(Decision::denied_by_store(facts, wait))
    }

    /// Lets go of an entry. A key that nobody uses any more falls idle.
    pub(super) fn rest(&self, entry: Arc<Entry>) {
        // A plan is worth keeping, also one that is about to be made.
        if entry.has_something_to_keep() || self.may_split(&entry, &entry.load().ledger) {
            return;
        }
        let idle = self.keys.rest(entry, |entry| {
            let now = self.clock.now();
            // Somebody may have left it something since.
            if entry.has_something_to_keep() {
                return None;
            }
            // Not for longer than it would go without a word from home in use: the limit may be raised meanwhile.
            let shut_until = if self.ceiling == 0 { 0 } else { entry.shut_until(now).min(now + SILENCE) };
            Some(match entry.lately(now) {
                Ok(counts) => Tracking::Without { shut_until, counts },
                Err(lately) => Tracking::Idle { shut_until, lately },
            })
        });
        // Not under the segment's lock.
        drop(idle);
    }

    /// Those of a home that granted this lately.
    pub(super) fn counts(&self, lately: Meter) -> Arc<Counts> {
        Arc::new(Counts::new(&self.crowd, self.defined().definition.limit.period(), lately))
    }
}

impl Keys {
    pub(super) fn new(bound: usize) -> Self {
        let bound = bound.div_ceil(SEGMENTS);
        let segment = || Mutex::new(Segment { bound, ..Segment::default() });
        Self { segments: (0..SEGMENTS).map(|_| segment()).collect(), hasher: foldhash::quality::RandomState::default() }
    }

    fn segment(&self, hash: u64) -> &Mutex<Segment> {
        &self.segments[(hash >> 24) as usize % SEGMENTS]
    }

    fn find(&self, limit: &SharedLimit, key: &[u8]) -> Found {
        let hash = self.hasher.hash_one(key);
        let segment = &mut *lock(self.segment(hash));
        match segment.table.find_mut(hash, |tracked| *tracked.key == *key) {
            Some(Tracked { state: Tracking::InUse(entry), .. }) => Found::InUse(Arc::clone(entry)),
            Some(Tracked { state: Tracking::Idle { shut_until, .. }, .. }) => Found::Idle(*shut_until),
            Some(tracked @ Tracked { state: Tracking::Without { .. }, .. }) => Found::Without(tracked.entry(limit)),
            None => Found::Idle(0),
        }
    }

    /// The entry of a key, made anew if it is not in use. A full segment drops any key that nobody uses; if all are in
    /// use, the new one is not kept.
    fn entry(&self, limit: &SharedLimit, key: &[u8]) -> Arc<Entry> {
        let hash = self.hasher.hash_one(key);
        let segment = &mut *lock(self.segment(hash));
        if let Some(tracked) = segment.table.find_mut(hash, |tracked| *tracked.key == *key) {
            return tracked.entry(limit);
        }
        let has_room = segment.table.len() < segment.bound || segment.sweep();
        let entry = Arc::new(Entry::new(limit, key, hash, None, has_room));
        if has_room {
            let tracked = Tracked { hash, key: key.into(), state: Tracking::InUse(Arc::clone(&entry)) };
            segment.table.insert_unique(hash, tracked, |tracked| tracked.hash);
        }
        entry
    }

    /// Gives an entry back; it comes out again if its key falls idle by that, and `idle` is what is kept of it.
    fn rest(&self, entry: Arc<Entry>, idle: impl FnOnce(&Entry) -> Option<Tracking>) -> Option<Arc<Entry>> {
        let hash = entry.owner;
        let segment = &mut *lock(self.segment(hash));
        let is_this = |state: &Tracking| matches!(state, Tracking::InUse(known) if Arc::ptr_eq(known, &entry));
        let tracked = segment.table.find_mut(hash, |tracked| is_this(&tracked.state))?;
        // Under the lock, so that of several who let go at once one is the last.
        drop(entry);
        let Tracking::InUse(last) = &tracked.state else { return None };
        if Arc::strong_count(last) > 1 {
            return None;
        }
        let idle = idle(last)?;
        match std::mem::replace(&mut tracked.state, idle) {
            Tracking::InUse(last) => Some(last),
            Tracking::Idle { .. } | Tracking::Without { .. } => None,
        }
    }

    /// Goes on from `hand` through some keys. Says which of them have something to be charged or given that can be tried now.
    pub(super) fn walk(&self, hand: &mut Hand, now: Micros) -> Walked {
        let mut walked = Walked::default();
        let segment = &mut *lock(&self.segments[hand.segment]);
        let until = (hand.bucket + STRIDE).min(segment.table.num_buckets());
        while hand.bucket < until && walked.keys.len() < TOGETHER {
            if let Ok(mut tracked) = segment.table.get_bucket_entry(hand.bucket) {
                let tracked = tracked.get_mut();
                match tracked.is_behind(now) {
                    Some(true) => walked.keys.push(tracked.key.clone()),
                    Some(false) => {}
                    None => {
                        hand.bucket += 1;
                        continue;
                    }
                }
                walked.has_seen = true;
            }
            hand.bucket += 1;
        }
        if hand.bucket >= segment.table.num_buckets() {
            *hand = Hand { segment: (hand.segment + 1) % SEGMENTS, bucket: 0 };
            walked.is_lap = hand.segment == 0;
        }
        walked
    }
}

impl Tracked {
    /// In use from now on.
    fn entry(&mut self, limit: &SharedLimit) -> Arc<Entry> {
        let (counts, shut_until) = match &self.state {
            Tracking::InUse(entry) => return Arc::clone(entry),
            Tracking::Idle { shut_until, lately } => (limit.counts(*lately), *shut_until),
            Tracking::Without { shut_until, counts } => (Arc::clone(counts), *shut_until),
        };
        let entry = Arc::new(Entry::new(limit, &self.key, self.hash, Some(counts), true));
        entry.shut(limit.clock.now(), shut_until);
        self.state = Tracking::InUse(Arc::clone(&entry));
        entry
    }

    /// Calls, tasks, leases and handles each hold on to an entry, and who owes something is not let go.
    fn is_of_no_use(&self) -> bool {
        match &self.state {
            Tracking::InUse(entry) => Arc::strong_count(entry) == 1 && !entry.owes(),
            Tracking::Idle { .. } => true,
            Tracking::Without { counts, .. } => !counts.fallback.owes(),
        }
    }

    /// Whether its shard is away, or there is something to be charged or given to it; and whether that can be tried now. One whose shard
    /// has been back for long enough is as idle as any other from now on.
    fn is_behind(&mut self, now: Micros) -> Option<bool> {
        match &self.state {
            Tracking::InUse(entry) => entry.is_behind(now),
            Tracking::Idle { .. } => None,
            Tracking::Without { counts, .. } if counts.fallback.owes() => Some(counts.health.is_worth_a_try(now)),
            Tracking::Without { counts, .. } if counts.is_in_use(now) => Some(false),
            Tracking::Without { counts, shut_until } => {
                self.state = Tracking::Idle { shut_until: *shut_until, lately: counts.fallback.lately() };
                None
            }
        }
    }
}

impl Segment {
    fn sweep(&mut self) -> bool {
        let buckets = self.table.num_buckets();
        let mut seen = 0;
        for _ in 0..buckets {
            self.hand = (self.hand + 1) % buckets;
            let Ok(tracked) = self.table.get_bucket_entry(self.hand) else { continue };
            if tracked.get().is_of_no_use() {
                tracked.remove();
                return true;
            }
            seen += 1;
            if seen == SWEEP {
                break;
            }
        }
        false
    }
}
