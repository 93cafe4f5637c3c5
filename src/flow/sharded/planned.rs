//! A key with a plan that nobody uses, in few bytes.
//!
//! Of its entry this is kept, and no more:
//! * home's ledger and its id: who knows of a plan can tell home again what it forgot, and goes on by it at once;
//! * when home was last asked, for one that has not for three seconds waits for its word; and home's own time, which the next id
//!   is not to be before;
//! * what each shard granted lately, which the policy `Local` goes by;
//! * for which state of the cluster it was planned, when its shares may next be moved, and whether it is hot;
//! * whose turn it is: keys that are packed between any two calls would have their calls spread at random, and be denied more often.
//!
//! What is not: ceilings, but for the moment until which every shard is shut (the next answers say them), the loads of shards (who is
//! hot stays so until all have said theirs), counts of calls, when home was last written for the sake of its time to live, and what
//! slots had that the plan has no more. When its plan became known matters to answers that were on their way then, and nobody waits for
//! one; and to a key that may cool down, which keeps it.
//!
//! An entry that has more to it stays whole: see [`Entry::is_plain`].

use super::SharedLimit;
use super::ceiling::Shut;
use super::counts::Counts;
use super::entry::Entry;
use super::fallback::span;
use super::heat::Heat;
use super::meter::Meter;
use super::turn::Turns;
use super::view::View;
use crate::clock::Micros;
use crate::key::{Slot, home_slot};
use crate::plan::{Definition, Shards};
use crate::sync::Arc;
use crate::sync::atomic::Ordering;
use crate::wire::{Grant, GrantId, Ledger, Status};

/// What is kept of an entry besides its ledger and what its shards granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    /// The id of home's ledger.
    pub id: GrantId,
    /// When home was last asked, by this process's clock.
    pub asked: Micros,
    /// What its own clock showed, in milliseconds: ids have no more.
    pub home_time: u64,
    /// The state of the cluster for which the plan was last found to be as it should be.
    pub planned_for: u64,
    /// When its shares may next be moved; 0: whenever they are to be.
    pub next_step: Micros,
    /// How far turns have come in their round.
    pub turn: u64,
    /// Of a key that splits by itself.
    pub warmth: Option<Warmth>,
}

/// Whether a key that splits by itself is hot, and since when it is where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Warmth {
    pub is_hot: bool,
    pub cooling: Micros,
    pub cooled: Micros,
    pub since: Micros,
}

impl Kept {
    /// Writes it down, with a ledger of which every share is live, and what home and each of them granted lately. Moments and
    /// ids lie close together, so most of them are short beside each other.
    pub(super) fn write(&self, ledger: &Ledger, lately: impl Iterator<Item = Meter>, bytes: &mut Vec<u8>) {
        let Self { id, asked, home_time, planned_for, next_step, turn, warmth } = *self;
        put(bytes, id.stamp);
        bytes.extend(id.random.to_le_bytes());
        put_near(bytes, asked, id.stamp.wrapping_mul(1_000));
        put_near(bytes, home_time, asked / 1_000);
        put(bytes, planned_for);
        put(bytes, turn << 1 | u64::from(next_step > 0));
        if next_step > 0 {
            put_near(bytes, next_step, asked);
        }
        if let Some(Warmth { is_hot, cooling, cooled, since }) = warmth {
            put(bytes, u64::from(is_hot));
            put(bytes, cooling);
            put(bytes, cooled);
            put_near(bytes, since, asked);
        }
        put(bytes, ledger.cost as u64);
        put(bytes, ledger.grants.len() as u64);
        for Grant { slot, id: of, permits, burst, cost, .. } in &ledger.grants {
            put_near(bytes, of.stamp, id.stamp);
            bytes.extend(of.random.to_le_bytes());
            bytes.extend(slot.number().to_le_bytes());
            put(bytes, *permits);
            put(bytes, *burst);
            put_near(bytes, *cost as u64, ledger.cost as u64);
        }
        let number = asked / span(ledger.limit().period());
        for Meter { number: of, present, before } in lately {
            put(bytes, present.into());
            put(bytes, before.into());
            if present > 0 || before > 0 {
                put_near(bytes, of.into(), number);
            }
        }
    }

