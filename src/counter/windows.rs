//! The arithmetic of sliding counters: pure. The embedded store runs it, and `lua/sliding_counter.lua` is tested against it.

use super::kernel::LARGEST;
use super::table::Ends;
use crate::clock::Micros;

/// Parts of a window. A window counts an event until its part is over and a window old: 1/64 of the window too long at the most.
pub(crate) const PARTS: u64 = 64;
/// Windows of a key. A ring takes up to 1 kB, and every add writes all of them.
pub(crate) const MOST_WINDOWS: usize = 8;

/// One key, in all its windows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Windows {
    /// The latest instant decided at.
    pub seen: Micros,
    /// What was asked for last comes first.
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
        let known = self.rings.iter().map(|ring| ring.window);
        let longest = windows.iter().copied().chain(known).max().unwrap_or(0);
        let (at, begins_anew) = match self.seen.checked_sub(now) {
            // Behind by up to the longest window: time stands still. By more: set back for good.
            Some(behind) if behind <= longest => (self.seen, false),
            Some(_) => (now, true),
            None => (now, false),
        };
        let old: &[Ring] = if begins_anew { &[] } else { &self.rings };
        let ring = |window: &Micros| {
            let old = old.iter().find(|ring| ring.window == *window);
            Ring { window: *window, parts: old.map_or_else(Vec::new, |ring| ring.parts.clone()) }.at(at, events)
        };
        let mut rings: Vec<Ring> = windows.iter().map(ring).collect();
        let counts: Vec<u64> = rings.iter().map(|ring| ring.parts.iter().map(|part| part.1).sum()).collect();
        if counts.iter().any(|count| *count > LARGEST as u64) {
            return None;
        }
        if events > 0 {
            // Other clients may ask for other windows: what still counts there stays, as far as there is room.
            for ring in old {
                let is_new = rings.iter().all(|kept| kept.window != ring.window);
                let ring = ring.clone().at(at, 0);
                if is_new && !ring.parts.is_empty() && rings.len() < MOST_WINDOWS {
                    rings.push(ring);
                }
            }
            *self = Self { seen: at, rings };
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Of too many, those that were not asked for the longest make way; those that have ended do so first.
    #[test]
    fn rings_have_a_bound() {
        let (mut state, second) = (Windows::default(), 1_000_000);
        let windows = |state: &Windows| state.rings.iter().map(|ring| ring.window / second).collect::<Vec<_>>();
        for window in 1..=10 {
            state.add(&[window * 100 * second], second, 1).unwrap();
        }
        assert_eq!(windows(&state), [1_000, 900, 800, 700, 600, 500, 400, 300]);
        state.add(&[300 * second, 100 * second], second, 1).unwrap();
        assert_eq!(windows(&state), [300, 100, 1_000, 900, 800, 700, 600, 500]);
        assert_eq!(state.add(&[300 * second], second, 0), Some(vec![2]));
        // An hour later nothing of it counts.
        state.add(&[200 * second], 3_600 * second, 1).unwrap();
        assert_eq!(windows(&state), [200]);
    }
}
