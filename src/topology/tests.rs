//! Topologies of every shape, and what a snapshot says about them.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use proptest::prelude::*;

use super::{Malformed, Master, Topology};
use crate::key::Slot;

const COUNT: usize = Slot::COUNT as usize;

/// Slot → number of its master: what a cluster would be asked to look like.
#[derive(Clone)]
pub(crate) struct Layout(pub Vec<Option<usize>>);

impl Layout {
    pub(crate) fn contiguous(masters: usize) -> Self {
        Self((0..COUNT).map(|slot| Some(slot * masters / COUNT)).collect())
    }

    pub(crate) fn striped(masters: usize) -> Self {
        Self((0..COUNT).map(|slot| Some(slot % masters)).collect())
    }

    /// The first master owns all but one slot of each of the others.
    pub(crate) fn single_slots(masters: usize) -> Self {
        Self((0..COUNT).map(|slot| Some(if slot % 16 == 3 && slot / 16 < masters { slot / 16 } else { 0 })).collect())
    }

    /// Ranges of any length, cut by dice.
    fn uneven(masters: usize, dice: u64) -> Self {
        let mut cuts: Vec<usize> = (1..masters as u64).map(|cut| scramble(dice ^ cut) as usize % COUNT).collect();
        cuts.sort_unstable();
        Self((0..COUNT).map(|slot| Some(cuts.partition_point(|cut| *cut <= slot))).collect())
    }

    fn scattered(masters: usize, dice: u64) -> Self {
        Self((0..COUNT as u64).map(|slot| Some(scramble(dice ^ slot) as usize % masters)).collect())
    }

    /// Without about `percent` of the slots.
    pub(crate) fn with_holes(mut self, percent: u64, dice: u64) -> Self {
        for (slot, owner) in self.0.iter_mut().enumerate() {
            if scramble(dice.wrapping_add(slot as u64)) % 100 < percent {
                *owner = None;
            }
        }
        self
    }

    /// As a reply would list it: a master with its ranges, in no order of any use.
    pub(crate) fn listed(&self, dice: u64) -> Vec<(Master, Vec<RangeInclusive<u16>>)> {
        let mut ranges: BTreeMap<usize, Vec<RangeInclusive<u16>>> = BTreeMap::new();
        for (slot, owner) in self.0.iter().enumerate() {
            let (slot, Some(owner)) = (slot as u16, owner) else { continue };
            let ranges = ranges.entry(*owner).or_default();
            match ranges.last_mut() {
                Some(last) if *last.end() + 1 == slot => *last = *last.start()..=slot,
                _ => ranges.push(slot..=slot),
            }
        }
        let mut listed: Vec<_> = ranges.into_iter().map(|(number, ranges)| (master(number), ranges)).collect();
        listed.sort_by_key(|(master, _)| scramble(dice ^ u64::from(master.port)));
        listed
    }

    pub(crate) fn topology(&self) -> Topology {
        Topology::new(7, self.listed(0)).expect("every slot is listed once")
    }
}

/// Ids come in no order of the numbers, as in a real cluster.
pub(crate) fn master(number: usize) -> Master {
    Master {
        id: format!("{:016x}", scramble(number as u64)).into(),
        host: format!("10.0.0.{}", number % 256).into(),
        port: number as u16,
    }
}

pub(crate) fn scramble(number: u64) -> u64 {
    let mixed = (number ^ 0x5851_f42d_4c95_7f2d).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    mixed ^ (mixed >> 32)
}

pub(crate) fn slot(number: usize) -> Slot {
    Slot::new((number % COUNT) as u16).expect("below the count")
}

/// 1 to 1,000 masters in every layout, with and without uncovered slots.
pub(crate) fn any_layout() -> impl Strategy<Value = Layout> {
    let masters = prop_oneof![1usize..8, 1usize..64, 1usize..=1_000];
    let percent = prop_oneof![4 => Just(0u64), 1 => 1u64..60, 1 => 95u64..=100];
    (0..5, masters, percent, any::<u64>())
        .prop_map(|(kind, masters, percent, dice)| {
            let layout = match kind {
                0 => Layout::contiguous(masters),
                1 => Layout::striped(masters),
                2 => Layout::single_slots(masters),
                3 => Layout::uneven(masters, dice),
                _ => Layout::scattered(masters, dice),
            };
            layout.with_holes(percent, dice)
        })
        .boxed()
}

