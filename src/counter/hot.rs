//! Which keys have too many adds for one shard, as their first ones said.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::kernel::Generation;
use crate::sync::{Mutex, lock};

/// A shard's word counts for so long: a process that adds little may seldom come by the first one, and then asks it again.
const COUNTS: Duration = Duration::from_secs(5);
/// Keys that are known to be hot. More would each have thousands of adds a second; what is not known is added to the first shard.
const MOST: usize = 1_024;

/// By the sub-key of the first shard.
#[derive(Default)]
pub(super) struct Hot(Mutex<HashMap<Box<[u8]>, Word>>);

/// What the first shard said.
struct Word {
    until: Instant,
    /// What it counts: the others count the same.
    counts: Generation,
}

impl Hot {
    /// What the first shard counts, if the key is hot.
    pub(super) fn counts(&self, first: &[u8], now: Instant) -> Option<Generation> {
        lock(&self.0).get(first).filter(|word| now < word.until).map(|word| word.counts)
    }

    /// The first shard has said that it is hot and what it counts, or the contrary.
    pub(super) fn heard(&self, first: &[u8], counts: Option<Generation>, now: Instant) {
        let keys = &mut *lock(&self.0);
        let Some(counts) = counts else {
            keys.remove(first);
            return;
        };
        let word = Word { until: now + COUNTS, counts };
        if let Some(known) = keys.get_mut(first) {
            *known = word;
            return;
        }
        if keys.len() >= MOST {
            keys.retain(|_, word| now < word.until);
        }
        if keys.len() < MOST {
            keys.insert(first.into(), word);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Option<Generation> = Some(Generation { number: 1, ends: 7 });
    const TWO: Option<Generation> = Some(Generation { number: 2, ends: 7 });

    #[test]
    fn a_word_counts_for_a_while_and_the_last_one_rules() {
        let (hot, now) = (Hot::default(), Instant::now());
        assert_eq!(hot.counts(b"a", now), None);
        hot.heard(b"a", ONE, now);
        assert_eq!(hot.counts(b"a", now + COUNTS - Duration::from_nanos(1)), ONE);
        assert_eq!((hot.counts(b"a", now + COUNTS), hot.counts(b"b", now)), (None, None));
        hot.heard(b"a", TWO, now + COUNTS);
        assert_eq!(hot.counts(b"a", now + COUNTS), TWO);
        hot.heard(b"a", None, now + COUNTS);
        assert_eq!(hot.counts(b"a", now + COUNTS), None);
    }

    #[test]
    fn what_is_remembered_has_a_bound() {
        let (hot, now) = (Hot::default(), Instant::now());
        for key in 0..2 * MOST {
            hot.heard(&key.to_le_bytes(), ONE, now);
        }
        assert_eq!(lock(&hot.0).len(), MOST);
        hot.heard(&0_usize.to_le_bytes(), TWO, now);
        assert_eq!(hot.counts(&0_usize.to_le_bytes(), now), TWO, "one that is there goes on");
        hot.heard(b"later", ONE, now + COUNTS);
        assert!(hot.counts(b"later", now + COUNTS).is_some() && lock(&hot.0).len() == 1);
    }
}
