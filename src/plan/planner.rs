//! The planner: how many shards a key has, on which slots they lie, and what each of them holds.

use std::num::NonZeroU16;
use std::time::Duration;

use crate::key::Slot;
use crate::limit::{Algorithm, Limit};
use crate::topology::Topology;

/// The least burst of a share, for calls that ask for one permit. Simulated with 8 shards at load = limit: against
/// one undivided bucket, round-robin loses 46 % at a burst of 1, 7.7 % at 5 and 0.3 % at 20.
const LEAST_BURST: u64 = 20;
/// A share must outlast a stall of a batch or a network. Simulated with stalls of 10 ms at 500,000/s over 3 shards:
/// a burst worth 3.6 ms of the rate denies 3 %, one worth 30 ms none.
const STALL: Duration = Duration::from_millis(20);

/// How many shards a key is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shards {
    /// One on each master, as far as that costs no accuracy.
    PerMaster,
    /// So many, also where fewer would be more accurate.
    Exactly(NonZeroU16),
    /// One: home holds the whole limit.
    Off,
}

/// The slots of a key's shards, `home` first: on distinct masters while there are any left, then evenly on all of them.
///
/// Slots of `present` that still serve are kept. A slot that is lost is replaced in its place, so that the other
/// shards keep their number and with it their share. What is new is picked by `seed`, so that different keys use
/// different masters and slots. Fewer than `shards` come back only when fewer slots are covered.
pub(crate) fn plan(home: Slot, seed: u64, topology: &Topology, shards: usize, present: &[Slot]) -> Vec<Slot> {
    if shards <= 1 || topology.masters().is_empty() {
        return vec![home];
    }
    let mut room = Room::new(topology, home, shards);
    let places: Vec<Option<Slot>> =
        present.iter().filter(|slot| **slot != home).map(|slot| room.take(*slot).then_some(*slot)).collect();
    let mut fresh = room.fill(Random(seed)).into_iter();

    let mut plan = Vec::with_capacity(1 + places.len() + fresh.len());
    plan.push(home);
    plan.extend(places.into_iter().filter_map(|kept| kept.or_else(|| fresh.next())));
    plan.extend(fresh);
    plan
}

/// What each master can still take so that all have equally many: `rounds` each, and one more for `extra` of them. A
/// master with too few slots has all of them taken, and the others share what it can't hold.
struct Room<'a> {
    topology: &'a Topology,
    rounds: usize,
    extra: usize,
    /// Shards still to be placed.
    missing: usize,
    /// Shards of each master so far.
    used: Vec<usize>,
    /// One bit a slot.
    taken: [u64; Slot::COUNT as usize / 64],
}

impl<'a> Room<'a> {
    fn new(topology: &'a Topology, home: Slot, shards: usize) -> Self {
        // A home that nobody owns burdens no master.
        let homeless = topology.index_of(home).is_none();
        let missing = (shards - usize::from(homeless)).min(topology.covered());
        let masters = topology.masters().len();
        let held = |most: usize| (0..masters).map(|index| topology.slots_of(index).len().min(most)).sum::<usize>();

        // The lowest level up to which masters have to be filled. It is nearly always the first one tried.
        let (mut low, mut high) = (missing.div_ceil(masters), usize::from(Slot::COUNT));
        let mut level = low;
        while low < high {
            if held(level) < missing {
                low = level + 1;
            } else {
                high = level;
            }
            level = low.midpoint(high);
        }
        let rounds = level - 1;

        let taken = [0; Slot::COUNT as usize / 64];
        let mut room = Self { topology, rounds, extra: missing - held(rounds), missing, used: vec![0; masters], taken };
        room.take(home);
        room
    }

    /// Takes the slot if it is free, covered, and its master has not got its part yet.
    fn take(&mut self, slot: Slot) -> bool {
        let Some(index) = self.topology.index_of(slot) else { return false };
        let used = self.used[index];
        let needed = used < self.rounds || (used == self.rounds && self.extra > 0);
        if !needed || self.is_taken(slot) {
            return false;
        }
        self.extra -= usize::from(used == self.rounds);
        self.used[index] += 1;
        self.missing -= 1;
        self.taken[usize::from(slot.number() / 64)] |= 1 << (slot.number() % 64);
        true
    }

    fn is_taken(&self, slot: Slot) -> bool {
        self.taken[usize::from(slot.number() / 64)] >> (slot.number() % 64) & 1 == 1
    }

