//! The arithmetic of a counter: pure. The embedded store runs it, and `lua/counter.lua` is tested against it.

use crate::clock::Micros;

/// The largest total, up or down: what scripts compute exactly.
pub(crate) const LARGEST: i64 = (1 << 53) - 1;
/// Clients whose numbers one shard remembers. Their entries take 25 bytes each, and every add writes them.
pub(crate) const MOST_CLIENTS: usize = 1_024;
/// Adds are counted for so long at the least, until they tell whether a key is hot.
const BEAT: Micros = 500_000;

/// How long a counter counts, and how long numbers are remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub ttl: Micros,
    /// Every add begins the ttl anew, not only the first one.
    pub renew: bool,
    pub horizon: Micros,
    /// How many shards a key has.
    pub shards: u16,
    /// Adds a second to its first one, of all clients together, from which it is hot.
    pub hot: u64,
}

/// One shard of a counter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub total: i64,
    /// From here on it counts from zero. Until then another than the first shard is kept: it never ends by its own clock.
    pub ends: Micros,
    /// Which time of counting this is: when the key's first shard began it, and above all before.
    pub generation: u64,
    /// The latest instant decided at.
    pub seen: Micros,
    /// The longest that any client asked for.
    pub horizon: Micros,
    /// Who was heard of within the horizon, the latest last.
    pub entries: Vec<Entry>,
    pub heat: Heat,
}

/// How much there is to do for a shard, if its key has others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Heat {
    /// Since when adds are counted, and how many there were.
    pub since: Micros,
    pub adds: u32,
    /// Whether there were too many for one, when they were counted last.
    pub is_hot: bool,
}

impl Heat {
    /// One more. Clients of a hot key spread over its shards, and then each has a part of what there is.
    fn add(&mut self, terms: &Terms, now: Micros) {
        if terms.shards <= 1 {
            return;
        }
        let elapsed = now.checked_sub(self.since);
        if elapsed.is_none_or(|elapsed| elapsed >= BEAT) {
            let load = u64::from(self.adds) * 1_000_000 / elapsed.unwrap_or(0).max(BEAT);
            let all = u128::from(load) * u128::from(terms.shards);
            let is_hot = load >= terms.hot || self.is_hot && all * 4 >= u128::from(terms.hot);
            *self = Self { since: now, adds: 0, is_hot };
        }
        self.adds += 1;
    }
}

/// The last that a client did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub client: u64,
    pub number: u64,
    pub at: Micros,
    pub is_above: bool,
}

/// What is to be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Add {
    pub amount: i64,
    /// Only if the total stays at or below this.
    pub bound: Option<i64>,
    /// What makes it count once, however often it arrives. None: it can only arrive once.
    pub once: Option<Once>,
    /// What the first shard counts; none if this is that one.
    pub generation: Option<Generation>,
}

/// What a key's first shard counts. The others count it too, and what they have of another one is over. Clocks differ, and so do the
/// ends that they say: the number tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation {
    pub number: u64,
    /// Until when, by the first shard's clock.
    pub ends: Micros,
}

/// The number of an add, by the client that gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Once {
    pub client: u64,
    pub number: u64,
    /// The last instant of the shard's clock at which it may still count.
    pub not_after: Micros,
}

/// What became of an add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Counted, now or by an earlier copy.
    Done,
    /// Not counted: the total would be above the bound.
    Above,
    /// Not counted: the total would be too large for whole numbers.
    Overflow,
    /// Not counted: it came too late, or claims to have more time than there is.
    Late,
    /// Not counted: too many clients are remembered.
    Crowded,
    /// Not counted: the first shard has ended by now, or begun anew.
    Over,
}

impl Count {
    /// Brings it to `now`, and says at which instant is decided.
    fn settle(&mut self, terms: &Terms, now: Micros, is_first: bool) -> Micros {
        self.horizon = self.horizon.max(terms.horizon);
        let at = match self.seen.checked_sub(now) {
            // Behind by up to the horizon: time stands still.
            Some(behind) if behind <= self.horizon => self.seen,
            // Set back for good: all are as if just heard of.
            Some(_) => {
                self.entries.iter_mut().for_each(|entry| entry.at = now);
                now
            }
            None => now,
        };
        // Only the first shard's clock says when a key ends. The others are kept for longer, and say what they have.
        self.ends = self.ends.min(self.latest(terms, at, is_first));
        if is_first && self.ends <= at {
            self.total = 0;
        }
        at
    }

