//! A concurrent map from keys to small values, bounded in the number of keys.
//!
//! Keys are spread over *segments* by their hash. A segment is a table and the lock over it, and the value lies in the
//! table: a call takes one lock and meets no other pointer. When a segment is full and a new key comes, a hand
//! moves over its table like a clock's, looks at the next few keys and drops one that is idle: one whose value says
//! that forgetting it changes nothing. If it finds none, the new key is not tracked: it shares the segment's
//! overflow value with the others that came too late. A key that is tracked later begins with a copy of the overflow
//! value, so it is never better off for having been there.

use std::hash::BuildHasher;

use crossbeam_utils::CachePadded;
use hashbrown::HashTable;
use hashbrown::hash_table::{AbsentEntry, OccupiedEntry};
use smallvec::SmallVec;

use crate::sync::{Arc, Mutex, lock};

/// Keys a full segment looks at for each new one. Enough to find an idle key when at least a quarter are idle
/// (90 %), and cheap enough to pay on each call of a key that finds no room.
const SWEEP: usize = 8;
/// Segments of a large map: with 16 threads at work, 6 in 100 calls meet another one in their segment.
const MOST_SEGMENTS: usize = 256;
/// Keys that a segment has at the least, so that hashing fills all segments about alike.
const SMALLEST_SEGMENT: usize = 256;

#[cfg(test)]
pub(super) const fn entry_size<T>() -> usize {
    size_of::<Entry<T>>()
}

/// What a map can hold.
pub(crate) trait Tracked: Default {
    /// What it takes to judge a value: the share and the time.
    type Context<'a>: Copy;
    /// Whether forgetting the value would change nothing.
    fn is_idle(&mut self, context: Self::Context<'_>) -> bool;
    /// The value of a key that may have used this overflow value before it had one of its own.
    fn heir(&self) -> Self;
    /// Makes this overflow value no better than `other`: for a key that has to give up its own.
    fn absorb(&mut self, other: Self, context: Self::Context<'_>);
}

/// What is done to a value under its lock. Mostly a closure; a call's own work is a type, because a method can be made
/// to be inlined where a closure can't, and that is 5 of 40 ns.
pub(crate) trait Work<T> {
    type Output;
    fn on(self, value: &mut T) -> Self::Output;
}

/// Work that is a closure.
pub(crate) struct Closure<F>(pub F);

impl<T, R, F: FnOnce(&mut T) -> R> Work<T> for Closure<F> {
    type Output = R;

    #[inline(always)]
    fn on(self, value: &mut T) -> R {
        self.0(value)
    }
}

/// Seeded at random for each map.
type Seeded = foldhash::quality::RandomState;

pub(crate) struct Keyed<T> {
    segments: Box<[CachePadded<Mutex<Segment<T>>>]>,
    hasher: Seeded,
}

struct Segment<T> {
    table: HashTable<Entry<T>>,
    bound: usize,
    hand: usize,
    overflow: T,
    hasher: Seeded,
}

/// With the embedded store's cell it is just one cache line; its hash is left out for that, and computed again when the
/// table grows.
#[repr(align(64))]
struct Entry<T> {
    /// Most keys are short, and then comparing one follows no pointer.
    key: SmallVec<[u8; 24]>,
    value: Value<T>,
}

enum Value<T> {
    InPlace(T),
    /// Somebody holds on to it, or did.
    Held(Arc<Mutex<T>>),
}

impl<T: Tracked> Keyed<T> {
    pub(crate) fn new(bound: usize) -> Self {
        // A power of two, so that a hash finds its segment without a division.
        let segments = ((bound / SMALLEST_SEGMENT).clamp(1, MOST_SEGMENTS) + 1).next_power_of_two() / 2;
        let hasher = Seeded::default();
        let segment = || Segment {
            table: HashTable::new(),
            bound: bound / segments,
            hand: 0,
            overflow: T::default(),
            hasher: hasher.clone(),
        };
        let segments = (0..segments).map(|_| CachePadded::new(Mutex::new(segment()))).collect();
        Self { segments, hasher }
    }

    /// Seeded at random for each map: the owner of receipts, and safe against keys made to collide.
    #[inline(always)]
    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one(key)
    }

    /// Works on the value of a key, which becomes tracked if there is room.
    #[inline(always)]
    pub(crate) fn work<W: Work<T>>(&self, hash: u64, key: &[u8], context: T::Context<'_>, work: W) -> W::Output {
        let segment = &mut *lock(self.segment(hash));
        let value = match segment.find(hash, key) {
            Ok(found) => Some(&mut found.into_mut().value),
            Err(_) => segment.track(hash, key, context),
        };
        let mut held;
        work.on(match value {
            Some(Value::InPlace(value)) => value,
            Some(Value::Held(shared)) => {
                held = lock(shared);
                &mut *held
            }
            None => &mut segment.overflow,
        })
    }

    /// Works on the value of a key if it is tracked, and tracks nothing.
    pub(crate) fn with_tracked<R>(&self, hash: u64, key: &[u8], work: impl FnOnce(&mut T) -> R) -> Option<R> {
        let segment = &mut *lock(self.segment(hash));
        match &mut segment.find(hash, key).ok()?.into_mut().value {
            Value::InPlace(value) => Some(work(value)),
            Value::Held(shared) => Some(work(&mut lock(shared))),
        }
    }

    /// The value that a key would begin with if it were tracked now.
    pub(crate) fn first_value(&self, hash: u64) -> T {
        lock(self.segment(hash)).overflow.heir()
    }

    /// Tracks a key for as long as the pin lives, if need be beyond the bound: that memory is the holder's.
    pub(crate) fn pin(&self, hash: u64, key: &[u8], context: T::Context<'_>) -> Pin<T> {
        let segment = &mut *lock(self.segment(hash));
        let value = if let Ok(found) = segment.find(hash, key) {
            &mut found.into_mut().value
        } else {
            segment.make_room(context);
            segment.add(hash, key)
        };
        if let Value::InPlace(here) = value {
            *value = Value::Held(Arc::new(Mutex::new(std::mem::take(here))));
        }
        let Value::Held(shared) = value else { unreachable!("just made so") };
        let value = Arc::clone(shared);
        Pin { hash, key: key.into(), value }
    }

    /// Lets go of a pin. With the last one the value goes back to its place, or, where pins have lifted the segment above
    /// its bound, into the overflow: nothing that was charged is forgotten, and nothing stays behind.
    pub(crate) fn release(&self, pin: Pin<T>, context: T::Context<'_>) {
        let Pin { hash, key, value } = pin;
        let segment = &mut *lock(self.segment(hash));
        drop(value);
        let surplus = segment.table.len() > segment.bound;
        let Ok(mut found) = segment.find(hash, &key) else { return };
        let Value::Held(shared) = &mut found.get_mut().value else { return };
        let Some(value) = Arc::get_mut(shared).map(|value| std::mem::take(value.get_mut())) else { return };
        if !surplus {
            found.get_mut().value = Value::InPlace(value);
            return;
        }
        found.remove();
        segment.overflow.absorb(value, context);
        segment.shrink();
    }

    #[inline(always)]
    fn segment(&self, hash: u64) -> &Mutex<Segment<T>> {
        // Bits of the middle: the table uses the lowest and the highest.
        &self.segments[(hash >> 24) as usize & (self.segments.len() - 1)]
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.segments.iter().map(|segment| lock(segment).table.len()).sum()
    }
}

impl<T: Tracked> Segment<T> {
    #[inline(always)]
    fn find(&mut self, hash: u64, key: &[u8]) -> Result<OccupiedEntry<'_, Entry<T>>, AbsentEntry<'_, Entry<T>>> {
        self.table.find_entry(hash, |entry| same(&entry.key, key))
    }

