//! Every span and event that this library emits, in one list.
//!
//! | span | level | around |
//! |---|---|---|
//! | `acquire` | DEBUG | one call that asks a shared store |
//! | `settle` | INFO | the steps that bring a key's plan to its end |
//! | `look` | DEBUG | one look at the cluster's topology |
//!
//! | event | level | when |
//! |---|---|---|
//! | `topology changed` | INFO | another owner of a slot, another master |
//! | `ring changed` | INFO | a node came to the ring, or left it |
//! | `ring differs` | WARN | the ring has other nodes than this process was told of |
//! | `topology refused` | ERROR | a node said something about the cluster that can't be |
//! | `topology unknown` | ERROR | no node answered |
//! | `connected` | INFO | a connection is open |
//! | `unreachable` | ERROR | a connection could not be opened |
//! | `fault` | ERROR | a request ended without an answer; one a second and limit, with how many there were |
//! | `planned` | INFO | a key was split, or its plan became known |
//! | `moved` | INFO | home lent a share or took one back, or its definition changed |
//! | `share lost` | ERROR | a share that home had lent was not there |
//! | `home lost` | ERROR | home was not there, or had forgotten its last ledger |
//! | `overshoot` | ERROR | more was admitted of a key than its limit allows, by all processes together |
//! | `permits lost` | ERROR | permits did not go back to their shard, or it was not charged for them; one a second and limit |
//! | `adds dropped` | ERROR | adds to a counter were given up |
//! | `mismatch` | WARN | a key is defined otherwise, and later, than here |
//! | `denied` | WARN | a call was denied; one a second and limit |
//! | `allowed` | DEBUG | a call was allowed by a shard; those of one turn in a hundred, unless `sample_allowed` says otherwise |
//!
//! Keys are escaped and cut: they come from outside. No field has more than some hundred characters, however many shards
//! a key has and whatever a server says.

use std::fmt;

use tracing::{Level, Span, debug, debug_span, enabled, error, info, info_span, warn};

use crate::limit::Limit;
use crate::overshoot::Overshoot;
use crate::store::cluster::{Address, Fault};
use crate::store::ring::Record;
use crate::topology::Topology;
use crate::wire::{GrantId, Ledger};

/// Bytes of a key that an event shows.
const KEY: usize = 64;
/// Slots that an event names. A key may have thousands of shards.
const SLOTS: usize = 16;

/// None if nobody listens.
#[inline]
pub(crate) fn acquire(limit: &str, key: &[u8], permits: u64) -> Option<Span> {
    let span = debug_span!("acquire", limit, key = %Key(key), permits);
    (!span.is_disabled()).then_some(span)
}

pub(crate) fn settle(limit: &str, key: &[u8]) -> Span {
    info_span!("settle", limit, key = %Key(key))
}

pub(crate) fn look() -> Span {
    debug_span!("look")
}

pub(crate) fn topology_changed(topology: &Topology) {
    info!(
        epoch = topology.epoch(),
        masters = topology.masters().len(),
        covered = topology.covered(),
        "topology changed"
    );
}

pub(crate) fn ring_changed(record: &Record, differs: bool) {
    let nodes: Vec<&str> = record.members.iter().map(|member| &*member.name).collect();
    let nodes = nodes.join(" ");
    info!(number = record.number, nodes, settled = record.is_settled(), "ring changed");
    if differs {
        warn!(number = record.number, nodes, "ring differs");
    }
}

pub(crate) fn topology_refused(from: &Address, why: &impl fmt::Display) {
    error!(%from, %why, "topology refused");
}

pub(crate) fn topology_unknown(why: &str) {
    error!(why, "topology unknown");
}

pub(crate) fn connected(address: &Address) {
    info!(%address, "connected");
}

pub(crate) fn unreachable(address: &Address, why: &str) {
    error!(%address, why, "unreachable");
}

/// The last of some, and how many there were since it was last told.
pub(crate) fn fault(limit: &str, key: &[u8], fault: &Fault, faults: u64) {
    error!(limit, key = %Key(key), ?fault, faults, "fault");
}

pub(crate) fn overshoot(limit: &str, key: &[u8], overshoot: &Overshoot) {
    let Overshoot { permits, over, .. } = overshoot;
    error!(limit, key = %Key(key), permits, ?over, "overshoot");
}

