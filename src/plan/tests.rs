//! Laws of the planner, on topologies of every shape.

mod shares;

use std::collections::HashSet;

use proptest::prelude::*;

use super::plan;
use crate::key::Slot;
use crate::topology::Topology;
use crate::topology::tests::{Layout, any_layout, master, scramble, slot};

const COUNT: usize = Slot::COUNT as usize;

fn any_shards() -> impl Strategy<Value = usize> {
    prop_oneof![1usize..8, 1usize..100, 1usize..=1_200]
}

/// Shards of each master.
fn counts(plan: &[Slot], topology: &Topology) -> Vec<usize> {
    let mut counts = vec![0; topology.masters().len()];
    for index in plan.iter().filter_map(|slot| topology.index_of(*slot)) {
        counts[index] += 1;
    }
    counts
}

/// What every plan must be, whatever was present. No master has two more than another that has a slot to spare; so
/// up to the number of masters, all lie on distinct ones.
fn check(plan: &[Slot], home: Slot, topology: &Topology, shards: usize) -> Result<(), TestCaseError> {
    prop_assert_eq!(plan[0], home);
    prop_assert_eq!(plan.iter().collect::<HashSet<_>>().len(), plan.len());
    prop_assert!(plan[1..].iter().all(|slot| topology.index_of(*slot).is_some()));
    let homeless = usize::from(topology.index_of(home).is_none());
    prop_assert_eq!(plan.len(), shards.min(topology.covered() + homeless));

    let counts = counts(plan, topology);
    let most = counts.iter().max().copied().unwrap_or(0);
    for (index, count) in counts.iter().enumerate() {
        prop_assert!(count + 1 >= most || *count == topology.slots_of(index).len(), "{:?}", counts);
    }
    if shards <= topology.masters().len() {
        prop_assert!(most <= 1);
    }
    Ok(())
}

