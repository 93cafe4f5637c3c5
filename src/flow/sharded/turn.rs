//! Whose turn it is.
//!
//! One turn a call would wake another server for each, and have all threads of a hot key write to the same word. So calls that
//! come close together share a turn, and stay with one lane for a while; a thread that has more to ask than a round or two can carry
//! takes turns of its own, so that all lanes are busy. How long does not depend on the lane, so each gets as much as the others.
//! Calls that come one by one take exact turns.

use std::cell::Cell;

use crate::clock::Micros;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Calls of a thread that come within so long share its turn,
const WHILE: Micros = 50;
/// so many of them at the most. A thread that makes as many is busy: its next turn is its own.
const CALLS: u32 = 32;
/// Threads that are not busy share a turn for so long at the most: a server that is asked again at once answers in half the time of
/// one that has to be woken, and one round carries what would be three.
pub(super) const STAY: Micros = 2_000;

/// The turn that a thread took last.
#[derive(Clone, Copy)]
struct Taken {
    key: u64,
    turn: u64,
    at: Micros,
    left: u32,
}

thread_local! {
    static TAKEN: Cell<Taken> = const { Cell::new(Taken { key: 0, turn: 0, at: 0, left: 0 }) };
}

/// The turns of one key.
pub(super) struct Turns {
    /// The one that was begun last,
    turn: AtomicU64,
    /// and when.
    since: AtomicU64,
}

impl Turns {
    pub(super) fn new() -> Self {
        Self { turn: AtomicU64::new(rand::random()), since: AtomicU64::new(0) }
    }

    /// The shard whose turn it is has nothing: whoever is next is not to ask it again.
    pub(super) fn pass(&self) {
        TAKEN.with(|taken| taken.set(Taken { key: 0, ..taken.get() }));
        self.since.store(0, Ordering::Relaxed);
    }

    /// The turn of a call for `key`, which tells it from others. Calls that are few share one for as long as `stay`.
    #[inline]
    pub(super) fn next(&self, key: u64, stay: impl FnOnce() -> Micros, now: Micros) -> u64 {
        TAKEN.with(|taken| {
            let Taken { key: before, turn, at, left } = taken.get();
            let is_same = before == key && now.saturating_sub(at) < WHILE;
            if is_same && left > 0 {
                taken.set(Taken { key, turn, at, left: left - 1 });
                return turn;
            }
            let is_busy = is_same;
            let turn = if is_busy {
                self.turn.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
            } else if now.saturating_sub(self.since.load(Ordering::Relaxed)) < stay() {
                self.turn.load(Ordering::Relaxed)
            } else {
                self.since.store(now, Ordering::Relaxed);
                self.turn.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
            };
            taken.set(Taken { key, turn, at: now, left: CALLS - 1 });
            turn
        })
    }
}
