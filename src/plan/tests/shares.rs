//! How many shares a limit is divided into, and what is in them.

use std::num::NonZeroU16;
use std::time::Duration;

use proptest::prelude::*;

use crate::limit::{Limit, Share};
use crate::plan::{Shards, common_cost, shards_for, split};
use crate::topology::tests::scramble;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn shares_add_up(limit in any_limit(), shards in prop_oneof![1usize..20, 1usize..=16_384]) {
        let shares = split(&limit, shards);
        prop_assert_eq!(shares.len(), shards);
        prop_assert_eq!(shares.iter().map(|share| share.0).sum::<u64>(), limit.permits());
        prop_assert_eq!(shares.iter().map(|share| share.1).sum::<u64>(), limit.burst());
        prop_assert!(shares.is_sorted_by(|a, b| a.0 >= b.0 && a.1 >= b.1));
        let (first, last) = (shares[0], shares[shards - 1]);
        prop_assert!(first.0 - last.0 <= 1 && first.1 - last.1 <= 1);
        let full = limit.permits().min(limit.burst()) >= shards as u64;
        prop_assert_eq!(full, last.0 >= 1 && last.1 >= 1);
    }

    #[test]
    fn no_share_and_no_rest_at_home_is_beyond_exactness(limit in any_limit(), wanted: NonZeroU16, lent: u64) {
        let shards = shards_for(&limit, Shards::Exactly(wanted), 3);
        prop_assert!(shards >= 1 && shards <= usize::from(wanted.get()));
        let (mut permits, mut burst) = (limit.permits(), limit.burst());
        for (at, share) in split(&limit, shards).into_iter().enumerate() {
            prop_assert!(exact(&limit, share.0, share.1), "share {:?} of {}", share, shards);
            if at > 0 && !scramble(lent ^ at as u64).is_multiple_of(3) {
                (permits, burst) = (permits - share.0, burst - share.1);
                prop_assert!(exact(&limit, permits, burst), "home keeps {} and {}", permits, burst);
            }
        }
    }

    /// In one unit, the whole, each share and whatever home keeps are whole numbers, and add up.
    #[test]
    fn all_shares_are_exact_in_the_common_unit(limit in any_limit(), wanted: NonZeroU16, lent: u64) {
        let shards = shards_for(&limit, Shards::Exactly(wanted), 3);
        let cost = common_cost(&limit, shards);
        let whole = Share::whole(&limit);
        prop_assert!(Share::fits(&limit, cost));
        prop_assert_eq!(cost % whole.cost(), 0);
        prop_assert_eq!(common_cost(&limit, 1), whole.cost());
        let factor = cost / whole.cost();
        let (mut permits, mut burst, mut rate) = (limit.permits(), limit.burst(), whole.rate() * factor);
        // Building a part fails where its rate would be rounded.
        for (at, share) in split(&limit, shards).into_iter().enumerate().skip(1) {
            let part = Share::part(&limit, cost, share.0, share.1);
            prop_assert_eq!(part.cost(), cost);
            if scramble(lent ^ at as u64).is_multiple_of(3) {
                continue;
            }
            (permits, burst, rate) = (permits - share.0, burst - share.1, rate - part.rate());
            let home = Share::part(&limit, cost, permits, burst);
            prop_assert!(!Share::counts_units(&limit) || home.rate() == rate, "home refills {:?}, not {}", home, rate);
        }
    }

    #[test]
    fn shares_per_master_are_accurate(limit in any_limit(), masters in 0usize..1_001) {
        let shards = shards_for(&limit, Shards::PerMaster, masters);
        prop_assert!(shards == 1 || shards <= masters);
        if shards > 1 {
            let least = split(&limit, shards)[shards - 1].1;
            prop_assert!(least >= 20);
            // 20 ms of the rate, up to what the remainders make of it.
            let micros = limit.period().as_micros();
            prop_assert!(u128::from(least + 1) * micros > u128::from(limit.permits() / shards as u64) * 20_000);
        }
    }
}

/// Limits of every kind that can be split, round and odd numbers, up to the largest that are exact.
fn any_limit() -> impl Strategy<Value = Limit> {
    let number = || {
        prop_oneof![
            1u64..200,
            (1u64..10, 0u32..11).prop_map(|(digit, zeros)| digit * 10u64.pow(zeros)),
            1u64..100_000_000_000,
        ]
    };
    let period = prop_oneof![Just(1_000_000u64), Just(60_000_000), Just(86_400_000_000), 1u64..10_000_000];
    (0..4, number(), period, number()).prop_filter_map("out of range", |(kind, permits, period, burst)| {
        let period = Duration::from_micros(period);
        match kind {
            0 => Limit::token_bucket(permits, period, burst),
            1 => Limit::leaky_bucket(permits, period, burst),
            2 => Limit::fixed_window(permits, period),
            _ => Limit::sliding_window(permits, period),
        }
        .ok()
    })
}

fn exact(limit: &Limit, permits: u64, burst: u64) -> bool {
    match limit.algorithm().name() {
        "fixed-window" | "sliding-window" => Limit::fixed_window(permits, limit.period()).is_ok(),
        _ => Limit::token_bucket(permits, limit.period(), burst).is_ok(),
    }
}

#[test]
fn the_number_of_shards_follows_the_limit() {
    let exactly = |shards| Shards::Exactly(NonZeroU16::new(shards).unwrap());
    for (text, wanted, masters, shards) in [
        ("token-bucket 30000/s burst 3000", Shards::PerMaster, 3, 3),
        ("token-bucket 30000/s burst 3000", Shards::Off, 3, 1),
        ("token-bucket 30000/s burst 3000", exactly(5), 3, 5),
        ("token-bucket 30000/s burst 3000", Shards::PerMaster, 0, 1),
        // Accuracy: 20 permits of burst a share, and 20 ms of the rate.
        ("leaky-bucket 100/s capacity 79", Shards::PerMaster, 8, 3),
        ("leaky-bucket 100/s capacity 80", Shards::PerMaster, 8, 4),
        ("token-bucket 500000/s burst 10000", Shards::PerMaster, 3, 3),
        ("token-bucket 500000/s burst 9999", Shards::PerMaster, 3, 1),
        ("token-bucket 500000/s burst 9999", exactly(3), 3, 3),
        ("token-bucket 2/s burst 1000", Shards::PerMaster, 8, 2),
        ("fixed-window 100/s", Shards::PerMaster, 8, 5),
        ("sliding-window 100/19ms", Shards::PerMaster, 8, 1),
        ("sliding-window 39/s", Shards::PerMaster, 8, 1),
        // Asked for by a number: at least a permit a share, and a slot.
        ("token-bucket 100/s burst 2", exactly(7), 3, 2),
        ("sliding-window 5/s", exactly(7), 3, 5),
        ("fixed-window 1000000/s", exactly(u16::MAX), 3, 16_384),
        // A third of it needs numbers beyond 2^53, a half and a quarter do not.
        ("token-bucket 1000000/day", Shards::PerMaster, 3, 2),
        ("token-bucket 1000000/day", Shards::PerMaster, 4, 4),
        // One line, and a small log.
        ("pacing-queue 30000/s capacity 3000", exactly(3), 3, 1),
        ("sliding-log 10000/s", Shards::PerMaster, 3, 1),
    ] {
        assert_eq!(shards_for(&text.parse().unwrap(), wanted, masters), shards, "{text}, {wanted:?}, {masters}");
    }
}
