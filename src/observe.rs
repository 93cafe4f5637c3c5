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
//! | `fault` | ERROR | a request ended without an answer |
//! | `planned` | INFO | a key was split, or its plan became known |
//! | `moved` | INFO | home lent a share or took one back, or its definition changed |
//! | `share lost` | ERROR | a share that home had lent was not there |
//! | `home lost` | ERROR | home was not there, or had forgotten its last ledger |
//! | `overshoot` | ERROR | more was admitted of a key than its limit allows, by all processes together |
//! | `adds dropped` | ERROR | adds to a counter were given up |
//! | `mismatch` | WARN | a key is defined otherwise, and later, than here |
//! | `denied` | WARN | a call was denied; one a second and limit |
//! | `allowed` | DEBUG | a call was allowed; those of one turn in 1,024 |
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

/// One in so many allowed calls is told of: at a million a second that is a thousand events.
const SAMPLE: u64 = 1_024;
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

pub(crate) fn fault(limit: &str, key: &[u8], fault: &Fault) {
    error!(limit, key = %Key(key), ?fault, "fault");
}

pub(crate) fn overshoot(limit: &str, key: &[u8], overshoot: &Overshoot) {
    let Overshoot { permits, over, .. } = overshoot;
    error!(limit, key = %Key(key), permits, ?over, "overshoot");
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

/// One turn in so many: the calls that share it are told of together.
pub(crate) fn allowed(limit: &str, key: &[u8], permits: u64, turn: u64) {
    if turn.is_multiple_of(SAMPLE) {
        debug!(limit, key = %Key(key), permits, "allowed");
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
