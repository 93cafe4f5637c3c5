//! A concurrent map from keys to small values, bounded in the number of keys.
//!
//! Look-ups take no lock that keys share. New keys go through one of a few *segments*, each with a ring of its keys
//! and a hand that sweeps over it like a clock's: when the ring is full, the hand looks at the next few keys and
//! drops one that is idle, which is one whose value says that forgetting it changes nothing. If it finds none, the
//! new key is not tracked: it shares the segment's overflow value with the others that came too late. A key that is
//! tracked later begins with a copy of the overflow value, so it is never better off for having been there.

use std::hash::{BuildHasher, Hash, Hasher};

use papaya::{Equivalent, Guard, HashSet};

use crate::sync::{Arc, Mutex, lock};

/// Keys a full ring looks at for each new one. Enough to find an idle key when at least a quarter are idle (90 %),
/// and cheap enough to pay on each call of a key that finds no room.
const SWEEP: usize = 8;
/// Segments of a large map: more than the cores that insert at once, few enough that each holds plenty of keys.
const MOST_SEGMENTS: usize = 64;
/// Keys that a segment has at the least, so that hashing fills all segments about alike.
const SMALLEST_SEGMENT: usize = 256;

/// What a map can hold.
pub(crate) trait Tracked {
    /// What it takes to judge a value: the share and the time.
    type Context;
    /// Whether forgetting the value would change nothing.
    fn is_idle(&mut self, context: &Self::Context) -> bool;
    /// The value of a key that may have used this overflow value before it had one of its own.
    fn heir(&self) -> Self;
}

pub(crate) struct Keyed<T> {
    entries: HashSet<Handle<T>, AsIs>,
    segments: Box<[Segment<T>]>,
    segment_bound: usize,
    hasher: foldhash::quality::RandomState,
}

struct Segment<T> {
    ring: Mutex<Ring<T>>,
    overflow: Mutex<T>,
}

struct Ring<T> {
    entries: Vec<Arc<Entry<T>>>,
    hand: usize,
}

/// A tracked key with its value.
pub(crate) struct Entry<T> {
    hash: u64,
    key: Box<[u8]>,
    slot: Mutex<Slot<T>>,
}

struct Slot<T> {
    value: T,
    /// How many hold on to the entry: it stays while any does.
    pins: u32,
    /// Dropped from the map; whoever still has a reference looks the key up again.
    gone: bool,
}

impl<T: Tracked + Default> Keyed<T> {
    pub(crate) fn new(bound: usize) -> Self {
        let segments = (bound / SMALLEST_SEGMENT).clamp(1, MOST_SEGMENTS);
        let segment =
            || Segment { ring: Mutex::new(Ring { entries: Vec::new(), hand: 0 }), overflow: Mutex::default() };
        Self {
            entries: HashSet::with_hasher(AsIs),
            segments: (0..segments).map(|_| segment()).collect(),
            segment_bound: bound / segments,
            hasher: foldhash::quality::RandomState::default(),
        }
    }