    /// Takes slots for everything that is missing, master by master in a random order, those with the fewest first.
    fn fill(mut self, mut random: Random) -> Vec<Slot> {
        let mut fresh = Vec::with_capacity(self.missing);
        let mut order: Vec<usize> = (0..self.used.len()).collect();
        random.shuffle(&mut order);
        for round in 0..=self.rounds {
            // Full masters would cost a look each in every round.
            order.retain(|index| self.used[*index] < self.topology.slots_of(*index).len());
            for index in &order {
                if self.missing == 0 {
                    return fresh;
                }
                if self.used[*index] == round {
                    let slot = self.free_slot_of(*index, &mut random);
                    fresh.extend(slot.filter(|slot| self.take(*slot)));
                }
            }
        }
        fresh
    }

    /// A random slot of the master, or the next free one after it.
    fn free_slot_of(&self, index: usize, random: &mut Random) -> Option<Slot> {
        let slots = self.topology.slots_of(index);
        let (before, from) = slots.split_at(random.below(slots.len()));
        from.iter().chain(before).copied().find(|slot| !self.is_taken(*slot))
    }
}

/// `SplitMix64` (Steele, Lea, Flood 2014): the same numbers on every client and release, good from any seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to `count` - 1; by the high bits, without a division.
    fn below(&mut self, count: usize) -> usize {
        ((u128::from(self.next()) * count as u128) >> 64) as usize
    }

    fn shuffle(&mut self, items: &mut [usize]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

/// How many shards a key of this limit gets: at least 1, which means that it is not split.
pub(crate) fn shards_for(limit: &Limit, wanted: Shards, masters: usize) -> usize {
    use Algorithm::{FixedWindow, LeakyBucket, SlidingWindow, TokenBucket};
    // Not among them: a queue has one line to stand in, and a log is kept small enough for one master.
    if !matches!(limit.algorithm(), TokenBucket | LeakyBucket | FixedWindow | SlidingWindow) {
        return 1;
    }
    let most = match wanted {
        Shards::PerMaster => accurate_shards(limit).min(masters as u64),
        Shards::Exactly(shards) => shards.get().into(),
        Shards::Off => 1,
    };
    // A share of nothing could never admit anybody, and each shard needs a slot of its own.
    let most = most.min(limit.permits()).min(limit.burst()).min(Slot::COUNT.into());
    (2..=most).rev().find(|shards| stays_exact(limit, *shards)).unwrap_or(1) as usize
}

/// The most shards that still have the burst that accuracy needs.
fn accurate_shards(limit: &Limit) -> u64 {
    // Rate and burst are divided alike, so either all shares outlast a stall or none does. Remainders are left out
    // of this: a permit more or less is not worth a shard.
    let stalled = u128::from(limit.permits()) * STALL.as_micros();
    if u128::from(limit.burst()) * limit.period().as_micros() < stalled { 1 } else { limit.burst() / LEAST_BURST }
}

/// Whether all shares can be computed exactly, and also what home holds while any of them are lent out.
///
/// Dividing a rate can leave it with fewer factors in common with its period: 1,000,000/day is a permit each 86.4 ms,
/// but a third of it takes numbers above 2⁵³.
fn stays_exact(limit: &Limit, shards: u64) -> bool {
    if matches!(limit.algorithm(), Algorithm::FixedWindow | Algorithm::SlidingWindow) {
        return true; // They count whole permits, whatever the window.
    }
    let period = limit.period().as_micros() as u64;
    // The largest number of which every share and every sum of shares is a multiple. With a remainder there are two
    // neighbouring numbers, which have only 1 in common.
    let even = limit.permits().is_multiple_of(shards);
    let unit = if even { gcd(limit.permits() / shards, period) } else { 1 };
    // Counted in that unit, a permit costs period / unit and no sum exceeds the whole: one limit of that cost, with
    // the refill of a microsecond on top of the burst, stands for all of them.
    let refill = limit.permits().div_ceil(period);
    Limit::token_bucket(1, Duration::from_micros(period / unit), limit.burst() + refill).is_ok()
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The shares of a limit, (permits a period, burst) each: they add up to the limit, and the first ones have what a
/// division leaves over. Up to min(permits, burst) of them none is empty.
pub(crate) fn split(limit: &Limit, shards: usize) -> Vec<(u64, u64)> {
    let shards = shards.max(1) as u64;
    let part = |whole: u64, index| whole / shards + u64::from(index < whole % shards);
    (0..shards).map(|index| (part(limit.permits(), index), part(limit.burst(), index))).collect()
}
