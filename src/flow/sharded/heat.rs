//! Whether a key that splits by itself is hot, as one client feels it.

use super::lane::UNKNOWN;
use super::planned::Warmth;
use crate::clock::Micros;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A key has cooled down when its shards have this part of what makes it hot to do,
const COOL: u64 = 4;
/// and have been there for so long: two of the beats in which they count what they do.
const COOLING: Micros = 1_000_000;
/// Others may find hot what this client finds cool, because they were told another `hot`, or its load comes and goes. Each time that one of
/// them splits it again so soon after, this client leaves it split for so many times longer: they do not move it to and fro.
const LONGER: u64 = 8;
const SOON: Micros = 60_000_000;
const LONGEST: Micros = 3_600_000_000;

pub(super) struct Heat {
    is_hot: AtomicBool,
    /// How long it is left where it is split.
    cooling: AtomicU64,
    /// When this client found it cool; 0: it did not, or others found it hot again.
    cooled: AtomicU64,
}

impl Heat {
    pub(super) fn new() -> Self {
        Self { is_hot: AtomicBool::new(false), cooling: AtomicU64::new(COOLING), cooled: AtomicU64::new(0) }
    }

    /// As it was when its key fell idle.
    pub(super) fn of(Warmth { is_hot, cooling, cooled, .. }: Warmth) -> Self {
        let (is_hot, cooling) = (AtomicBool::new(is_hot), AtomicU64::new(cooling));
        Self { is_hot, cooling, cooled: AtomicU64::new(cooled) }
    }

    /// What is kept of it, of a key whose plan is known since then.
    pub(super) fn warmth(&self, since: Micros) -> Warmth {
        let (cooling, cooled) = (self.cooling.load(Ordering::Relaxed), self.cooled.load(Ordering::Relaxed));
        Warmth { is_hot: self.is_hot(), cooling, cooled, since }
    }

    pub(super) fn is_hot(&self) -> bool {
        self.is_hot.load(Ordering::Relaxed)
    }

    /// Shards have said how much they have to do, under a plan that is known since then.
    pub(super) fn feel(&self, loads: impl Iterator<Item = u64> + Clone, hot: u64, since: Micros, now: Micros) {
        let mut loads = loads;
        let load: u64 = loads.clone().filter(|load| *load != UNKNOWN).sum();
        // In between it stays as it is, so that a key does not come and go.
        if !self.is_hot() {
            if load >= hot {
                self.is_hot.store(true, Ordering::Relaxed);
            }
            return;
        }
        // Only who has heard of all shards can say that all of them have little to do; and those that were just lent have done nothing yet.
        let is_old = || now.saturating_sub(since) > self.cooling.load(Ordering::Relaxed);
        if load.saturating_mul(COOL) < hot && loads.all(|load| load != UNKNOWN) && is_old() {
            self.is_hot.store(false, Ordering::Relaxed);
            self.cooled.store(now.max(1), Ordering::Relaxed);
        }
    }

    /// Somebody split it, and found it hot, or brought it home, and found it cool.
    pub(super) fn moved(&self, is_split: bool, now: Micros) {
        self.is_hot.store(is_split, Ordering::Relaxed);
        if !is_split {
            return;
        }
        let cooled = self.cooled.swap(0, Ordering::Relaxed);
        let is_soon = cooled > 0 && now.saturating_sub(cooled) < SOON;
        let cooling = self.cooling.load(Ordering::Relaxed);
        self.cooling.store(if is_soon { (cooling * LONGER).min(LONGEST) } else { COOLING }, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOT: u64 = 1_000;

    fn feels(heat: &Heat, loads: &[u64], since: Micros, now: Micros) -> bool {
        heat.feel(loads.iter().copied(), HOT, since, now);
        heat.is_hot()
    }

    #[test]
    fn between_cool_and_hot_it_stays_as_it_is() {
        let (heat, later) = (Heat::new(), 10 * COOLING);
        for (loads, is_hot) in [
            (&[999][..], false),
            (&[1_000], true),
            (&[400, 400, 100], true),
            (&[90, 90, 70], true),
            (&[80, 80, UNKNOWN], true),
            (&[80, 80, 80], false),
            (&[999], false),
        ] {
            assert_eq!(feels(&heat, loads, 0, later), is_hot, "{loads:?}");
        }
        feels(&heat, &[1_000], 0, later);
        assert!(feels(&heat, &[0, 0, 0], later - COOLING, later), "its shares were just lent");
    }

    /// One client finds cool what another finds hot: how often it is moved grows with the logarithm of the time.
    #[test]
    fn clients_that_disagree_come_to_rest() {
        let heat = Heat::new();
        let (mut since, mut homes) = (0, 0);
        heat.moved(true, 0);
        for now in (0..3 * LONGEST).step_by(100_000) {
            if !feels(&heat, &[0, 0, 0], since, now) {
                homes += 1;
                heat.moved(false, now);
                // The other one splits it again at once.
                heat.moved(true, now);
                since = now;
            }
        }
        assert!((4..=8).contains(&homes), "{homes} times in three hours");
    }

    /// Who is right about it after a long time begins anew.
    #[test]
    fn a_key_that_was_cool_for_long_is_not_held_against_it() {
        let heat = Heat::new();
        heat.moved(true, 1);
        for _ in 0..5 {
            let now = heat.cooling.load(Ordering::Relaxed) * 2;
            assert!(!feels(&heat, &[0], 0, now));
            heat.moved(true, now + SOON - 1);
        }
        assert_eq!(heat.cooling.load(Ordering::Relaxed), LONGEST);
        assert!(!feels(&heat, &[0], 0, 2 * LONGEST));
        heat.moved(true, 2 * LONGEST + SOON);
        assert_eq!(heat.cooling.load(Ordering::Relaxed), COOLING);
    }
}
