//! What is known of the servers' clocks.

use std::collections::HashMap;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::clock::Micros;
use crate::key::Slot;
use crate::sync::{Mutex, lock};

/// The clock of each slot's master, as its last reply told it. Until then a guess by this machine's: whoever goes by it too
/// far is told the right time.
pub(super) struct Clocks {
    born: Instant,
    wall: Micros,
    /// What the server's clock said when this process was born, at the latest.
    at_birth: Mutex<HashMap<Slot, i64>>,
}

impl Clocks {
    pub(super) fn new() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { born: Instant::now(), wall: wall.as_micros() as Micros, at_birth: Mutex::default() }
    }

    /// What the clock says at an instant of this process; it may say more by as long as the last reply took.
    pub(super) fn at(&self, slot: Slot, instant: Instant) -> Micros {
        let at_birth = lock(&self.at_birth).get(&slot).copied().unwrap_or(self.wall as i64);
        at_birth.saturating_add(self.age(instant)).max(0) as Micros
    }

    /// A reply that was read at `received` says that it is `now`.
    pub(super) fn learn(&self, slot: Slot, now: Micros, received: Instant) {
        lock(&self.at_birth).insert(slot, now as i64 - self.age(received));
    }

    fn age(&self, instant: Instant) -> i64 {
        instant.saturating_duration_since(self.born).as_micros() as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_clock_is_guessed_until_it_is_told() {
        let clocks = Clocks::new();
        let (slot, other) = (Slot::of(b"a"), Slot::of(b"b"));
        let later = clocks.born + Duration::from_secs(5);
        assert_eq!(clocks.at(slot, later), clocks.wall + 5_000_000);
        clocks.learn(slot, 77, later);
        assert_eq!(clocks.at(slot, later + Duration::from_micros(3)), 80);
        assert_eq!(clocks.at(slot, clocks.born), 0, "no clock is below zero");
        assert_eq!(clocks.at(other, later), clocks.wall + 5_000_000);
    }
}
