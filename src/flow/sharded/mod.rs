//! Calls on a shared store: from a key's plan to the shards that decide.
//!
//! * `call`: one call, from its check to its decision. `in_process`: what needs no store. `gather`: asks above one share.
//! * `settle`: what a call did cost in the end.
//! * `held`: what is charged and not handed out yet, and goes back if its caller goes away.
//! * `keys`, `entry`: the keys that this process knows, each with its plan and the `lane`s to its shards.
//! * `lane`, `round`, `job`, `drive`: calls that wait together go out together. `ceiling`: what a shard can have at the
//!   most.
//! * `turn`: which lane is next.
//! * `purse`, `lease`: permits taken ahead.
//! * `defined`: what the limit is. `escrow`, `moves`: how a key's shares come to lie where they should.

mod call;
mod ceiling;
mod defined;
mod drive;
mod entry;
mod escrow;
mod gather;
mod held;
mod in_process;
mod job;
mod keys;
mod lane;
mod lease;
mod moves;
mod plan_view;
mod purse;
mod round;
mod settle;
#[cfg(test)]
mod tests;
mod turn;

use std::task::Waker;
use std::time::Duration;

use crate::clock::{Clock, Micros};
use crate::kernel::Refund;
use crate::leases::Leases;
use crate::limit::Algorithm;
use crate::observe;
use crate::plan::{Definition, Shards};
use crate::selector::Selector;
use crate::store::cluster::Engine;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, AtomicUsize};
use arc_swap::ArcSwap;
use defined::Defined;
use job::Work;
use keys::Keys;
use lane::{Drive, Load, Sending, Start};
use lease::Leasing;
use round::Seat;

pub(crate) use defined::moment;
pub(crate) use entry::Entry;
pub(crate) use lane::Lane;

/// Denials of one limit are told of so often at the most: one under attack must not fill the log.
const TELL: Micros = 1_000_000;

/// What all limits of a limiter on a shared store have in common.
#[derive(Clone)]
pub(crate) struct Shared {
    pub engine: Arc<Engine>,
    pub prefix: Arc<str>,
    pub shards: Shards,
    pub selector: Arc<dyn Selector>,
    pub clock: Clock,
    pub timeout: Duration,
    /// For how long a ceiling counts at the most; zero: not at all.
    pub ceiling: Duration,
    pub max_keys: usize,
    /// Runs a second from which a key is hot.
    pub hot: u64,
}

/// A named limit on a shared store.
pub(crate) struct SharedLimit {
    pub name: Box<str>,
    defined: ArcSwap<Defined>,
    /// The largest burst that a key of it is known to have.
    largest: AtomicU64,
    /// How often a key was found under another definition than this process has.
    mismatches: AtomicU64,
    prefix: Arc<str>,
    engine: Arc<Engine>,
    selector: Arc<dyn Selector>,
    clock: Clock,
    timeout: Duration,
    ceiling: Micros,
    /// Runs a second from which a key is hot.
    hot: u64,
    keys: Keys,
    /// Of a leased limit.
    leasing: Option<Leasing>,
    /// When a denial was last told of, by this process's clock.
    told: AtomicU64,
    /// When somebody last looked whether another limit was set for all keys.
    watched: AtomicU64,
    /// The number of masters for which it was last judged whether to split keys, and the answer in the lowest bit.
    split: AtomicUsize,
}

impl SharedLimit {
    pub(crate) fn new(shared: &Shared, name: &str, definition: Definition, leases: Option<&Leases>) -> Self {
        let Shared { engine, prefix, selector, clock, timeout, ceiling, max_keys, hot, .. } = shared.clone();
        let limit = definition.limit;
        Self {
            name: name.into(),
            defined: ArcSwap::from_pointee(Defined::new(definition)),
            largest: AtomicU64::new(limit.burst()),
            mismatches: AtomicU64::new(0),
            prefix,
            engine,
            selector,
            clock,
            timeout,
            ceiling: ceiling.as_micros() as Micros,
            hot,
            keys: Keys::new(max_keys),
            // Who comes when is the whole point of a pacing queue: nobody may take its turns ahead.
            leasing: leases.filter(|_| limit.algorithm() != Algorithm::PacingQueue).map(Leasing::new),
            told: AtomicU64::new(0),
            watched: AtomicU64::new(0),
            split: AtomicUsize::new(0),
        }
    }

    /// Tells of a denial, once in a while.
    #[inline]
    fn tell_denied(&self, key: &[u8], permits: u64, now: Micros) {
        if observe::tells_of_denials() && lane::is_due(&self.told, now, TELL) {
            observe::denied(&self.name, key, permits);
        }
    }

    /// From the moment a shard's clock was read until an install must have reached it: a second, or two requests at their
    /// slowest if that is longer.
    fn install_within(&self) -> Micros {
        (2 * self.timeout.as_micros() as Micros).max(1_000_000)
    }

    /// Puts work into a lane, and sends it if the lane was idle.
    fn put(self: &Arc<Self>, entry: &Arc<Entry>, lane: &Arc<Lane>, work: Work) -> Seat {
        let (seat, drive) = self.put_alone(entry, lane, work, self.clock.now(), &mut None);
        if let Some(drive) = drive {
            self.spawn(drive);
        }
        seat
    }

    /// As [`put`](Self::put); but if the lane was idle, and the caller lives where our tasks do, he sends by himself: a task
    /// less between him and the connection. If `waker` is taken, it wakes him when he is answered.
    fn put_alone(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        lane: &Arc<Lane>,
        work: Work,
        now: Micros,
        waker: &mut Option<Waker>,
    ) -> (Seat, Option<Drive>) {
        let (seat, start) = lane.put(work, now, waker);
        match start {
            Start::Nothing => {}
            Start::Send(load) => {
                let drive = self.drive(entry, lane, load);
                if self.engine.is_here() {
                    return (seat, Some(drive));
                }
                self.spawn(drive);
            }
            Start::Spawn(drive, waker) => {
                self.spawn(drive);
                waker.wake();
            }
        }
        (seat, None)
    }

    /// Returns permits that nobody waits for.
    fn give_back(self: &Arc<Self>, entry: &Arc<Entry>, lane: &Arc<Lane>, refund: Refund) {
        if let Some(load) = lane.give_back(refund) {
            self.spawn(self.drive(entry, lane, load));
        }
    }

    fn drive(self: &Arc<Self>, entry: &Arc<Entry>, lane: &Arc<Lane>, load: Load) -> Drive {
        let sending = Sending::new(Arc::clone(lane), &load);
        Box::pin(drive::drive(Arc::clone(self), Arc::clone(entry), sending, load))
    }

    /// If it can't be spawned it is dropped, and that answers everybody.
    fn spawn(&self, drive: Drive) {
        let _ = self.engine.spawn(drive);
    }
}
