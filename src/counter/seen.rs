//! Distinct values on the embedded store.

use std::collections::HashMap;

use super::table::Ends;
use crate::clock::Micros;

/// Values of one key that the embedded store holds: some 100 MB.
pub(super) const MOST_VALUES: usize = 1_000_000;

/// When each value was last seen, on the embedded store.
#[derive(Default)]
pub(super) struct Seen {
    last: HashMap<Box<[u8]>, Micros>,
    /// Until all are too old.
    ends: Micros,
    /// When those that are too old are looked for next.
    sweep: Micros,
}

impl Seen {
    /// A value is seen; says whether it was not within the window before. `None`: there is no room for it.
    pub(super) fn add(&mut self, window: Micros, now: Micros, value: &[u8]) -> Option<bool> {
        if now >= self.sweep || self.last.len() >= MOST_VALUES {
            self.last.retain(|_, at| *at + window > now);
            self.sweep = now + window / 8;
        }
        if let Some(at) = self.last.get_mut(value) {
            let is_fresh = *at + window <= now;
            *at = now.max(*at);
            self.ends = self.ends.max(now + window);
            return Some(is_fresh);
        }
        if self.last.len() >= MOST_VALUES {
            return None;
        }
        self.last.insert(value.into(), now);
        self.ends = self.ends.max(now + window);
        Some(true)
    }

    pub(super) fn count(&self, window: Micros, now: Micros) -> u64 {
        self.last.values().filter(|at| **at + window > now).count() as u64
    }
}

impl Ends for Seen {
    fn ends(&self) -> Micros {
        self.ends
    }
}
