//! The embedded store of counters: states under a lock a segment, in bounded memory.

use std::collections::HashMap;
use std::hash::BuildHasher;

use crossbeam_utils::CachePadded;

use crate::clock::{Clock, Micros};
use crate::error::{Error, ErrorKind};
use crate::sync::{Mutex, lock};

/// So many that a core seldom meets another, and each is cheap to look through.
const SEGMENTS: usize = 64;

/// A state that is worth nothing from some instant on.
pub(super) trait Ends: Default {
    fn ends(&self) -> Micros;
}

pub(super) struct Table<T> {
    pub clock: Clock,
    segments: Box<[CachePadded<Mutex<Segment<T>>>]>,
    /// Keys in one segment, at the most.
    bound: usize,
    hasher: Seeded,
}

type Seeded = foldhash::quality::RandomState;

struct Segment<T> {
    states: HashMap<Box<[u8]>, T, Seeded>,
    /// When the first of them ends, as of the last look through all.
    first_end: Micros,
}

impl<T: Ends> Table<T> {
    pub(super) fn new(clock: Clock, max_keys: usize) -> Self {
        let hasher = Seeded::default();
        let segments = SEGMENTS.min(max_keys);
        let segment = || Segment { states: HashMap::with_hasher(hasher.clone()), first_end: 0 };
        let bound = max_keys.div_ceil(segments);
        let segments = (0..segments).map(|_| CachePadded::new(Mutex::new(segment()))).collect();
        Self { clock, segments, bound, hasher }
    }

    /// Works on the state of a key, which is made if there is none and room for it.
    ///
    /// # Errors
    /// When every key that there is room for still counts: none is forgotten for another.
    pub(super) fn work<R>(&self, key: &[u8], work: impl FnOnce(&mut T, Micros) -> R) -> Result<R, Error> {
        let segment = &mut *lock(self.segment(key));
        // Under the lock: a thread that is held up before it would look like a clock that was set back.
        let now = self.clock.now();
        if let Some(state) = segment.states.get_mut(key) {
            return Ok(work(state, now));
        }
        if segment.states.len() >= self.bound && !segment.sweep(now) {
            let message = "as many keys are counted as there is room for, and nothing was counted; \
                           raise `max_keys` of the builder, or shorten the time that keys count for";
            return Err(Error::new(ErrorKind::Refused, "max_keys", message));
        }
        Ok(work(segment.states.entry(key.into()).or_default(), now))
    }

    /// Reads the state of a key, if there is one.
    pub(super) fn look<R>(&self, key: &[u8], look: impl FnOnce(&mut T, Micros) -> R) -> Option<R> {
        let segment = &mut *lock(self.segment(key));
        let now = self.clock.now();
        segment.states.get_mut(key).map(|state| look(state, now))
    }

    pub(super) fn forget(&self, key: &[u8]) {
        lock(self.segment(key)).states.remove(key);
    }

    fn segment(&self, key: &[u8]) -> &Mutex<Segment<T>> {
        // The table inside goes by the lowest and the highest bits.
        &self.segments[(self.hasher.hash_one(key) >> 24) as usize % self.segments.len()]
    }
}

impl<T: Ends> Segment<T> {
    /// Forgets what has ended. `false`: nothing has.
    fn sweep(&mut self, now: Micros) -> bool {
        // A full table that is asked for one key after the other must not be looked through each time.
        if now < self.first_end {
            return false;
        }
        let before = self.states.len();
        self.states.retain(|_, state| state.ends() > now);
        self.first_end = self.states.values().map(Ends::ends).min().unwrap_or(0);
        self.states.len() < before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::FakeClock;
    use std::time::Duration;

    #[derive(Default)]
    struct Until(Micros);

    impl Ends for Until {
        fn ends(&self) -> Micros {
            self.0
        }
    }

    #[test]
    fn only_what_has_ended_makes_way() {
        let time = FakeClock::new();
        let table = Table::<Until>::new(Clock::from(&time), 1);
        let put = |key: &[u8]| table.work(key, |state, now| state.0 = now + 1_000_000);
        put(b"a").unwrap();
        assert_eq!(put(b"b").unwrap_err().field(), "max_keys");
        put(b"a").unwrap();
        time.advance(Duration::from_millis(999));
        assert!(put(b"b").is_err());
        time.advance(Duration::from_millis(1));
        put(b"b").unwrap();
        assert!(table.look(b"a", |_, _| ()).is_none(), "it made way");
        table.forget(b"b");
        put(b"c").unwrap();
    }
}