    /// Tracks a new key if there is room or room can be made.
    #[cold]
    fn track(&mut self, hash: u64, key: &[u8], context: T::Context<'_>) -> Option<&mut Value<T>> {
        if self.make_room(context) { Some(self.add(hash, key)) } else { None }
    }

    /// `false` when the segment is full of keys in use.
    fn make_room(&mut self, context: T::Context<'_>) -> bool {
        self.table.len() < self.bound || self.sweep(context)
    }

    /// A table that pins once grew would make the hand walk over empty buckets.
    fn shrink(&mut self) {
        if self.table.num_buckets() > 8 * self.bound.max(8) {
            let hasher = &self.hasher;
            self.table.shrink_to(self.bound, |entry| hasher.hash_one(&*entry.key));
            self.hand = 0;
        }
    }

    fn add(&mut self, hash: u64, key: &[u8]) -> &mut Value<T> {
        let value = Value::InPlace(self.overflow.heir());
        let entry = Entry { key: SmallVec::from_slice(key), value };
        let hasher = &self.hasher;
        &mut self.table.insert_unique(hash, entry, |entry| hasher.hash_one(&*entry.key)).into_mut().value
    }

    /// Drops one idle key within the hand's reach. `false`: there was none.
    fn sweep(&mut self, context: T::Context<'_>) -> bool {
        let buckets = self.table.num_buckets();
        let mut seen = 0;
        // A full segment has a key in every eighth bucket at the least (see `shrink`); mostly in every second one.
        for _ in 0..SWEEP * 8 {
            self.hand = (self.hand + 1) % buckets;
            let Ok(mut entry) = self.table.get_bucket_entry(self.hand) else { continue };
            let idle = match &mut entry.get_mut().value {
                Value::InPlace(value) => value.is_idle(context),
                // Under the segment's lock nobody can begin to hold what nobody holds.
                Value::Held(shared) => Arc::get_mut(shared).is_some_and(|value| value.get_mut().is_idle(context)),
            };
            if idle {
                entry.remove();
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

/// Compares as `==` does, but short keys without a call: that alone is 3 of 40 ns of a decision.
#[inline(always)]
fn same(a: &[u8], b: &[u8]) -> bool {
    /// The first and the last `N` bytes, which cover up to twice as many.
    #[inline(always)]
    fn ends<const N: usize>(a: &[u8], b: &[u8]) -> bool {
        a.first_chunk::<N>() == b.first_chunk::<N>() && a.last_chunk::<N>() == b.last_chunk::<N>()
    }

    a.len() == b.len()
        && match a.len() {
            8..=16 => ends::<8>(a, b),
            17..=32 => ends::<16>(a, b),
            4..=7 => ends::<4>(a, b),
            2 | 3 => ends::<2>(a, b),
            _ => a == b,
        }
}

/// A key that is held: its value stays where it is until the pin is released.
#[must_use = "a pin must be released"]
pub(crate) struct Pin<T> {
    hash: u64,
    key: Box<[u8]>,
    value: Arc<Mutex<T>>,
}

impl<T> Pin<T> {
    #[inline(always)]
    pub(crate) fn work<W: Work<T>>(&self, work: W) -> W::Output {
        work.on(&mut lock(&self.value))
    }

    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        self.work(Closure(work))
    }

    #[inline(always)]
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }
}
