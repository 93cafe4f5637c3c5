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
//! | `topology refused` | ERROR | a node said something about the cluster that can't be |
//! | `topology unknown` | ERROR | no node answered |
//! | `connected` | INFO | a connection is open |
//! | `unreachable` | ERROR | a connection could not be opened |
//! | `fault` | ERROR | a request ended without an answer |
//! | `planned` | INFO | a key was split, or its plan became known |
//! | `moved` | INFO | home lent a share or took one back, or its definition changed |
//! | `share lost` | ERROR | a share that home had lent was not there |
//! | `home lost` | ERROR | home was not there, or had forgotten its last ledger |
//! | `mismatch` | WARN | a key is defined otherwise, and later, than here |
//! | `denied` | WARN | a call was denied; one a second and limit |
//! | `allowed` | DEBUG | a call was allowed; those of one turn in 1,024 |
//!
//! Keys are escaped and cut: they come from outside.

use std::fmt;

use tracing::{Level, Span, debug, debug_span, enabled, error, info, info_span, warn};

use crate::limit::Limit;
use crate::store::cluster::{Address, Fault};
use crate::topology::Topology;
use crate::wire::{GrantId, Ledger};

/// One in so many allowed calls is told of: at a million a second that is a thousand events.
const SAMPLE: u64 = 1_024;
/// Bytes of a key that an event shows.
const KEY: usize = 64;

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
    let slots = |ledger: &Ledger, other: &Ledger| -> Vec<u16> {
        let new = ledger.grants.iter().filter(|grant| other.grants.iter().all(|known| known.id != grant.id));
        new.map(|grant| grant.slot.number()).collect()
    };
    let (lent, back) = (slots(after, before), slots(before, after));
    info!(limit, key = %Key(key), ?lent, ?back, definition = %after.limit(), "moved");
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

/// A key as a log can bear it.
struct Key<'a>(&'a [u8]);

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.0[..self.0.len().min(KEY)];
        write!(f, "{}", shown.escape_ascii())?;
        if shown.len() < self.0.len() { f.write_str("…") } else { Ok(()) }
    }
}
