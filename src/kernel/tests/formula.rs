//! Each algorithm's own bound on admissions, in every interval of a random run.

use proptest::prelude::*;

use super::{Bench, START, any_kind, any_limit, any_pause, scaled};
use crate::clock::Micros;
use crate::kernel::{Batch, Refund};
use crate::limit::{Algorithm, Limit, Share};

/// The most permits that may be admitted in the closed interval, as docs/accuracy.md states it.
fn bound(limit: &Limit, from: Micros, to: Micros) -> u64 {
    let window = limit.period().as_micros() as Micros;
    match limit.algorithm() {
        Algorithm::Composite => limit.parts().map(|part| bound(&part, from, to)).min().expect("a part"),
        Algorithm::TokenBucket | Algorithm::LeakyBucket | Algorithm::PacingQueue => {
            limit.burst() + (u128::from(limit.permits()) * u128::from(to - from) / u128::from(window)) as u64
        }
        Algorithm::FixedWindow => limit.permits() * ((to - from).div_ceil(window) + 1),
        Algorithm::SlidingWindow | Algorithm::SlidingLog => limit.permits() * ((to - from) / window + 1),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_interval_admits_more_than_its_bound(
        limit in any_kind(),
        calls in prop::collection::vec((any_pause(), 1u64..8, 1u64..5), 1..80),
    ) {
        let mut bench = Bench::new(&limit);
        let mut admitted: Vec<(Micros, u64)> = Vec::new();
        let mut now = START;
        for (pause, permits, count) in calls {
            now += scaled(bench.refill(), pause);
            let permits = permits.min(limit.burst());
            let (_, verdict) = bench.ask(now, permits, count);
            admitted.push((now, permits * verdict.granted));
        }
        for (first, (from, _)) in admitted.iter().enumerate() {
            let mut total = 0;
            for (to, permits) in &admitted[first..] {
                total += permits;
                prop_assert!(
                    total <= bound(&limit, *from, *to),
                    "{}: {} admitted in [{}, {}], at most {}", limit, total, from, to, bound(&limit, *from, *to)
                );
            }
        }
    }

    /// Permits that come back later make room once more: by what was held, and by what could refill meanwhile.
    #[test]
    fn refunds_widen_the_bound_by_what_was_held(
        limit in any_limit(),
        calls in prop::collection::vec((any_pause(), 1u64..8, prop::option::of(0usize..12)), 1..80),
    ) {
        let mut bench = Bench::new(&limit);
        let mut kept: Vec<(Micros, u64)> = Vec::new();
        // Charges that will be refunded, with the call at which that happens.
        let mut held: Vec<(usize, Refund)> = Vec::new();
        let (mut now, mut most_held, mut longest_hold) = (START, 0u64, 0u64);
        for (call, (pause, permits, refund_after)) in calls.iter().enumerate() {
            now += scaled(bench.refill(), *pause);
            let (due, still_held) = held.iter().partition(|(at, _)| *at <= call);
            held = still_held;
            for (_, refund) in due as Vec<(usize, Refund)> {
                longest_hold = longest_hold.max(now - refund.at);
                bench.run(now, &Batch { refunds: &[refund], ..Batch::default() });
            }
            let permits = (*permits).min(limit.burst());
            let (header, verdict) = bench.ask(now, permits, 1);
            let line = verdict.line + permits as i64 * bench.share.cost();
            match refund_after {
                Some(after) if verdict.granted == 1 => {
                    held.push((call + after, Refund { permits, at: header.at, line }));
                }
                _ => kept.push((now, permits * verdict.granted)),
            }
            most_held = most_held.max(held.iter().map(|(_, refund)| refund.permits).sum());
        }
        let window = limit.period().as_micros();
        let refilled = (u128::from(limit.permits()) * u128::from(longest_hold)).div_ceil(window) as u64;
        let extra = match bench.share { Share::Bucket(_) => most_held.min(refilled), _ => 0 };
        for (first, (from, _)) in kept.iter().enumerate() {
            let mut total = 0;
            for (to, permits) in &kept[first..] {
                total += permits;
                prop_assert!(
                    total <= bound(&limit, *from, *to) + extra,
                    "{}: {} kept in [{}, {}], at most {} + {}", limit, total, from, to, bound(&limit, *from, *to), extra
                );
            }
        }
    }

    /// A pacing queue lets calls go one after another, each as long after the one before as that one's permits take.
    #[test]
    fn a_pacing_queue_spaces_its_outflow(
        permits in 1u64..40, period in 1u64..5_000, capacity in 1u64..60,
        calls in prop::collection::vec((any_pause(), 1u64..8, 1u64..5), 1..80),
    ) {
        let limit: Limit = format!("pacing-queue {permits}/{period}us capacity {capacity}").parse().unwrap();
        let mut bench = Bench::new(&limit);
        let Share::Bucket(share) = bench.share else { unreachable!() };
        let (mut now, mut free_at) = (START, 0i128);
        for (pause, permits, count) in calls {
            now += scaled(bench.refill(), pause);
            let need = permits.min(capacity) as i64 * share.cost;
            let (header, verdict) = bench.ask(now, permits.min(capacity), count);
            for call in 0..verdict.granted as i64 {
                // In units of refill, so that nothing is hidden by rounding.
                let start = i128::from(header.at) * i128::from(share.rate) + i128::from(verdict.line + call * need);
                prop_assert!(start >= free_at, "{}: starts {} units before the last one is through", limit, free_at - start);
                free_at = start + i128::from(need);
            }
        }
    }
}

/// Permits admitted of evenly spaced calls at so many per cent of the limit, over fifty periods.
fn admitted(limit: &Limit, per_cent: u64) -> (u64, u64) {
    let mut bench = Bench::new(limit);
    let period = limit.period().as_micros() as Micros;
    let offered = 50 * limit.permits() * per_cent / 100;
    let granted = (0..offered).map(|call| bench.ask(START + 50 * period * call / offered, 1, 1).1.granted).sum();
    (offered, granted)
}

/// Nearly never less: below the limit nobody is denied, and an overload is let in up to it.
#[test]
fn the_limit_can_be_used() {
    for text in [
        "token-bucket 1000/s burst 20",
        "leaky-bucket 1000/s capacity 20",
        "pacing-queue 1000/s capacity 20",
        "fixed-window 1000/s",
        "sliding-window 1000/s",
        "sliding-window 1000/s precision 10",
        "sliding-log 1000/s",
    ] {
        let limit: Limit = text.parse().unwrap();
        let (offered, granted) = admitted(&limit, 90);
        assert_eq!(granted, offered, "{text}: denied below the limit");
        let (_, granted) = admitted(&limit, 200);
        // A sliding window keeps a charge for up to one of its parts longer; and the last window may be under way.
        let whole = 50 * limit.permits();
        let usable = limit.precision().map_or(whole, |parts| whole * u64::from(parts) / (u64::from(parts) + 1));
        let least = usable - limit.permits();
        assert!(granted >= least, "{text}: {granted} admitted under an overload, at least {least} can be");
    }
}
