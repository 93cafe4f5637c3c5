//! A clock that steps back.

use proptest::prelude::*;

use super::{Bench, START, any_kind, scaled};
use crate::clock::Micros;
use crate::kernel::state::is_as_new;
use crate::kernel::{Batch, Refund, State};
use crate::limit::{Algorithm, Limit, Share};

/// Steps of the clock in thousandths of a refill, back and forth, none of them further back than one refill.
fn swings() -> impl Strategy<Value = Vec<(i64, u64, u64)>> {
    let swing = prop_oneof![6 => 0i64..100, 3 => -999i64..0, 1 => 0i64..2_000];
    prop::collection::vec((swing, 1u64..8, 1u64..5), 1..80)
}

fn moved(now: Micros, refill: Micros, thousandths: i64) -> Micros {
    let by = scaled(refill, thousandths.unsigned_abs());
    if thousandths < 0 { now.saturating_sub(by) } else { now + by }
}

/// The latest instant that the state knows of.
fn seen(state: Option<&State>) -> Micros {
    match state.expect("it was asked") {
        State::Bucket(bucket) => bucket.seen,
        State::Fixed(window) => window.start,
        State::Sliding(window) => window.seen,
        State::Composite(states) => states.iter().map(|state| seen(state.as_ref())).min().expect("a part"),
    }
}

/// The most permits that may be admitted at moments from `first` to `last`.
fn most(limit: &Limit, first: Micros, last: Micros) -> u64 {
    let (elapsed, window) = (last - first, limit.period().as_micros() as u64);
    match limit.algorithm() {
        Algorithm::Composite => limit.parts().map(|part| most(&part, first, last)).min().expect("a part"),
        Algorithm::FixedWindow => limit.permits() * (last / window - first / window + 1),
        Algorithm::SlidingWindow | Algorithm::SlidingLog => limit.permits() * (elapsed / window + 1),
        _ => limit.burst() + (u128::from(limit.permits()) * u128::from(elapsed) / u128::from(window)) as u64,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Swinging back and forth refills nothing twice: the bound holds over the times decided at.
    #[test]
    fn a_swinging_clock_admits_no_more(limit in any_kind(), swings in swings()) {
        let mut bench = Bench::new(&limit);
        let refill = bench.refills().min().expect("a part");
        let (mut now, mut earliest, mut latest, mut admitted) = (START, START, START, 0u64);
        let (mut first, mut last) = (Micros::MAX, 0);
        for (swing, permits, count) in swings {
            // Never more than a refill behind the latest: further back counts as set back for good.
            now = moved(now, refill, swing).max(latest.saturating_sub(refill));
            (earliest, latest) = (earliest.min(now), latest.max(now));
            let permits = permits.min(limit.burst());
            let (header, verdict) = bench.ask(now, permits, count);
            prop_assert!(header.at >= now && header.at <= latest);
            (first, last) = (first.min(header.at), last.max(header.at));
            admitted += permits * verdict.granted;
        }
        // Each part by its own clock, which is nowhere behind this one and nowhere ahead of the latest.
        if limit.algorithm() == Algorithm::Composite {
            (first, last) = (earliest, latest);
        }
        let most = most(&limit, first, last);
        prop_assert!(admitted <= most, "{}: {} admitted in {} µs, at most {}", limit, admitted, last - first, most);
    }

    /// However the clock jumps, time stands still for at most a full refill, and then everything comes back.
    #[test]
    fn no_jump_locks_out_for_longer_than_a_refill(
        limit in any_kind(),
        jumps in prop::collection::vec((-5_000i64..5_000, 1u64..8), 1..40),
    ) {
        let mut bench = Bench::new(&limit);
        let refill = bench.refill();
        let mut now = START;
        for (jump, permits) in jumps {
            now = moved(now, refill, jump);
            let (header, _) = bench.ask(now, permits.min(limit.burst()), 1);
            prop_assert!(header.at - now <= refill, "{}: stands still for {} µs", limit, header.at - now);
        }
        // Caught up with where it stood still, then one full refill (and the rest of a sub-window).
        let step = match &bench.share {
            Share::Sliding(share) => share.step,
            // No longer than its window.
            Share::Composite(_) => refill,
            _ => 0,
        };
        let later = now + refill + refill + step;
        let (header, _) = bench.run(later, &Batch::default());
        prop_assert_eq!(header.missing, 0, "{}: still not as new", limit);
    }

    /// A clock set back for good keeps what is charged: following it gives nothing away.
    #[test]
    fn a_step_back_for_good_gives_nothing_away(limit in any_kind(), taken in 1u64..60, back in 1_001u64..9_000) {
        let mut bench = Bench::new(&limit);
        let (_, verdict) = bench.ask(START, 1, taken);
        let seen = seen(bench.state.as_ref());
        let now = seen - scaled(bench.refill(), back) - 1;
        let (header, _) = bench.run(now, &Batch::default());
        prop_assert_eq!(header.at, now);
        let left = limit.burst() - verdict.granted;
        prop_assert_eq!(header.level, left as i64 * bench.share.cost(), "{}", limit);
    }
}

/// A state that waits for the clock to catch up is not as new, however full: forgetting it would forget the wait.
#[test]
fn a_state_that_stands_still_is_not_as_new() {
    for text in ["token-bucket 10/s burst 5", "sliding-window 10/s", "sliding-log 10/s"] {
        let mut bench = Bench::new(&text.parse().unwrap());
        bench.run(START, &Batch::default());
        assert!(!is_as_new(&mut bench.state, &bench.share, START - 1_000), "{text}");
        assert!(is_as_new(&mut bench.state, &bench.share, START), "{text}");
    }
}

/// Numbers at the far end of what is accepted, and a receipt that is much too old.
#[test]
fn the_largest_numbers_do_not_overflow() {
    for text in ["pacing-queue 99999999977/s capacity 2000000000", "token-bucket 99999999977/week burst 3000"] {
        let mut bench = Bench::new(&text.parse().unwrap());
        let (header, verdict) = bench.ask(START, 2_000, 1);
        assert_eq!(verdict.granted, 1, "{text}");
        let refunds = [Refund { permits: 2_000, at: header.at, line: verdict.line + 2_000 * bench.share.cost() }];
        let (after, _) = bench.run(START + 400 * 86_400_000_000, &Batch { refunds: &refunds, ..Batch::default() });
        assert_eq!(after.missing, 0, "{text}");
    }
}