/// Shards that are not where they were.
fn changed(before: &[Slot], after: &[Slot]) -> Vec<usize> {
    (0..before.len().max(after.len())).filter(|at| before.get(*at) != after.get(*at)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_plan_is_spread_over_the_masters(layout in any_layout(), seed: u64, home in 0..COUNT, shards in any_shards()) {
        let (topology, home) = (layout.topology(), slot(home));
        let plan = plan(home, seed, &topology, shards, &[]);
        check(&plan, home, &topology, shards)?;
        // The first ones are on distinct masters too, as far as there are any.
        let first = plan.len().min(topology.masters().len());
        let most = counts(&plan[..first], &topology).into_iter().max();
        prop_assert!(most <= Some(1));
    }

    #[test]
    fn anything_may_be_present(
        layout in any_layout(), seed: u64, home in 0..COUNT, shards in any_shards(),
        present in prop::collection::vec(0..COUNT, 0..300),
        narrow in prop_oneof![Just(COUNT), 1usize..300],
    ) {
        let (topology, home) = (layout.topology(), slot(home));
        // Narrow: many of them twice, and many on one master.
        let present: Vec<Slot> = present.into_iter().map(|number| slot(number % narrow)).collect();
        let plan = plan(home, seed, &topology, shards, &present);
        check(&plan, home, &topology, shards)?;

        // What was kept is in its order, and what was not has no room: its master is among the fullest.
        let mut last = 0;
        let counts = counts(&plan, &topology);
        for slot in &plan[1..] {
            if let Some(at) = present.iter().position(|other| other == slot) {
                prop_assert!(at >= last, "{} after {}", at, last);
                last = at;
            }
        }
        let most = counts.iter().max();
        let fresh = |index| plan[1..].iter().any(|s| topology.index_of(*s) == Some(index) && !present.contains(s));
        for slot in present.iter().filter(|slot| !plan.contains(slot)) {
            let Some(index) = topology.index_of(*slot) else { continue };
            prop_assert!(!fresh(index), "{:?} was replaced on its own master", slot);
            prop_assert!(counts[index] + 1 >= *most.unwrap() || shards == 1);
        }
    }

    #[test]
    fn a_plan_that_serves_stays(layout in any_layout(), seeds: (u64, u64), home in 0..COUNT, shards in any_shards()) {
        let (topology, home) = (layout.topology(), slot(home));
        let before = plan(home, seeds.0, &topology, shards, &[]);
        prop_assert_eq!(&plan(home, seeds.1, &topology, shards, &before), &before);
        // More shards only add, fewer only take away.
        let more = plan(home, seeds.1, &topology, shards + 3, &before);
        prop_assert_eq!(&more[..before.len()], &before[..]);
        let fewer = plan(home, seeds.1, &topology, shards.div_ceil(2), &before);
        prop_assert!(fewer.iter().all(|slot| before.contains(slot)));
    }

    #[test]
    fn a_moved_slot_changes_at_most_one_shard(
        layout in any_layout(), seed: u64, home in 0..COUNT, shards in any_shards(),
        which in prop_oneof![4 => Just(None), 1 => (0..COUNT).prop_map(Some)],
        to in prop_oneof![0usize..3, 0usize..1_200],
    ) {
        let (topology, home) = (layout.topology(), slot(home));
        let before = plan(home, seed, &topology, shards, &[]);
        let moved = which.map_or_else(|| before[seed as usize % before.len()], slot);
        let topology = topology.with_moved(moved, master(to));
        let after = plan(home, seed, &topology, shards, &before);
        check(&after, home, &topology, shards)?;
        let still_serves = check(&before, home, &topology, shards).is_ok();
        prop_assert_eq!(changed(&before, &after).len(), usize::from(!still_serves));
    }

    #[test]
    fn a_master_that_goes_moves_only_its_shards(
        mut layout in any_layout(), seed: u64, home in 0..COUNT, shards in any_shards(), heirs in 0usize..4,
    ) {
        let (old, home) = (layout.topology(), slot(home));
        let before = plan(home, seed, &old, shards, &[]);
        let gone = layout.0[usize::from(before[seed as usize % before.len()].number())];
        let its: Vec<usize> =
            (0..before.len()).filter(|at| gone.is_some() && layout.0[usize::from(before[*at].number())] == gone).collect();
        let left: Vec<usize> = layout.0.iter().flatten().copied().filter(|owner| Some(*owner) != gone).collect();
        let mut next = 0;
        for owner in layout.0.iter_mut().filter(|owner| **owner == gone && gone.is_some()) {
            next += 1;
            // To one, two or three heirs, or to nobody.
            *owner = if heirs == 0 || left.is_empty() { None } else { Some(left[next % heirs * left.len() / heirs]) };
        }
        let new = layout.topology();
        let after = plan(home, seed, &new, shards, &before);
        check(&after, home, &new, shards)?;
        // An heir that has a shard of this key already keeps one of the two: which one, no rule says.
        let lost: Vec<usize> = (0..before.len()).filter(|at| !after.contains(&before[*at])).collect();
        prop_assert!(lost.len() <= its.len());
        if heirs == 0 {
            prop_assert_eq!(&lost, &its.into_iter().filter(|at| *at > 0).collect::<Vec<_>>());
        }
        // With too few slots left the plan gets shorter; otherwise everything else stays in its place.
        if after.len() == before.len() {
            prop_assert_eq!(changed(&before, &after), lost);
        }
    }

    #[test]
    fn a_new_master_gets_all_that_changes(
        mut layout in any_layout(), seed: u64, home in 0..COUNT, shards in any_shards(), size in 1usize..2_000,
    ) {
        let (old, home) = (layout.topology(), slot(home));
        let before = plan(home, seed, &old, shards, &[]);
        for step in 0..size {
            let at = scramble(seed ^ step as u64) as usize % COUNT;
            if layout.0[at].is_some() && !before.contains(&slot(at)) {
                layout.0[at] = Some(5_000);
            }
        }
        let new = layout.topology();
        let after = plan(home, seed, &new, shards, &before);
        check(&after, home, &new, shards)?;
        for at in changed(&before, &after) {
            prop_assert_eq!(new.master_of(after[at]), Some(&master(5_000)));
        }
    }

    #[test]
    fn every_client_makes_the_same_plan(
        layout in any_layout(), seed: u64, home in 0..COUNT, shards in any_shards(), dice: u64,
    ) {
        let other = Topology::new(7, layout.listed(dice)).unwrap();
        let home = slot(home);
        prop_assert_eq!(plan(home, seed, &other, shards, &[]), plan(home, seed, &layout.topology(), shards, &[]));
    }
}

#[test]
fn keys_spread_over_masters_and_slots() {
    let cases = [
        (Layout::contiguous(3), 2),
        (Layout::striped(12), 4),
        (Layout::striped(12), 30),
        (Layout::contiguous(1_000), 200),
        (Layout::single_slots(10), 4),
    ];
    for (layout, shards) in cases {
        let topology = layout.topology();
        let masters = topology.masters().len();
        let home = slot(0);
        let mut total = vec![0; masters];
        for seed in 0..10_000 {
            let plan = plan(home, seed, &topology, shards, &[]);
            for (total, count) in total.iter_mut().zip(counts(&plan, &topology)) {
                *total += count;
            }
        }
        if shards < masters {
            // Home's master has home each time, and nothing else.
            total.remove(topology.index_of(home).unwrap());
        }
        within_a_tenth(&total);
    }
    // And with the homes of real keys, everybody together.
    let topology = Layout::contiguous(12).topology();
    let mut total = vec![0; 12];
    for seed in 0..10_000u64 {
        let plan = plan(Slot::of(&seed.to_be_bytes()), seed, &topology, 4, &[]);
        for (total, count) in total.iter_mut().zip(counts(&plan, &topology)) {
            *total += count;
        }
    }
    within_a_tenth(&total);
    assert_eq!(total.iter().sum::<usize>(), 40_000);
    // Slots of one master: 2 masters, 8 slots each.
    let mut layout = Layout::striped(2);
    layout.0[16..].fill(None);
    let topology = layout.topology();
    let mut total = vec![0; 16];
    for seed in 0..10_000 {
        total[usize::from(plan(slot(0), seed, &topology, 2, &[])[1].number())] += 1;
    }
    let odd: Vec<usize> = total.into_iter().skip(1).step_by(2).collect();
    within_a_tenth(&odd);
}

fn within_a_tenth(total: &[usize]) {
    let fair = total.iter().sum::<usize>() as f64 / total.len() as f64;
    assert!(fair > 0.0 && total.iter().all(|count| (*count as f64 / fair - 1.0).abs() < 0.1), "{fair}: {total:?}");
}

#[test]
fn orders_of_masters_differ_between_keys() {
    let topology = Layout::contiguous(5).topology();
    let orders: HashSet<Vec<Option<usize>>> = (0..2_000)
        .map(|seed| plan(slot(0), seed, &topology, 5, &[]).into_iter().map(|slot| topology.index_of(slot)).collect())
        .collect();
    assert_eq!(orders.len(), 24);
}

#[test]
fn without_masters_there_is_only_home() {
    let nobody = Topology::new(1, []).unwrap();
    for shards in [0, 1, 3] {
        assert_eq!(plan(slot(5), 1, &nobody, shards, &[slot(5), slot(6)]), [slot(5)]);
    }
    assert_eq!(plan(slot(5), 1, &Layout::striped(3).topology(), 0, &[]), [slot(5)]);
}

#[test]
fn a_plan_is_the_same_in_every_release() {
    // Clients of two releases share keys during a deploy: if they planned differently, shares would move for nothing.
    let numbers = |layout: Layout, seed, shards| -> Vec<u16> {
        plan(slot(100), seed, &layout.topology(), shards, &[]).into_iter().map(Slot::number).collect()
    };
    assert_eq!(numbers(Layout::contiguous(3), 42, 3), [100, 12_444, 7_341]);
    assert_eq!(numbers(Layout::striped(4), 43, 6), [100, 13_605, 27, 1_594, 5_261, 14_472]);
}

#[test]
fn every_slot_can_hold_a_shard() {
    let mut all = plan(slot(9), 3, &Layout::single_slots(1_000).topology(), COUNT, &[]);
    all.sort_unstable();
    assert!(all.into_iter().eq(Slot::all()));
}