    /// Seeded at random for each map: the owner of receipts, and safe against keys made to collide.
    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one(key)
    }

    /// Works on the value of a key, which becomes tracked if there is room, under the value's lock.
    pub(crate) fn with<R>(&self, hash: u64, key: &[u8], context: &T::Context, work: impl FnOnce(&mut T) -> R) -> R {
        let guard = self.entries.guard();
        let mut work = work;
        loop {
            if let Some(Handle(entry)) = self.entries.get(&Probe { hash, key }, &guard) {
                let mut slot = lock(&entry.slot);
                if !slot.gone {
                    return work(&mut slot.value);
                }
            }
            match self.with_new(hash, key, context, &guard, work) {
                Ok(done) => return done,
                Err(not_done) => work = not_done,
            }
        }
    }

    /// Gives `work` back when the key was tracked meanwhile.
    fn with_new<R, W: FnOnce(&mut T) -> R>(
        &self,
        hash: u64,
        key: &[u8],
        context: &T::Context,
        guard: &impl Guard,
        work: W,
    ) -> Result<R, W> {
        let segment = self.segment(hash);
        let mut ring = lock(&segment.ring);
        if self.entries.contains(&Probe { hash, key }, guard) {
            return Err(work);
        }
        // More than one may have to go: pins can lift a ring above its bound.
        while ring.entries.len() >= self.segment_bound {
            if !ring.sweep(&self.entries, context, guard) {
                drop(ring);
                return Ok(work(&mut lock(&segment.overflow)));
            }
        }
        let entry = self.add(&mut ring, segment, hash, key, guard);
        // With the ring locked nobody sweeps the new, still idle entry away.
        let done = work(&mut lock(&entry.slot).value);
        Ok(done)
    }

    /// Works on the value of a key if it is tracked, and tracks nothing.
    pub(crate) fn with_tracked<R>(&self, hash: u64, key: &[u8], work: impl FnOnce(&mut T) -> R) -> Option<R> {
        let guard = self.entries.guard();
        let Handle(entry) = self.entries.get(&Probe { hash, key }, &guard)?;
        let mut slot = lock(&entry.slot);
        (!slot.gone).then(|| work(&mut slot.value))
    }

    /// The value that a key would begin with if it were tracked now.
    pub(crate) fn first_value(&self, hash: u64) -> T {
        lock(&self.segment(hash).overflow).heir()
    }

    /// Tracks a key for as long as the pin lives, even beyond the bound: that memory is the holder's.
    pub(crate) fn pin(&self, hash: u64, key: &[u8]) -> Pin<T> {
        let guard = self.entries.guard();
        let segment = self.segment(hash);
        let mut ring = lock(&segment.ring);
        // With the ring locked no entry goes away, so one that is found is there.
        let entry = match self.entries.get(&Probe { hash, key }, &guard) {
            Some(Handle(entry)) => Arc::clone(entry),
            None => self.add(&mut ring, segment, hash, key, &guard),
        };
        lock(&entry.slot).pins += 1;
        Pin(entry)
    }

    fn add(
        &self,
        ring: &mut Ring<T>,
        segment: &Segment<T>,
        hash: u64,
        key: &[u8],
        guard: &impl Guard,
    ) -> Arc<Entry<T>> {
        let entry = Arc::new(Entry {
            hash,
            key: key.into(),
            slot: Mutex::new(Slot { value: lock(&segment.overflow).heir(), pins: 0, gone: false }),
        });
        self.entries.insert(Handle(Arc::clone(&entry)), guard);
        ring.entries.push(Arc::clone(&entry));
        entry
    }

    fn segment(&self, hash: u64) -> &Segment<T> {
        // The high half: the map itself uses the low bits.
        &self.segments[(hash >> 32) as usize % self.segments.len()]
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}

impl<T: Tracked> Ring<T> {
    /// Drops one idle key within the hand's reach. `false`: there was none.
    fn sweep(&mut self, map: &HashSet<Handle<T>, AsIs>, context: &T::Context, guard: &impl Guard) -> bool {
        for _ in 0..SWEEP.min(self.entries.len()) {
            self.hand = (self.hand + 1) % self.entries.len();
            let entry = &self.entries[self.hand];
            let mut slot = lock(&entry.slot);
            if slot.pins > 0 || !slot.value.is_idle(context) {
                continue;
            }
            // Out of the map before the lock opens: who finds it gone finds it missing too.
            slot.gone = true;
            map.remove(&entry.probe(), guard);
            drop(slot);
            self.entries.swap_remove(self.hand);
            return true;
        }
        false
    }
}

impl<T> Entry<T> {
    fn probe(&self) -> Probe<'_> {
        Probe { hash: self.hash, key: &self.key }
    }
}

/// An entry held in place.
pub(crate) struct Pin<T>(Arc<Entry<T>>);

impl<T> Pin<T> {
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        work(&mut lock(&self.0.slot).value)
    }

    pub(crate) fn hash(&self) -> u64 {
        self.0.hash
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.0.key
    }
}

impl<T> Drop for Pin<T> {
    fn drop(&mut self) {
        lock(&self.0.slot).pins -= 1;
    }
}

/// What the map stores: an entry that hashes and compares as its key.
struct Handle<T>(Arc<Entry<T>>);

struct Probe<'a> {
    hash: u64,
    key: &'a [u8],
}

impl<T> Hash for Handle<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.hash);
    }
}

impl<T> PartialEq for Handle<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0.hash == other.0.hash && self.0.key == other.0.key
    }
}

impl<T> Eq for Handle<T> {}

impl Hash for Probe<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl<T> Equivalent<Handle<T>> for Probe<'_> {
    fn equivalent(&self, handle: &Handle<T>) -> bool {
        self.hash == handle.0.hash && *self.key == *handle.0.key
    }
}

/// Keys are hashed once, by us; the map takes that number as it is.
#[derive(Clone, Copy, Default)]
struct AsIs;

struct AsIsHasher(u64);

impl BuildHasher for AsIs {
    type Hasher = AsIsHasher;

    fn build_hasher(&self) -> AsIsHasher {
        AsIsHasher(0)
    }
}

impl Hasher for AsIsHasher {
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only whole hashes are written");
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
