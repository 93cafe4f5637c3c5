//! Everything that was found out about the servers.

use std::ops::RangeInclusive;

use shardlimit::Slot;

use super::probe::Facts;

#[derive(Clone, Debug)]
pub(super) struct Diagnosis {
    /// Else single servers.
    pub cluster: bool,
    /// The user may not ask who is in the cluster: the slots are unknown.
    pub blind: bool,
    pub masters: Vec<Master>,
    pub replicas: Vec<Replica>,
    /// URLs that don't answer, or are not of the cluster, and why.
    pub odd_urls: Vec<(String, String)>,
}

#[derive(Clone, Debug)]
pub(super) struct Master {
    pub id: Option<String>,
    pub address: String,
    pub slots: Vec<RangeInclusive<u16>>,
    /// The cluster holds it for dead.
    pub failed: bool,
    /// Or why it does not answer.
    pub facts: Result<Facts, String>,
}

#[derive(Clone, Debug)]
pub(super) struct Replica {
    pub id: String,
    pub address: String,
    pub master: String,
    pub facts: Result<Facts, String>,
}

impl Master {
    pub(super) fn slot_count(&self) -> usize {
        self.slots.iter().map(ExactSizeIterator::len).sum()
    }
}

impl Replica {
    pub(super) fn is_in_step(&self) -> bool {
        self.facts.as_ref().is_ok_and(|facts| facts.in_step)
    }
}

impl Diagnosis {
    /// Masters that answer, with what they say.
    pub(super) fn answering(&self) -> impl Iterator<Item = (&Master, &Facts)> {
        self.masters.iter().filter_map(|master| Some((master, master.facts.as_ref().ok()?)))
    }

    /// How many could take over from a master.
    pub(super) fn replicas_of(&self, master: &Master) -> u64 {
        if !self.cluster {
            return master.facts.as_ref().map_or(0, |facts| facts.connected_replicas);
        }
        let of_it = |replica: &&Replica| Some(&replica.master) == master.id.as_ref() && replica.is_in_step();
        self.replicas.iter().filter(of_it).count() as u64
    }

    /// Slots without a master that answers.
    pub(super) fn uncovered(&self) -> Vec<RangeInclusive<u16>> {
        self.without(|master| master.facts.is_ok())
    }

    /// Slots that no master has, dead or alive.
    pub(super) fn unowned(&self) -> Vec<RangeInclusive<u16>> {
        self.without(|_| true)
    }

    fn without(&self, counts: impl Fn(&Master) -> bool) -> Vec<RangeInclusive<u16>> {
        if !self.cluster || self.blind {
            return Vec::new();
        }
        let mut covered = vec![false; usize::from(Slot::COUNT)];
        for range in self.masters.iter().filter(|master| counts(master)).flat_map(|master| &master.slots) {
            covered[usize::from(*range.start())..=usize::from(*range.end())].fill(true);
        }
        let mut ranges: Vec<RangeInclusive<u16>> = Vec::new();
        for slot in (0..Slot::COUNT).filter(|slot| !covered[usize::from(*slot)]) {
            match ranges.last_mut() {
                Some(last) if *last.end() + 1 == slot => *last = *last.start()..=slot,
                _ => ranges.push(slot..=slot),
            }
        }
        ranges
    }

    /// The most that two masters' clocks differ by, in microseconds.
    pub(super) fn clock_spread_us(&self) -> f64 {
        let clocks: Vec<f64> = self.answering().filter_map(|(_, facts)| facts.clock_us).collect();
        let highest = clocks.iter().copied().reduce(f64::max).unwrap_or(0.0);
        highest - clocks.iter().copied().reduce(f64::min).unwrap_or(0.0)
    }
}

/// `0-99, 105`.
pub(super) fn range_texts(ranges: &[RangeInclusive<u16>]) -> Vec<String> {
    let text = |range: &RangeInclusive<u16>| match (range.start(), range.end()) {
        (first, last) if first == last => first.to_string(),
        (first, last) => format!("{first}-{last}"),
    };
    ranges.iter().map(text).collect()
}
