//! Each algorithm's own bound on admissions, in every interval of a random run.

use proptest::prelude::*;

use super::{Bench, START, any_limit, any_pause, scaled};
use crate::clock::Micros;
use crate::limit::{Algorithm, Limit, Share};

/// The most permits that may be admitted in the closed interval, as docs/accuracy.md states it.
fn bound(limit: &Limit, from: Micros, to: Micros) -> u64 {
    let window = limit.period().as_micros() as Micros;
    match limit.algorithm() {
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
        limit in any_limit(),
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
