//! The arithmetic of sliding counters: pure. The embedded store runs it, and `lua/sliding_counter.lua` is tested against it.

use super::kernel::LARGEST;
use super::table::Ends;
use crate::clock::Micros;

/// Parts of a window. A window counts an event until its part is over and a window old: 1/64 of the window too long at the most.
pub(crate) const PARTS: u64 = 64;

/// One key, in all its windows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Windows {
    /// The latest instant decided at.
    pub seen: Micros,
    pub rings: Vec<Ring>,
}

/// The events of one window, by part; only parts with some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ring {
    pub window: Micros,
    /// Number and events, the oldest first.
    pub parts: Vec<(u64, u64)>,
}

impl Windows {
    /// Counts events, perhaps none, and says how many there were in each window, these included. None: a count would be too
    /// large for whole numbers, and nothing was counted.
    pub(crate) fn add(&mut self, windows: &[Micros], now: Micros, events: u64) -> Option<Vec<u64>> {
        let longest = windows.iter().copied().max().unwrap_or(0);
        let (at, begins_anew) = match self.seen.checked_sub(now) {
            // Behind by up to the longest window: time stands still. By more: set back for good.
            Some(behind) if behind <= longest => (self.seen, false),
            Some(_) => (now, true),
            None => (now, false),
        };
        let ring = |window: &Micros| {
            let old = self.rings.iter().find(|ring| ring.window == *window && !begins_anew);
            Ring { window: *window, parts: old.map_or_else(Vec::new, |ring| ring.parts.clone()) }.at(at, events)
        };
        let next = Self { seen: at, rings: windows.iter().map(ring).collect() };
        let counts: Vec<u64> = next.rings.iter().map(|ring| ring.parts.iter().map(|part| part.1).sum()).collect();
        if counts.iter().any(|count| *count > LARGEST as u64) {
            return None;
        }
        if events > 0 {
            *self = next;
        }
        Some(counts)
    }
}

impl Ring {
    fn at(mut self, at: Micros, events: u64) -> Self {
        let step = self.window.div_ceil(PARTS);
        self.parts.retain(|(number, _)| (number + 1) * step + self.window > at);
        match self.parts.last_mut() {
            _ if events == 0 => {}
            Some((number, there)) if *number == at / step => *there += events,
            _ => self.parts.push((at / step, events)),
        }
        self
    }
}

impl Ends for Windows {
    fn ends(&self) -> Micros {
        let longest = self.rings.iter().map(|ring| ring.window).max().unwrap_or(0);
        self.seen + longest + longest.div_ceil(PARTS)
    }
}
