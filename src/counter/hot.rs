//! Which keys have too many adds for one shard, as their first ones said.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::clock::Micros;
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
    /// Until when it counts, by its own clock: the others end with it.
    ends: Micros,
}

impl Hot {
    /// Until when the first shard counts, if the key is hot.
    pub(super) fn ends(&self, first: &[u8], now: Instant) -> Option<Micros> {
        lock(&self.0).get(first).filter(|word| now < word.until).map(|word| word.ends)
    }

    /// The first shard has said that it is hot and counts until then, or the contrary.
    pub(super) fn heard(&self, first: &[u8], ends: Option<Micros>, now: Instant) {
        let keys = &mut *lock(&self.0);
        let Some(ends) = ends else {
            keys.remove(first);
            return;
        };
        let word = Word { until: now + COUNTS, ends };
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

    #[test]
    fn a_word_counts_for_a_while_and_the_last_one_rules() {
        let (hot, now) = (Hot::default(), Instant::now());
        assert_eq!(hot.ends(b"a", now), None);
        hot.heard(b"a", Some(1), now);
        assert_eq!(hot.ends(b"a", now + COUNTS - Duration::from_nanos(1)), Some(1));
        assert_eq!((hot.ends(b"a", now + COUNTS), hot.ends(b"b", now)), (None, None));
        hot.heard(b"a", Some(2), now + COUNTS);
        assert_eq!(hot.ends(b"a", now + COUNTS), Some(2));
        hot.heard(b"a", None, now + COUNTS);
        assert_eq!(hot.ends(b"a", now + COUNTS), None);
    }

    #[test]
    fn what_is_remembered_has_a_bound() {
        let (hot, now) = (Hot::default(), Instant::now());
        for key in 0..2 * MOST {
            hot.heard(&key.to_le_bytes(), Some(1), now);
        }
        assert_eq!(lock(&hot.0).len(), MOST);
        hot.heard(&0_usize.to_le_bytes(), Some(2), now);
        assert_eq!(hot.ends(&0_usize.to_le_bytes(), now), Some(2), "one that is there goes on");
        hot.heard(b"later", Some(1), now + COUNTS);
        assert!(hot.ends(b"later", now + COUNTS).is_some() && lock(&hot.0).len() == 1);
    }
}
