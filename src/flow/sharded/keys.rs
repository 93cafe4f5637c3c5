//! The keys that this process knows, bounded in their number.
//!
//! A key in use has an [`Entry`]. Of one that is idle and not split there is nothing that its home would not tell with
//! the next answer, except that it is worth no question for a while: so that is all that is kept of it.

use std::hash::BuildHasher;
use std::ops::Deref;

use hashbrown::HashTable;

use super::SharedLimit;
use super::call::SILENCE;
use super::entry::Entry;
use crate::clock::Micros;
use crate::decision::{DecidedBy, Decision, StoreFacts};
use crate::error::Error;
use crate::sync::{Arc, Mutex, lock};

/// Segments, each under its own lock: 16 threads meet in 1 of 4 calls at the worst, for some 20 ns.
const SEGMENTS: usize = 64;
/// Keys that a full segment looks at for each new one.
const SWEEP: usize = 8;

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

/// 40 bytes and those of the key.
struct Tracked {
    hash: u64,
    key: Box<[u8]>,
    /// While the key is in use.
    entry: Option<Arc<Entry>>,
    /// Until then no ask can be granted, by this process's clock; of a key that is idle.
    shut_until: Micros,
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
        let shut_until = match self.keys.find(key) {
            Ok(entry) => return self.try_acquire(&entry, permits),
            Err(shut_until) => shut_until,
        };
        Ok(self.shut_while_idle(key, permits, shut_until))
    }

    /// A denial, if it is known in process. Nothing is taken.
    pub(crate) fn denies(&self, key: &[u8], permits: u64) -> Option<Decision> {
        let entry = match self.keys.find(key) {
            Ok(entry) => InUse { limit: self, entry: Some(entry) },
            Err(shut_until) => return self.shut_while_idle(key, permits, shut_until),
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
        let facts =
            StoreFacts { remaining: 0, reset_after: wait, exact: false, decided_by: DecidedBy::Ceiling, part: 0 };
        Some(Decision::denied_by_store(facts, wait))
    }

    /// Lets go of an entry. A key that nobody uses any more falls idle.
    pub(super) fn rest(&self, entry: Arc<Entry>) {
        // A plan is worth keeping, also one that is about to be made.
        if entry.has_something_to_keep() || self.may_split(&entry, &entry.load().ledger) {
            return;
        }
        let shut_until = |entry: &Entry| {
            let now = self.clock.now();
            // Not for longer than it would go without a word from home in use: the limit may be raised meanwhile.
            if self.ceiling == 0 { 0 } else { entry.shut_until(now).min(now + SILENCE) }
        };
        let idle = self.keys.rest(entry, shut_until);
        // Not under the segment's lock.
        drop(idle);
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

    /// The entry of a key in use; of any other, until when it is worth no question.
    fn find(&self, key: &[u8]) -> Result<Arc<Entry>, Micros> {
        let hash = self.hasher.hash_one(key);
        let segment = lock(self.segment(hash));
        match segment.table.find(hash, |tracked| *tracked.key == *key) {
            Some(Tracked { entry: Some(entry), .. }) => Ok(Arc::clone(entry)),
            Some(tracked) => Err(tracked.shut_until),
            None => Err(0),
        }
    }

    /// The entry of a key, made anew if it is not in use. A full segment drops any key that nobody uses; if all are in
    /// use, the new one is not kept.
    fn entry(&self, limit: &SharedLimit, key: &[u8]) -> Arc<Entry> {
        let hash = self.hasher.hash_one(key);
        let segment = &mut *lock(self.segment(hash));
        if let Some(tracked) = segment.table.find_mut(hash, |tracked| *tracked.key == *key) {
            let shut_until = tracked.shut_until;
            let in_use = || {
                let entry = Arc::new(Entry::new(limit, key, hash));
                entry.shut(limit.clock.now(), shut_until);
                entry
            };
            return Arc::clone(tracked.entry.get_or_insert_with(in_use));
        }
        let entry = Arc::new(Entry::new(limit, key, hash));
        if segment.table.len() < segment.bound || segment.sweep() {
            let tracked = Tracked { hash, key: key.into(), entry: Some(Arc::clone(&entry)), shut_until: 0 };
            segment.table.insert_unique(hash, tracked, |tracked| tracked.hash);
        }
        entry
    }

    /// Gives an entry back; it comes out again if its key falls idle by that.
    fn rest(&self, entry: Arc<Entry>, shut_until: impl FnOnce(&Entry) -> Micros) -> Option<Arc<Entry>> {
        let hash = entry.owner;
        let segment = &mut *lock(self.segment(hash));
        let same = |tracked: &Tracked| tracked.entry.as_ref().is_some_and(|known| Arc::ptr_eq(known, &entry));
        let tracked = segment.table.find_mut(hash, same)?;
        // Under the lock, so that of several who let go at once one is the last.
        drop(entry);
        let last = tracked.entry.take_if(|entry| Arc::strong_count(entry) == 1)?;
        tracked.shut_until = shut_until(&last);
        Some(last)
    }
}

impl Segment {
    fn sweep(&mut self) -> bool {
        let buckets = self.table.num_buckets();
        let mut seen = 0;
        for _ in 0..buckets {
            self.hand = (self.hand + 1) % buckets;
            let Ok(tracked) = self.table.get_bucket_entry(self.hand) else { continue };
            // Calls, tasks, leases and handles each hold on to it.
            if tracked.get().entry.as_ref().is_none_or(|entry| Arc::strong_count(entry) == 1) {
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
