//! The planner: on which slots the shards of a key lie.

use crate::key::Slot;
use crate::topology::Topology;

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
