//! The keys that this process knows, bounded in their number.
//!
//! A key in use has an [`Entry`]. Of one that is idle there is little that its home would not tell with the next answer: see
//! [`Tracking`].

use std::hash::BuildHasher;
use std::ops::Deref;

use super::SharedLimit;
use super::ceiling::Shut;
use super::counts::Counts;
use super::entry::Entry;
use super::losses::Lost;
use super::meter::Meter;
use super::tracked::{Found, Left, Segment, Tracked};
use crate::clock::Micros;
use crate::decision::{DecidedBy, Decision, StoreFacts};
use crate::error::Error;
use crate::sync::atomic::Ordering;
use crate::sync::{Arc, Mutex, lock};

/// Segments, each under its own lock: 16 threads meet in 1 of 4 calls at the worst, for some 20 ns.
const SEGMENTS: usize = 64;
/// Buckets of a segment that are gone through under its lock at once: some 10 µs,
const STRIDE: usize = 256;
/// and keys that are found in them at the most: they are charged together, in one pipeline.
const TOGETHER: usize = 64;

pub(super) struct Keys {
    segments: Box<[Mutex<Segment>]>,
    hasher: foldhash::quality::RandomState,
}

/// How far keys were gone through.
#[derive(Default)]
pub(super) struct Hand {
    segment: usize,
    bucket: usize,
    /// As the segment has it: where keys came to lie elsewhere since, it is gone through from its beginning again.
    moved: usize,
}

/// What was found on the way.
#[derive(Default)]
pub(super) struct Walked {
    /// Those whose shard is to be charged or given something, and can be tried.
    pub keys: Vec<Box<[u8]>>,
    /// There are such, now or later, or a shard is away.
    pub has_seen: bool,
    /// Something is to be charged or given, or on its way.
    pub has_left: bool,
    /// All keys have been gone through.
    pub is_lap: bool,
}

