//! Whose turn it is.
//!
//! One turn a call would have all threads of a hot key write to the same word for each call, and then meet at the same
//! lane. So calls of a thread that come close together share a turn: they stay with one lane for a while, and others
//! with another. How long does not depend on the lane, so each gets as much as the others.

use std::cell::Cell;

use crate::clock::Micros;
use crate::sync::atomic::{AtomicU64, Ordering};

/// For so long calls share a turn,
const WHILE: Micros = 20;
/// and so many at the most.
const CALLS: u32 = 32;

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
pub(super) struct Turns(AtomicU64);

impl Turns {
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(rand::random()))
    }

    /// The turn of a call for `key`, which tells it from others.
    #[inline]
    pub(super) fn next(&self, key: u64, now: Micros) -> u64 {
        TAKEN.with(|taken| {
            let Taken { key: before, turn, at, left } = taken.get();
            if before == key && left > 0 && now.saturating_sub(at) < WHILE {
                taken.set(Taken { key, turn, at, left: left - 1 });
                return turn;
            }
            let turn = self.0.fetch_add(1, Ordering::Relaxed);
            taken.set(Taken { key, turn, at: now, left: CALLS - 1 });
            turn
        })
    }
}
