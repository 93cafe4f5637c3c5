//! A task of a limit of which there is one, as long as there is something for it. Nobody who has something for it is overlooked.

use crate::sync::atomic::{AtomicU8, Ordering};

/// It is not there.
const RESTS: u8 = 0;
/// It has begun to look at everything.
const WORKS: u8 = 1;
/// There was something for it since.
const CALLED: u8 = 2;

#[derive(Default)]
pub(super) struct OneTask(AtomicU8);

impl OneTask {
    /// There is something for it, that was written before this. Says whether the task has to be begun.
    #[must_use = "somebody has to begin it"]
    pub(super) fn call(&self) -> bool {
        self.0.swap(CALLED, Ordering::AcqRel) == RESTS
    }

    /// Whether it was called and has not begun to look since. Good for those whose something lies behind a lock that the task takes to
    /// look: it will look after them. Others can't go by what they read here.
    pub(super) fn is_called(&self) -> bool {
        self.0.load(Ordering::Acquire) == CALLED
    }

    /// The task begins to look at everything: it sees what was there when it was called.
    pub(super) fn looks(&self) {
        self.0.swap(WORKS, Ordering::AcqRel);
    }

    /// It has looked, and there was nothing. `true`: it ends. `false`: it was called since, and has to look again.
    #[must_use = "it may have to go on"]
    pub(super) fn rests(&self) -> bool {
        self.0.compare_exchange(WORKS, RESTS, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}
