//! How much a limiter has under way at once, of all its keys.

use crate::sync::atomic::{AtomicUsize, Ordering};

/// Rounds that are not over, and how many there may be. A lane has a bound of its own; this one holds where calls come for more
/// keys than anybody could have answered.
#[derive(Debug)]
pub(crate) struct Crowd {
    rounds: AtomicUsize,
    pub most: usize,
}

impl Crowd {
    pub(crate) fn new(most: usize) -> Self {
        Self { rounds: AtomicUsize::new(0), most }
    }

    /// Whether nobody else may come in. Of several who look at once a few more may.
    pub(super) fn is_full(&self) -> bool {
        self.rounds.load(Ordering::Relaxed) >= self.most
    }

    pub(super) fn begin(&self) {
        self.rounds.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn end(&self) {
        self.rounds.fetch_sub(1, Ordering::Relaxed);
    }
}

/// As a builder has it unless told otherwise.
impl Default for Crowd {
    fn default() -> Self {
        Self::new(MOST_ROUNDS)
    }
}

/// At 50 ms a call that is more than a million keys a second, none of which is answered.
pub(crate) const MOST_ROUNDS: usize = 65_536;
