//! The keys that this process knows, bounded in their number.

use std::hash::BuildHasher;

use hashbrown::HashTable;

use super::SharedLimit;
use super::entry::Entry;
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
    table: HashTable<Arc<Entry>>,
    bound: usize,
    hand: usize,
}

impl Keys {
    pub(super) fn new(bound: usize) -> Self {
        let bound = bound.div_ceil(SEGMENTS);
        let segment = || Mutex::new(Segment { bound, ..Segment::default() });
        Self { segments: (0..SEGMENTS).map(|_| segment()).collect(), hasher: foldhash::quality::RandomState::default() }
    }

    /// The entry of a key. What is known of a key can be had again from its home, so a full segment drops any that
    /// nobody uses; if all are in use, the new one is not kept.
    pub(super) fn entry(&self, limit: &SharedLimit, key: &[u8]) -> Arc<Entry> {
        let hash = self.hasher.hash_one(key);
        let segment = &mut *lock(&self.segments[(hash >> 24) as usize % SEGMENTS]);
        if let Some(entry) = segment.table.find(hash, |entry| *entry.key == *key) {
            return Arc::clone(entry);
        }
        let entry = Arc::new(Entry::new(limit, key, hash));
        if segment.table.len() < segment.bound || segment.sweep() {
            segment.table.insert_unique(hash, Arc::clone(&entry), |entry| entry.owner);
        }
        entry
    }
}

impl Segment {
    fn sweep(&mut self) -> bool {
        let buckets = self.table.num_buckets();
        let mut seen = 0;
        for _ in 0..buckets {
            self.hand = (self.hand + 1) % buckets;
            let Ok(entry) = self.table.get_bucket_entry(self.hand) else { continue };
            // Calls, tasks and handles each hold on to it.
            if Arc::strong_count(entry.get()) == 1 {
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
