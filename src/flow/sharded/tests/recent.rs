//! What a purse is to hold goes by what was used lately, and by nothing else.

use proptest::prelude::*;

use super::super::purse::Use;
use crate::clock::Micros;

const HORIZON: Micros = 20_000;

/// A key that is used at this rate, permits a millisecond, for so long; it is asked every millisecond. The last target.
fn use_at(recent: &mut Use, (used, now): (&mut u64, &mut Micros), rate: u64, millis: u64) -> u64 {
    let mut target = 0;
    for _ in 0..millis {
        (*used, *now) = (*used + rate, *now + 1_000);
        target = recent.target(*used, *now, HORIZON);
    }
    target
}

#[test]
fn it_is_a_horizon_of_use_and_falls_with_it() {
    let (mut recent, mut used, mut now) = (Use::default(), 0, 1);
    let mut at = |rate, millis| use_at(&mut recent, (&mut used, &mut now), rate, millis);
    assert_eq!(at(10, 200), 200, "10 a millisecond, for 20 of them");
    assert_eq!(at(100, 200), 2_000, "more use");
    assert!((400..=1_200).contains(&at(1, 10)), "of what it was and what it is, the mean");
    assert!((20..=21).contains(&at(1, 200)), "less use");
    assert!(at(0, 10) <= 10, "hardly any");
    assert_eq!(at(0, 400), 1, "none");
    assert_eq!(recent.target(used, now + 4 * HORIZON + 1, HORIZON), 0, "quiet");
}

#[test]
fn a_key_that_was_quiet_begins_anew() {
    let (mut recent, mut used, mut now) = (Use::default(), 0, 1);
    assert_eq!(use_at(&mut recent, (&mut used, &mut now), 10, 100), 200);
    // A second later, and ten calls: not the mean of now and of a time long gone.
    assert!(recent.target(used + 10, now + 1_000_000, HORIZON) <= 2);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// However often it is asked, and however unevenly it is used, below some rate.
    #[test]
    fn it_is_never_more_than_a_horizon_at_the_highest_rate(
        rate in 1_u64..50,
        first in 1_u64..5,
        steps in prop::collection::vec((1_u64..60_000, 0.0..=1.0_f64), 1..100),
    ) {
        let (mut recent, mut used, mut now) = (Use::default(), first, 1);
        // Of the very first calls nobody knows how long they took: twice as many are taken ahead.
        let most = (rate * HORIZON / 1_000).max(2 * first);
        prop_assert!(recent.target(used, now, HORIZON) <= most);
        for (time, part) in steps {
            now += time;
            used += (part * (rate * time) as f64 / 1_000.0) as u64;
            let target = recent.target(used, now, HORIZON);
            prop_assert!(target <= most + 1, "{target} of {most}, {used} used by {now}");
        }
    }
}
