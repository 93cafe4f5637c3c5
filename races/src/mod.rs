//! What threads share of a key, run in every order that their steps can come in, and with every value that they may see.
//!
//! Each function here is one small scene, run by the checker until all orders of its threads were seen. `lane`: the right to send,
//! deadlines, and what is known without a lock. `round`: who waits, goes away or is late while an answer comes. `purse`: permits
//! taken ahead. `once`: what only one of several may do. `broken`: scenes with a mistake in them, which the checker has to find.
//!
//! What stands under one lock as a whole needs no scene: breakers, and the table of keys.

#![allow(clippy::missing_panics_doc, reason = "a scene panics where something does not hold")]

mod broken;
mod lane;
mod once;
mod purse;
mod round;

pub use broken::*;
pub use lane::*;
pub use once::*;
pub use purse::*;
pub use round::*;

use super::job::{Answer, Miss, Work};
use super::lane::Lane as RealLane;
use super::round::{Decided, Round, Sealed};
use super::seat::Seat;
use crate::decision::{DecidedBy, StoreFacts};
use crate::kernel::state::run;
use crate::kernel::{Batch, State, Verdict};
use crate::key::Slot;
use crate::limit::Share;
use crate::sync::{Arc, Mutex, lock};
use crate::wire::{GrantId, Verdicts};

/// When everything happens, by all clocks.
const NOW: u64 = 1_000_000_007;
/// A deadline that nobody reaches.
const LATER: u64 = NOW + 1_000_000;

/// Runs a scene in every order in which threads are interrupted at most three times: mistakes that take more are rare, and to look
/// for them takes hours.
fn check(scene: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(scene);
}

fn share(text: &str) -> Share {
    Share::whole(&text.parse().expect("a limit"))
}

fn new_lane(text: &str) -> Arc<RealLane> {
    let (slot, id) = (Slot::new(7).expect("a slot"), GrantId { stamp: 1, random: 1 });
    let share = share(text);
    let burst = share.burst();
    Arc::new(RealLane::new(slot, Box::default(), id, share, (burst, burst), true, 0, Arc::default()))
}

/// What a shard says to a round.
fn decide(lane: &RealLane, state: &mut Option<State>, sealed: &Sealed) -> Decided {
    let mut verdicts: Verdicts = sealed.asks.iter().map(|_| Verdict::default()).collect();
    let header = run(state, &lane.share, NOW, &Batch { asks: &sealed.asks, ..Batch::default() }, &mut verdicts);
    let facts = StoreFacts { remaining: 0, reset_after: 0, exact: true, decided_by: DecidedBy::Store, part: 0 };
    Decided { header, share: lane.share.clone(), id: lane.id, sent: NOW, facts, verdicts }
}

/// One permit asked for in a round that is sealed and on its way.
fn asked(due: u64) -> (Arc<Round>, Seat, Sealed, Decided) {
    let lane = new_lane("token-bucket 1/day burst 10");
    let round = Round::new(&lane);
    let seat = round.row().join(Work::Ask(1), (NOW, due), None);
    let sealed = round.seal(NOW);
    let decided = decide(&lane, &mut None, &sealed);
    (round, seat, sealed, decided)
}

fn is_granted(answer: &Answer) -> bool {
    matches!(answer, Ok(found) if found.verdict.granted == 1)
}

fn is_late(answer: &Answer) -> bool {
    matches!(answer, Err(Miss::Failed(error)) if error.to_string().contains("deadline"))
}

/// The shard behind a lane, which grants until it is empty. It knows when two send to it at once.
struct Shard {
    lane: Arc<RealLane>,
    state: Mutex<Option<State>>,
    is_asked: crate::sync::atomic::AtomicBool,
}

impl Shard {
    fn new(text: &str) -> Arc<Self> {
        let is_asked = crate::sync::atomic::AtomicBool::new(false);
        Arc::new(Self { lane: new_lane(text), state: Mutex::default(), is_asked })
    }

    /// Permits that it has granted.
    fn granted(&self) -> u64 {
        self.lane.counts.allowed.load(crate::sync::atomic::Ordering::Relaxed)
    }

    fn answer(&self, round: &Arc<Round>) {
        use crate::sync::atomic::Ordering;
        assert!(!self.is_asked.swap(true, Ordering::Relaxed), "two send at once");
        let sealed = round.seal(NOW);
        if sealed.wanted {
            let decided = decide(&self.lane, &mut lock(&self.state), &sealed);
            self.lane.note(&sealed, &decided.header, &decided.share, &decided.verdicts, (NOW, 1_000_000));
            self.is_asked.store(false, Ordering::Relaxed);
            self.lane.decide(round, sealed, decided);
        } else {
            self.is_asked.store(false, Ordering::Relaxed);
            self.lane.miss(round, sealed, Miss::Stale);
        }
    }
}
