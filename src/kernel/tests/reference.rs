//! Each decision against a plain implementation that cannot drift.

use num_rational::Ratio;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::{Bench, START};
use crate::clock::Micros;
use crate::limit::{Algorithm, Limit};

/// What a limit means, written down without a thought of speed.
enum Reference {
    /// Permits left, as a fraction, and when that was.
    Bucket { level: Ratio<i128>, seen: Micros },
    /// Every permit ever given, with its time.
    Events(Vec<(Micros, u64)>),
    /// All of these.
    Parts(Vec<(Limit, Reference)>),
}

impl Reference {
    fn new(limit: &Limit) -> Self {
        match limit.algorithm() {
            Algorithm::TokenBucket | Algorithm::LeakyBucket | Algorithm::PacingQueue => {
                Self::Bucket { level: Ratio::from_integer(limit.burst().into()), seen: START }
            }
            Algorithm::FixedWindow | Algorithm::SlidingWindow | Algorithm::SlidingLog => Self::Events(Vec::new()),
            Algorithm::Composite => Self::Parts(limit.parts().map(|part| (part, Self::new(&part))).collect()),
        }
    }

    /// Whole permits that can be had.
    fn available(&mut self, limit: &Limit, now: Micros) -> u64 {
        let window = limit.period().as_micros() as Micros;
        match self {
            Self::Bucket { level, seen } => {
                let refilled = Ratio::new(i128::from(limit.permits()) * i128::from(now - *seen), window.into());
                *level = (*level + refilled).min(Ratio::from_integer(limit.burst().into()));
                *seen = now;
                level.to_integer() as u64
            }
            Self::Parts(parts) => {
                parts.iter_mut().map(|(limit, part)| part.available(limit, now)).min().expect("a part")
            }
            Self::Events(events) => {
                let counts = |at: Micros| match limit.algorithm() {
                    Algorithm::FixedWindow => at / window == now / window,
                    Algorithm::SlidingWindow => {
                        let step = window.div_ceil(limit.precision().map_or(1, Micros::from));
                        (at / step + 1) * step - 1 + window > now
                    }
                    _ => at + window > now,
                };
                // What has left a window never comes back: time only rises here.
                events.retain(|(at, _)| counts(*at));
                limit.permits() - events.iter().map(|(_, permits)| permits).sum::<u64>()
            }
        }
    }

    fn take(&mut self, now: Micros, permits: u64) {
        match self {
            Self::Bucket { level, .. } => *level -= Ratio::from_integer(i128::from(permits)),
            Self::Events(events) => events.push((now, permits)),
            Self::Parts(parts) => parts.iter_mut().for_each(|(_, part)| part.take(now, permits)),
        }
    }
}

fn random(seed: u8) -> TestRng {
    TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32])
}

/// Random acquires, spaced so that the limit is met about as often as not.
fn replay(text: &str, calls: u32, seed: u8) {
    let limit: Limit = text.parse().expect(text);
    let mut bench = Bench::new(&limit);
    let mut reference = Reference::new(&limit);
    let mut random = random(seed);
    let spacing = (limit.period().as_micros() as u64 * 2 / limit.permits()).max(1);
    let most = limit.burst().min(6);
    let (mut now, mut granted) = (START, 0u64);
    for call in 0..calls {
        // Bursts of calls in one microsecond, then pauses that are now and then longer than a refill.
        now += match random.random_range(0..1_000 + 20 * limit.burst()) {
            0 => bench.refill() * 2,
            1..400 => 0,
            _ => random.random_range(0..=spacing),
        };
        let permits = random.random_range(1..=most);
        let available = reference.available(&limit, now);
        let (header, verdict) = bench.ask(now, permits, 1);
        let expected = u64::from(available >= permits);
        assert_eq!(verdict.granted, expected, "{text}: call {call} at {now} for {permits} of {available}");
        reference.take(now, permits * expected);
        assert_eq!(header.level.max(0) as u64 / bench.share.cost() as u64, available - permits * expected, "{text}");
        granted += expected;
    }
    let share = granted as f64 / f64::from(calls);
    assert!((0.05..0.95).contains(&share), "{text}: {share} of the calls were granted, which tests one side only");
}

/// Ten million acquires of buckets against rationals: integers in well-chosen units neither drift nor round.
#[test]
fn buckets_equal_rationals_over_ten_million_acquires() {
    let limits = [
        "token-bucket 500000/s burst 50000",
        "token-bucket 3/10s burst 2",
        "token-bucket 7/13us burst 3",
        "token-bucket 999983/s burst 100",
        "token-bucket 1/day burst 1",
        "token-bucket 1000000007/day burst 4099",
        "leaky-bucket 100/s capacity 500",
        "leaky-bucket 997/7ms capacity 31",
        "pacing-queue 20/s capacity 40",
        "pacing-queue 333333/s capacity 17",
    ];
    for (seed, text) in limits.into_iter().enumerate() {
        replay(text, 1_000_000, seed as u8);
    }
}

#[test]
fn windows_equal_the_list_of_all_events() {
    for (seed, text) in [
        "fixed-window 10000/day",
        "fixed-window 5/7us",
        "sliding-window 3/10s",
        "sliding-window 30/10s precision 7",
        "sliding-window 40/100us precision 100",
        "sliding-log 5/min",
        "sliding-log 60/1ms",
    ]
    .into_iter()
    .enumerate()
    {
        replay(text, 200_000, seed as u8);
    }
}

/// Any limit, not only the ones above.
#[test]
fn any_limit_equals_its_reference() {
    let mut runner =
        TestRunner::new_with_rng(Config { failure_persistence: None, ..Config::with_cases(2_000) }, random(7));
    runner
        .run(&(super::any_kind(), prop::collection::vec((super::any_pause(), 1u64..8), 1..60)), |(limit, calls)| {
            let mut bench = Bench::new(&limit);
            let mut reference = Reference::new(&limit);
            let mut now = START;
            for (pause, permits) in calls {
                now += super::scaled(bench.refill(), pause);
                let permits = permits.min(limit.burst());
                let available = reference.available(&limit, now);
                let (_, verdict) = bench.ask(now, permits, 1);
                prop_assert_eq!(verdict.granted, u64::from(available >= permits), "{} at {}", limit, now);
                reference.take(now, permits * verdict.granted);
            }
            Ok(())
        })
        .expect("every decision equals the reference");
}
