//! How long a process had no answer from a shard.

use std::collections::BTreeMap;

use crate::clock::{MILLI, Nanos};

/// Shorter ones are the rule: a shard that has nothing left is not asked before something has come back.
const SHORTEST: Nanos = 10 * MILLI;

/// From the last look at which a shard was known to have answered until the first at which it had again: a little longer than it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Silence {
    pub slot: u16,
    pub from: Nanos,
    pub to: Nanos,
}

/// Looks again and again.
#[derive(Debug, Default)]
pub(crate) struct Listener {
    /// Of each slot: how many calls it had decided, and when that was last another number.
    slots: BTreeMap<u16, (u64, Nanos)>,
    /// When it last looked.
    looked: Nanos,
}

impl Listener {
    /// What shards have decided until now; says which of them were silent before that.
    pub(crate) fn hear(&mut self, decided: impl Iterator<Item = (u16, u64)>, now: Nanos) -> Vec<Silence> {
        let mut silences = Vec::new();
        for (slot, count) in decided {
            let (before, since) = self.slots.entry(slot).or_insert((count, now));
            if *before != count {
                // It answered after the last look but one at the earliest.
                silences.push(Silence { slot, from: *since, to: now });
                (*before, *since) = (count, now);
            }
        }
        self.looked = now;
        silences.retain(|silence| silence.to - silence.from >= SHORTEST);
        silences
    }

    /// Shards that have been silent until the last look.
    pub(crate) fn end(&self) -> Vec<Silence> {
        let silences = self.slots.iter().map(|(slot, (_, from))| Silence { slot: *slot, from: *from, to: self.looked });
        silences.filter(|silence| silence.to - silence.from >= SHORTEST).collect()
    }
}

/// The longest of a slot that was not over before `begin`, and began before `end`.
pub(crate) fn longest<'a>(silences: impl Iterator<Item = &'a Silence>, slot: u16, begin: Nanos, end: Nanos) -> Nanos {
    let of_it = silences.filter(|silence| silence.slot == slot && silence.to > begin && silence.from < end);
    of_it.map(|silence| silence.to - silence.from).max().unwrap_or(SHORTEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_silent_while_it_decides_nothing() {
        let mut listener = Listener::default();
        let mut all = Vec::new();
        for (at, counts) in [(0, [5, 5]), (5, [6, 5]), (10, [7, 5]), (40, [8, 6]), (45, [9, 6]), (90, [9, 6])] {
            all.extend(listener.hear([1, 2].into_iter().zip(counts), at * MILLI));
        }
        all.extend(listener.end());
        let silence = |slot, from: u64, to: u64| Silence { slot, from: from * MILLI, to: to * MILLI };
        assert_eq!(all, [silence(1, 10, 40), silence(2, 0, 40), silence(1, 45, 90), silence(2, 40, 90)]);
        let of = |slot, begin: u64, end: u64| longest(all.iter(), slot, begin * MILLI, end * MILLI) / MILLI;
        assert_eq!([of(1, 0, 20), of(1, 0, 90), of(2, 50, 90), of(3, 0, 90)], [30, 45, 50, 10]);
    }
}
