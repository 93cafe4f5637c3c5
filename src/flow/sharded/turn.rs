//! Whose turn it is.
//!
//! One turn a call would wake another server for each, and have all threads of a hot key write to the same word. So calls that
//! come close together share a turn: they stay with one lane for a while, or until it has as many of them as go together. Neither depends
//! on how fast the lane is, but for a round that is full, so each gets about as much as the others. Calls that come one by one take
//! exact turns.

use crate::clock::Micros;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Calls share a turn for so long at the most: a server that is asked again at once answers in half the time of one that has to be
/// woken, and one round carries what would be three.
pub(super) const STAY: Micros = 2_000;

/// The moment of a turn that is over because its lane has nothing,
const DRY: Micros = 0;
/// or as much as goes together. In the last bit of a moment it says that the turn before was.
const FULL: Micros = 1;

/// The turns of one key. Most calls only read them, so threads do not fight over them.
pub(super) struct Turns {
    /// The one that was begun last,
    turn: AtomicU64,
    /// and when.
    since: AtomicU64,
}

/// Why a turn is over.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Over {
    Dry,
    Full,
}

impl Turns {
    pub(super) fn new() -> Self {
        Self { turn: AtomicU64::new(rand::random()), since: AtomicU64::new(DRY) }
    }

    /// From a random start in this place of a round of so many.
    pub(super) fn at(place: u64, lanes: usize) -> Self {
        let rounds = u64::from(rand::random::<u32>()) * lanes as u64;
        Self { turn: AtomicU64::new(rounds + place), since: AtomicU64::new(DRY) }
    }

    /// Where in a round of so many the last turn was.
    pub(super) fn place(&self, lanes: usize) -> u64 {
        self.turn.load(Ordering::Relaxed) % lanes as u64
    }

    /// Whoever is next is to ask another lane than the one whose turn this is; unless that was said before.
    pub(super) fn pass(&self, turn: u64, over: Over) {
        if self.turn.load(Ordering::Relaxed) == turn {
            self.since.store(if over == Over::Full { FULL } else { DRY }, Ordering::Relaxed);
        }
    }

    /// The turn of a call, which shares it with those that come within `stay`.
    #[inline]
    pub(super) fn next(&self, stay: Micros, now: Micros) -> u64 {
        let since = self.since.load(Ordering::Relaxed);
        if now.saturating_sub(since) < stay {
            return self.turn.load(Ordering::Relaxed);
        }
        self.begin(stay, since, now)
    }

    fn begin(&self, stay: Micros, since: Micros, now: Micros) -> u64 {
        let begun = now & !FULL | Micros::from(since == FULL);
        // Of those who find a turn over at once one begins the next: if each did, two threads would pass every other lane over.
        if stay > 0 && self.since.compare_exchange(since, begun, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return self.turn.load(Ordering::Relaxed);
        }
        // Bursts of a round and a half would all begin with the same of two lanes, so after one whoever comes next begins anywhere.
        if stay > 0 && since > FULL && since & FULL == FULL {
            let turn = rand::random();
            self.turn.store(turn, Ordering::Relaxed);
            return turn;
        }
        self.turn.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_come_within_a_stay_share_a_turn() {
        let turns = Turns::new();
        let first = turns.next(STAY, 10_000);
        assert_eq!(turns.next(STAY, 10_000 + STAY - 1), first);
        assert_eq!(turns.next(STAY, 10_000 + STAY), first.wrapping_add(1));
        assert_eq!(turns.next(STAY, 10_000 + STAY + 1), first.wrapping_add(1));
        // A clock that another core is behind with ends no turn.
        assert_eq!(turns.next(STAY, 9_000), first.wrapping_add(1));
    }

    #[test]
    fn without_a_stay_each_call_has_a_turn_of_its_own() {
        let turns = Turns::new();
        let first = turns.next(0, 10_000);
        for later in 1..10 {
            assert_eq!(turns.next(0, 10_000), first.wrapping_add(later));
        }
    }

    #[test]
    fn a_lane_that_has_nothing_or_is_full_is_left_at_once_and_once() {
        for over in [Over::Dry, Over::Full] {
            let turns = Turns::new();
            let first = turns.next(STAY, 10_000);
            turns.pass(first, over);
            let second = turns.next(STAY, 10_001);
            assert_eq!(second, first.wrapping_add(1));
            turns.pass(first, over);
            assert_eq!(turns.next(STAY, 10_002), second, "it was left before");
        }
    }

    /// All bursts of more than one round began with the same of two lanes, which had two thirds of the calls.
    #[test]
    fn bursts_of_a_round_and_a_half_begin_with_any_lane() {
        let turns = Turns::new();
        let mut with_first = 0;
        for burst in 1..=1_000 {
            let now = burst * 5 * STAY;
            let first = turns.next(STAY, now);
            turns.pass(first, Over::Full);
            assert_eq!(turns.next(STAY, now + 1), first.wrapping_add(1));
            with_first += first % 2;
        }
        assert!((350..650).contains(&with_first), "{with_first}");
    }
}