/// An entry that a call uses. The last one who does lets the key fall idle.
pub(crate) struct InUse<'a> {
    limit: &'a Arc<SharedLimit>,
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
    pub(crate) fn entry(self: &Arc<Self>, key: &[u8]) -> InUse<'_> {
        let (entry, left) = self.keys.entry(self, key);
        self.leave(left);
        InUse { limit: self, entry: Some(entry) }
    }

    /// As [`try_acquire`](Self::try_acquire), for a key that may not be in use.
    pub(crate) fn try_acquire_by_key(self: &Arc<Self>, key: &[u8], permits: u64) -> Result<Option<Decision>, Error> {
        self.check_permits(permits)?;
        match self.keys.find(self, key) {
            Found::InUse(entry) => {
                let decision = self.try_acquire(&entry, permits);
                // Whoever used it let go meanwhile. While others do (and the table), it is theirs to let go of: nothing is locked for that.
                // Of two who come here at once each may take the other for one of them: then it stays whole until its next call.
                if Arc::strong_count(&entry) <= 2 {
                    self.rest(entry);
                }
                decision
            }
            Found::Without(entry) => self.try_acquire(&InUse { limit: self, entry: Some(entry) }, permits),
            Found::Idle(shut) => Ok(self.shut_while_idle(key, permits, shut)),
        }
    }

    /// A denial, if it is known in process. Nothing is taken.
    pub(crate) fn denies(self: &Arc<Self>, key: &[u8], permits: u64) -> Option<Decision> {
        let entry = match self.keys.find(self, key) {
            Found::InUse(entry) | Found::Without(entry) => InUse { limit: self, entry: Some(entry) },
            Found::Idle(shut) => return self.shut_while_idle(key, permits, shut),
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

    fn shut_while_idle(&self, key: &[u8], permits: u64, shut: Shut) -> Option<Decision> {
        let now = self.clock.now();
        if shut.holds <= now {
            return None;
        }
        let wait = shut.opens_at - now;
        self.tell_denied(key, permits, now);
        // All of it is used: what is kept of an idle key does not tell when it was.
        let reset_after = wait.max(self.defined.load().period);
        let facts = StoreFacts { remaining: 0, reset_after, exact: false, decided_by: DecidedBy::Ceiling, part: 0 };
        Some(Decision::denied_by_store(facts, wait))
    }

    /// Lets go of an entry after a call. A key that nobody uses any more falls idle; one with a plan, when others need its room.
    pub(super) fn rest(self: &Arc<Self>, entry: Arc<Entry>) {
        if !entry.is_listed.load(Ordering::Relaxed) {
            self.let_go(entry);
        }
    }

    /// The same for tasks, leases and handles: nobody is known to need it any more.
    pub(crate) fn let_go(self: &Arc<Self>, entry: Arc<Entry>) {
        // A plan is worth keeping, also one that is about to be made.
        let is_planned = entry.has_plan() || self.may_split(&entry, &entry.load().ledger);
        self.leave(self.keys.let_go(self, entry, is_planned));
    }

    /// Drops what nobody needs any more: not under a segment's lock.
    fn leave(self: &Arc<Self>, left: Left) {
        if left.is_crowded {
            self.call_packer();
        }
        // What is left of a key that nobody keeps is lost with it.
        if let Some(entry) = left.stray.and_then(Arc::into_inner) {
            self.lose(&entry.key, entry.write_off());
        }
    }

    /// Those of a home that granted this lately.
    pub(super) fn counts(&self, lately: Meter) -> Arc<Counts> {
        Arc::new(Counts::new(&self.crowd, self.defined().definition.limit.period(), lately))
    }
}

/// Segments have so many parts of all keys, the last one nearly twice as many as the first. A table doubles its places when it is full: if all did at once, a
/// key would take 112 bytes of them then, and 56 just before. By turns it is 64 to 84.
const fn part(segment: usize) -> u128 {
    (2 * (SEGMENTS + segment) + 1) as u128
}

/// Of all together.
const PARTS: u128 = (3 * SEGMENTS * SEGMENTS) as u128;

/// Two of three keys go to any segment, and one to the later of two.
fn segment_of(hash: u64) -> usize {
    let any = |bits: u32| (hash >> bits) as usize % SEGMENTS;
    if ((hash >> 36) as u16).is_multiple_of(3) { any(24).max(any(30)) } else { any(24) }
}

impl Keys {
    pub(super) fn new(bound: usize) -> Self {
        let segment = |number| Mutex::new(Segment::new((bound as u128 * part(number)).div_ceil(PARTS) as usize));
        let segments = (0..SEGMENTS).map(segment).collect();
        Self { segments, hasher: foldhash::quality::RandomState::default() }
    }

    fn segment(&self, hash: u64) -> &Mutex<Segment> {
        &self.segments[segment_of(hash)]
    }

    fn find(&self, limit: &SharedLimit, key: &[u8]) -> Found {
        let hash = self.hasher.hash_one(key);
        lock(self.segment(hash)).find(limit, hash, key)
    }

    /// The entry of a key, made anew if it is not in use. A full segment drops any key that nobody uses; if all are in
    /// use, the new one is not kept.
    fn entry(&self, limit: &SharedLimit, key: &[u8]) -> (Arc<Entry>, Left) {
        let hash = self.hasher.hash_one(key);
        let mut left = Left::default();
        let entry = lock(self.segment(hash)).entry(limit, hash, key, &mut left);
        (entry, left)
    }

    /// Gives an entry back. What comes out fell idle by that.
    fn let_go(&self, limit: &SharedLimit, entry: Arc<Entry>, is_planned: bool) -> Left {
        let mut left = Left::default();
        lock(self.segment(entry.owner)).let_go(limit, entry, is_planned, &mut left);
        left
    }

    pub(super) fn segments(&self) -> impl Iterator<Item = &Mutex<Segment>> {
        self.segments.iter()
    }

    /// Goes on from `hand` through some keys. Says which of them have something to be charged or given that can be tried now.
    pub(super) fn walk(&self, hand: &mut Hand, now: Micros) -> Walked {
        let mut walked = Walked::default();
        let segment = &mut *lock(&self.segments[hand.segment]);
        if hand.moved != segment.moved {
            (hand.bucket, hand.moved) = (0, segment.moved);
        }
        let until = (hand.bucket + STRIDE).min(segment.table.num_buckets());
        while hand.bucket < until && walked.keys.len() < TOGETHER {
            if let Ok(mut tracked) = segment.table.get_bucket_entry(hand.bucket) {
                let tracked = tracked.get_mut();
                walked.has_left |= tracked.has_left();
                match tracked.is_behind(now) {
                    Some(true) => walked.keys.push(tracked.key().into()),
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
            *hand = Hand { segment: (hand.segment + 1) % SEGMENTS, ..Hand::default() };
            walked.is_lap = hand.segment == 0;
        }
        walked
    }
}

impl Keys {
    /// Whether something waits to be given back to a shard of any of them.
    pub(super) fn have_kept(&self) -> bool {
        self.segments.iter().any(|segment| lock(segment).table.iter().any(Tracked::has_kept))
    }

    /// At the end: what is lost of all of them.
    pub(super) fn write_off(&self) -> Lost {
        let mut lost = Lost::default();
        for segment in &self.segments {
            lock(segment).table.iter().for_each(|tracked| lost += tracked.write_off());
        }
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each segment has room for the keys that come to it, and none for many more.
    #[test]
    fn segments_have_their_parts_of_all_keys() {
        const KEYS: usize = 1 << 20;
        assert_eq!((0..SEGMENTS).map(part).sum::<u128>(), PARTS);
        let hasher = foldhash::quality::RandomState::default();
        let mut found = [0_u64; SEGMENTS];
        (0..KEYS).for_each(|key| found[segment_of(hasher.hash_one(key))] += 1);
        for (segment, found) in found.into_iter().enumerate() {
            let due = KEYS as f64 * part(segment) as f64 / PARTS as f64;
            assert!((found as f64 - due).abs() < 6.0 * due.sqrt(), "{found} in segment {segment}, {due} are due");
        }
    }

    /// All tables together never have many more places than keys.
    #[test]
    fn tables_double_by_turns() {
        let places = |keys: f64| (keys * 8.0 / 7.0) as usize;
        for keys in (10_000..4_000_000).step_by(10_000) {
            let of = |segment| places(f64::from(keys) * part(segment) as f64 / PARTS as f64).next_power_of_two();
            let all: usize = (0..SEGMENTS).map(of).sum();
            assert!((all as f64) < 1.75 * f64::from(keys), "{all} places for {keys} keys");
        }
    }
}