    /// Reads what was written of a key under this definition.
    pub(super) fn read(definition: &Definition, bytes: &[u8]) -> (Self, Ledger, Vec<Meter>) {
        let mut input = Input(bytes);
        let id = GrantId { stamp: input.number(), random: input.random() };
        let asked = input.near(id.stamp.wrapping_mul(1_000));
        let home_time = input.near(asked / 1_000);
        let planned_for = input.number();
        let turn = input.number();
        let next_step = if turn & 1 == 1 { input.near(asked) } else { 0 };
        let warmth = (definition.shards == Shards::Auto).then(|| Warmth {
            is_hot: input.number() > 0,
            cooling: input.number(),
            cooled: input.number(),
            since: input.near(asked),
        });
        let cost = input.number();
        let grant = |input: &mut Input<'_>| {
            let of = GrantId { stamp: input.near(id.stamp), random: input.random() };
            let slot = Slot::new(u16::from_le_bytes(input.array())).expect("the number of a slot");
            let (permits, burst, cost) = (input.number(), input.number(), input.near(cost) as i64);
            Grant { slot, id: of, permits, burst, cost, status: Status::Live }
        };
        let grants: Vec<Grant> = (0..input.number()).map(|_| grant(&mut input)).collect();
        let number = asked / span(definition.limit.period());
        let meter = |input: &mut Input<'_>| {
            let (present, before) = (input.number() as u32, input.number() as u32);
            let number = if present > 0 || before > 0 { input.near(number) as u32 } else { 0 };
            Meter { number, present, before }
        };
        let lately = (0..=grants.len()).map(|_| meter(&mut input)).collect();
        let kept = Self { id, asked, home_time, planned_for, next_step, turn: turn >> 1, warmth };
        (kept, Ledger { definition: *definition, cost: cost as i64, next: None, grants }, lately)
    }
}

impl Entry {
    /// Writes down what is kept of it, of an entry that [is plain](Self::is_plain).
    pub(super) fn pack(&self, now: Micros, bytes: &mut Vec<u8>) {
        let view = self.load();
        let next_step = self.next_step.load(Ordering::Relaxed);
        let kept = Kept {
            id: view.id,
            asked: self.asked.load(Ordering::Relaxed),
            home_time: self.home_time.load(Ordering::Relaxed) / 1_000,
            planned_for: self.planned_for.load(Ordering::Relaxed),
            next_step: if self.is_to_wait(now) { next_step } else { 0 },
            turn: self.turns.place(view.lanes.len()),
            warmth: (view.ledger.definition.shards == Shards::Auto).then(|| self.heat.warmth(view.since)),
        };
        let span = span(view.ledger.limit().period());
        kept.write(&view.ledger, view.lanes.iter().map(|lane| lane.counts.fallback.lately_by(span, now)), bytes);
    }

    /// An entry that goes on where it was packed.
    pub(super) fn unpack(
        limit: &SharedLimit,
        (key, owner): (&[u8], u64),
        definition: &Definition,
        bytes: &[u8],
        shut: Shut,
    ) -> Self {
        let (kept, ledger, lately) = Kept::read(definition, bytes);
        let home = home_slot(&limit.name, key);
        let slots = [home].into_iter().chain(ledger.grants.iter().map(|grant| grant.slot));
        let counts = |lately: Meter| Arc::new(Counts::new(&limit.crowd, definition.limit.period(), lately));
        let counts = slots.zip(lately).map(|(slot, lately)| (slot, counts(lately))).collect();
        let mut view = View::new(limit, (key, home), kept.id, ledger, (&[], counts));
        if let Some(warmth) = kept.warmth {
            view.since = warmth.since;
        }
        let mut entry = Self::of(limit, key, owner, home, view, true);
        entry.turns = Turns::at(kept.turn, entry.load().lanes.len());
        entry.heat = kept.warmth.map_or_else(Heat::new, Heat::of);
        entry.asked.store(kept.asked, Ordering::Relaxed);
        entry.home_time.store(kept.home_time * 1_000, Ordering::Relaxed);
        entry.planned_for.store(kept.planned_for, Ordering::Relaxed);
        entry.next_step.store(kept.next_step, Ordering::Relaxed);
        entry.take_over(limit.clock.now(), shut);
        entry
    }
}

/// Seven bits a byte, the lowest first.
fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// How far it is from another, to either side.
fn put_near(bytes: &mut Vec<u8>, number: u64, other: u64) {
    let far = number.wrapping_sub(other) as i64;
    put(bytes, (far << 1 ^ far >> 63) as u64);
}

/// What is still to be read: written by this process, so it is all there.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn array<const N: usize>(&mut self) -> [u8; N] {
        let (read, left) = self.0.split_first_chunk().expect("as many as were written");
        self.0 = left;
        *read
    }

    fn random(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    fn number(&mut self) -> u64 {
        let (mut number, mut shift) = (0, 0);
        loop {
            let [byte] = self.array();
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return number;
            }
            shift += 7;
        }
    }

    fn near(&mut self, other: u64) -> u64 {
        let number = self.number();
        other.wrapping_add(number >> 1 ^ (number & 1).wrapping_neg())
    }
}