    /// The latest end that can be right.
    fn latest(&self, terms: &Terms, at: Micros, is_first: bool) -> Micros {
        at + terms.ttl + if is_first { 0 } else { self.horizon }
    }

    /// The total at this instant.
    pub(crate) fn look(&self, terms: &Terms, now: Micros, is_first: bool) -> i64 {
        let mut state = self.clone();
        state.settle(terms, now, is_first);
        state.total
    }

    /// What it counts, and until when; zeros if it has ended.
    #[cfg(all(test, feature = "redis"))]
    pub(crate) fn generation(&self, terms: &Terms, now: Micros, is_first: bool) -> Generation {
        let mut state = self.clone();
        let at = state.settle(terms, now, is_first);
        if is_first && state.ends <= at {
            return Generation { number: 0, ends: 0 };
        }
        Generation { number: state.generation, ends: state.ends }
    }

    /// Counts from zero; numbers stay remembered. The embedded store has none, and forgets the key.
    #[cfg(all(test, feature = "redis"))]
    pub(crate) fn reset(&mut self, terms: &Terms, now: Micros, is_first: bool) {
        self.seen = self.settle(terms, now, is_first);
        // One of several goes on until all of them end.
        (self.total, self.ends) = (0, if terms.shards > 1 { self.ends } else { 0 });
    }

    /// Adds, if it may, and says so with the total after it. The state is another one only where the add is done or above.
    pub(crate) fn add(&mut self, terms: &Terms, now: Micros, add: &Add) -> (Verdict, i64) {
        let mut next = self.clone();
        let at = next.settle(terms, now, add.generation.is_none());
        let verdict = next.judge(terms, (now, at), add);
        match verdict {
            Ok(verdict) => {
                next.seen = at;
                *self = next;
                (verdict, self.total)
            }
            Err(verdict) => (verdict, next.total),
        }
    }

    /// `Err`: nothing is written.
    fn judge(&mut self, terms: &Terms, (now, at): (Micros, Micros), add: &Add) -> Result<Verdict, Verdict> {
        if let Some(once) = add.once {
            if now > once.not_after || once.not_after > now + terms.horizon {
                return Err(Verdict::Late);
            }
            let fresh = self.entries.iter().position(|entry| at < entry.at.saturating_add(self.horizon));
            self.entries.drain(..fresh.unwrap_or(self.entries.len()));
            match self.entries.iter().position(|entry| entry.client == once.client) {
                Some(known) if once.number <= self.entries[known].number => {
                    return Err(if self.entries[known].is_above { Verdict::Above } else { Verdict::Done });
                }
                Some(known) => drop(self.entries.remove(known)),
                None if self.entries.len() >= MOST_CLIENTS => return Err(Verdict::Crowded),
                None => {}
            }
        }
        if let Some(told) = add.generation {
            // By this clock it is over, which may be wrong: the first one knows. Or that one has begun anew.
            if told.ends <= at || told.number < self.generation {
                return Err(Verdict::Over);
            }
            if told.number > self.generation {
                (self.total, self.generation) = (0, told.number);
            }
        }
        let sum = self.total + add.amount;
        if sum.abs() > LARGEST {
            return Err(Verdict::Overflow);
        }
        let is_above = add.bound.is_some_and(|bound| sum > bound);
        if !is_above {
            let is_first = add.generation.is_none();
            if is_first && self.ends <= at {
                self.generation = at.max(self.generation + 1);
            }
            // The first one ends a ttl from now at the latest, whatever its clock says now.
            if !is_first || self.ends <= at || terms.renew {
                self.ends = self.latest(terms, at, is_first);
            }
            self.total = sum;
        }
        if let Some(Once { client, number, .. }) = add.once {
            self.entries.push(Entry { client, number, at, is_above });
        }
        self.heat.add(terms, now);
        Ok(if is_above { Verdict::Above } else { Verdict::Done })
    }
}