/// With all that was lost of the limit so far.
pub(crate) fn permits_lost(limit: &str, key: &[u8], unreturned: u64, uncharged: u64) {
    error!(limit, key = %Key(key), unreturned, uncharged, "permits lost");
}

pub(crate) fn adds_dropped(counters: &str, adds: u64, surely_not_counted: bool) {
    error!(counters, adds, surely_not_counted, "adds dropped");
}

pub(crate) fn planned(limit: &str, key: &[u8], plan: GrantId, shards: usize) {
    info!(limit, key = %Key(key), %plan, shards, "planned");
}

pub(crate) fn share_lost(limit: &str, key: &[u8], grant: GrantId) {
    error!(limit, key = %Key(key), %grant, "share lost");
}

pub(crate) fn home_lost(limit: &str, key: &[u8], plan: GrantId) {
    error!(limit, key = %Key(key), %plan, "home lost");
}

pub(crate) fn mismatch(limit: &str, key: &[u8], here: &Limit, there: &Limit) {
    warn!(limit, key = %Key(key), %here, %there, "mismatch");
}

/// What home wrote.
pub(crate) fn moved(limit: &str, key: &[u8], before: &Ledger, after: &Ledger) {
    let slots = |ledger: &Ledger, other: &Ledger| -> Slots {
        let new = ledger.grants.iter().filter(|grant| other.grants.iter().all(|known| known.id != grant.id));
        Slots(new.map(|grant| grant.slot.number()).collect())
    };
    let (lent, back) = (slots(after, before), slots(before, after));
    info!(limit, key = %Key(key), %lent, %back, definition = %after.limit(), "moved");
}

/// Whether anybody listens.
#[inline]
pub(crate) fn tells_of_denials() -> bool {
    enabled!(Level::WARN)
}

pub(crate) fn denied(limit: &str, key: &[u8], permits: u64) {
    warn!(limit, key = %Key(key), permits, "denied");
}

/// Of some turns: the calls that share one are told of together.
#[inline]
pub(crate) fn allowed(limit: &str, key: &[u8], permits: u64, turn: u64, sample: Sample) {
    if sample.has(turn) {
        debug!(limit, key = %Key(key), permits, "allowed");
    }
}

/// Which turns are told of: a part of them, spread evenly whatever it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample(u64);

impl Sample {
    /// From 0 for none to 1 for all.
    pub(crate) fn new(part: f64) -> Self {
        Self((part * f64::from(u32::MAX)).round() as u64 + u64::from(part >= 1.0))
    }

    /// One multiplication: the multiples of the golden ratio fill a circle evenly, however far one goes.
    #[inline]
    fn has(self, turn: u64) -> bool {
        (turn.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) < self.0
    }
}

/// The first of some slots, and how many there are if that is not all.
struct Slots(Vec<u16>);

impl fmt::Display for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(slots) = self;
        write!(f, "{:?}", &slots[..slots.len().min(SLOTS)])?;
        if slots.len() > SLOTS { write!(f, "… {} in all", slots.len()) } else { Ok(()) }
    }
}

/// A key as a log can bear it.
struct Key<'a>(&'a [u8]);

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.0[..self.0.len().min(KEY)];
        write!(f, "{}", shown.escape_ascii())?;
        if shown.len() < self.0.len() { f.write_str("…") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From wherever a key's turns begin, and however few there are.
    #[test]
    fn a_sample_is_the_part_that_was_asked_for() {
        for (part, turns, told) in
            [(0.0, 100_000, 0..=0), (1.0, 100_000, 100_000..=100_000), (0.01, 100_000, 995..=1_005)]
        {
            for start in [0, 1, 12_345, u64::MAX - 50_000] {
                let sample = Sample::new(part);
                let count = (0..turns).filter(|turn| sample.has(start.wrapping_add(*turn))).count();
                assert!(told.contains(&count), "{part} from {start}: {count}");
            }
        }
        let longest = (0..100_000_u64).filter(|turn| Sample::new(0.01).has(*turn)).collect::<Vec<_>>();
        assert!(longest.windows(2).all(|pair| pair[1] - pair[0] < 400), "no long silence");
    }
}