/// How many slots each master has: all of them would fill a screen a master.
impl std::fmt::Debug for Layout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut sizes: BTreeMap<Option<usize>, usize> = BTreeMap::new();
        self.0.iter().for_each(|owner| *sizes.entry(*owner).or_default() += 1);
        write!(f, "{sizes:?}")
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_snapshot_says_what_was_listed(layout in any_layout(), dice: u64) {
        let topology = layout.topology();
        let mut found = 0;
        for (slot, owner) in Slot::all().zip(&layout.0) {
            prop_assert_eq!(topology.master_of(slot).cloned(), owner.map(master));
        }
        for (index, master) in topology.masters().iter().enumerate() {
            let slots = topology.slots_of(index);
            prop_assert!(!slots.is_empty() && slots.is_sorted());
            prop_assert!(slots.iter().all(|slot| topology.master_of(*slot) == Some(master)));
            found += slots.len();
        }
        prop_assert!(topology.masters().is_sorted_by(|a, b| a.id < b.id));
        prop_assert_eq!(topology.covered(), found);
        prop_assert_eq!(found, layout.0.iter().flatten().count());
        prop_assert_eq!(topology.epoch(), 7);
        // The order of the reply, and whether a master's ranges come in one entry or in many, say nothing.
        let split = layout.listed(dice).into_iter().flat_map(|(master, ranges)| {
            ranges.into_iter().map(move |range| (master.clone(), vec![range]))
        });
        prop_assert_eq!(Topology::new(7, split), Ok(topology));
    }

    #[test]
    fn a_moved_slot_is_the_only_difference(layout in any_layout(), at in 0..COUNT, to in 0usize..1_200) {
        let moved = layout.topology().with_moved(slot(at), master(to));
        let mut expected = layout;
        expected.0[at] = Some(to);
        prop_assert_eq!(moved, expected.topology());
    }
}

fn refused(listed: Vec<(Master, Vec<RangeInclusive<u16>>)>) -> String {
    Topology::new(1, listed).expect_err("malformed").to_string()
}

fn named(id: &str) -> Master {
    Master { id: id.into(), host: "::1".into(), port: 7000 }
}

#[test]
fn what_contradicts_itself_is_refused() {
    let (a, b) = (named("a"), named("b"));
    assert_eq!(
        refused(vec![(a.clone(), vec![16_380..=16_384])]),
        "slots 16380-16384 of master a go beyond 16383, the last slot"
    );
    #[expect(clippy::reversed_empty_ranges, reason = "what a broken reply holds")]
    let reversed = vec![(a.clone(), vec![0..=5, 9..=8])];
    assert_eq!(refused(reversed), "slots 9-8 of master a end before they begin");
    assert_eq!(
        refused(vec![(a.clone(), vec![0..=10]), (b, vec![11..=20, 5..=5])]),
        "slot 5 is listed twice: for master a and for master b"
    );
    assert_eq!(
        refused(vec![(a.clone(), vec![0..=10, 10..=11])]),
        "slot 10 is listed twice: for master a and for master a"
    );
    let elsewhere = Master { host: "redis-1.example".into(), ..a.clone() };
    assert_eq!(
        refused(vec![(a, vec![0..=10]), (elsewhere, vec![])]),
        "master a is listed with two addresses: [::1]:7000 and redis-1.example:7000"
    );
}

#[test]
fn as_many_masters_as_slots_fit_and_no_more() {
    let one_each = |count: u16| (0..count).map(|n| (named(&n.to_string()), vec![n..=n])).collect::<Vec<_>>();
    let mut listed = one_each(Slot::COUNT);
    assert_eq!(Topology::new(1, listed.clone()).map(|topology| topology.masters().len()), Ok(COUNT));
    listed.push((named("one more"), vec![]));
    assert_eq!(Topology::new(1, listed), Err(Malformed::TooManyMasters));
}

#[test]
fn a_master_without_slots_is_left_out() {
    let topology = Topology::new(1, [(named("a"), vec![0..=9]), (named("idle"), vec![])]).unwrap();
    assert_eq!(topology.masters(), [named("a")]);
    assert_eq!((topology.covered(), topology.master_of(slot(10))), (10, None));
    assert_eq!(Topology::new(1, []).map(|topology| topology.masters().len()), Ok(0));
}

#[test]
fn a_moved_reply_may_bring_a_newer_address() {
    let before = Topology::new(1, [(named("a"), vec![0..=9]), (named("b"), vec![10..=19])]).unwrap();
    let after = before.with_moved(slot(3), Master { port: 7001, ..named("b") });
    assert_eq!(after.master_of(slot(15)).map(|master| master.port), Some(7001));
    assert_eq!(after.master_of(slot(4)), Some(&named("a")));
}
