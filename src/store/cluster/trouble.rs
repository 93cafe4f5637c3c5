//! What only another topology mends: a node that can't serve, a slot that nobody owns.
//!
//! Whoever comes upon it waits for the watcher's next look. Where looks have come to nothing, nobody waits any more.

use crate::sync::atomic::{AtomicU64, Ordering};

/// So many looks end before it is taken for one that lasts: the first of them may have begun before.
const LOOKS: u64 = 2;

#[derive(Default)]
pub(super) struct Trouble {
    /// From this number of looks on it lasts; 0: there is none.
    lasts_from: AtomicU64,
}

impl Trouble {
    /// Somebody has come upon it, when so many looks had ended. Says whether it has outlasted enough of them.
    pub(super) fn is_lasting(&self, looks: u64) -> bool {
        let from = self.lasts_from.compare_exchange(0, looks + LOOKS, Ordering::Relaxed, Ordering::Relaxed);
        from.is_err_and(|from| looks >= from)
    }

    pub(super) fn is_over(&self) {
        // All answers come by here: written to only where there is something to write.
        if self.lasts_from.load(Ordering::Relaxed) > 0 {
            self.lasts_from.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_lasts_when_two_looks_have_come_to_nothing() {
        let trouble = Trouble::default();
        for _ in 0..2 {
            assert_eq!([7, 7, 8, 9, 9].map(|looks| trouble.is_lasting(looks)), [false, false, false, true, true]);
            trouble.is_over();
        }
    }
}
