//! What does a decision on the embedded store cost, against governor's keyed limiter?
//!
//! `cargo bench -p shardlimit-peers --bench local`

use std::hint::black_box;
use std::num::NonZeroU32;

use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use shardlimit::{Handle, Limiter, NamedLimit};
use shardlimit_peers::{CONTEST_ROUNDS, Contestant, contest};

const CALLS: u64 = 500_000;

struct Case {
    name: &'static str,
    keys: usize,
    /// Permits a second, for each key.
    rate: u32,
}

const CASES: [Case; 4] = [
    Case { name: "one key, allowed", keys: 1, rate: 1_000_000_000 },
    Case { name: "one key, denied", keys: 1, rate: 1 },
    Case { name: "1,000 keys, allowed", keys: 1_000, rate: 1_000_000_000 },
    Case { name: "100,000 keys, allowed", keys: 100_000, rate: 1_000_000 },
];

fn main() {
    let threads: usize = std::thread::available_parallelism().map_or(2, usize::from);
    println!(
        "{threads} cores; median of {CONTEST_ROUNDS} interleaved rounds of {CALLS} decisions a thread; ratio: above 1 is faster\n"
    );
    let mut worst = f64::MAX;
    for case in CASES {
        for threads in [1, 2] {
            let title = format!("{}, {threads} thread(s)", case.name);
            worst = worst.min(measure(&title, threads, &case));
        }
    }
    println!("\nlowest ratio of shardlimit by key to governor: {worst:.2} x");
}

fn measure(title: &str, threads: usize, case: &Case) -> f64 {
    let keys: Vec<String> = (0..case.keys).map(|i| format!("user:{i}")).collect();
    let rate = NonZeroU32::new(case.rate).expect("not zero");
    let governor: DefaultKeyedRateLimiter<String> = RateLimiter::keyed(Quota::per_second(rate));
    let limiter = Limiter::builder().max_keys(200_000).build().expect("valid settings");
    let define = |name| -> Result<NamedLimit, shardlimit::Error> { limiter.define(name, format!("{rate}/s").parse()?) };
    let limit = define("by-key").expect("a valid limit");
    let held = define("by-handle").expect("a valid limit");
    let handles: Vec<Handle> = keys.iter().map(|key| held.handle(key).expect("a valid key")).collect();

    // Everybody is known before the first round.
    for key in &keys {
        let _ = (governor.check_key(key), ask(&limit, key));
    }

    let governor = |thread, calls| each(&keys, thread, calls, |key| governor.check_key(key).is_ok());
    let by_key = |thread, calls| each(&keys, thread, calls, |key| ask(&limit, key));
    let by_handle = |thread, calls| each(&handles, thread, calls, ask_handle);
    let ratios = contest(
        title,
        threads,
        CALLS,
        &[
            Contestant { name: "governor, keyed", work: &governor },
            Contestant { name: "shardlimit, by key", work: &by_key },
            Contestant { name: "shardlimit, by handle", work: &by_handle },
        ],
    );
    ratios[1]
}

fn ask(limit: &NamedLimit, key: &str) -> bool {
    matches!(limit.try_acquire(key, 1), Ok(Some(decision)) if decision.is_allowed())
}

fn ask_handle(handle: &Handle) -> bool {
    matches!(handle.try_acquire(1), Ok(Some(decision)) if decision.is_allowed())
}

/// Asks for items at random, as traffic does: in the order of their insertion, a heap would be read like a tape. Returns how
/// many calls were allowed.
fn each<T>(items: &[T], thread: usize, calls: u64, decide: impl Fn(&T) -> bool) -> u64 {
    let mut random = 0x9e37_79b9_7f4a_7c15 ^ thread as u64;
    let mut allowed = 0;
    for _ in 0..calls {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let at = ((random >> 32) * items.len() as u64) >> 32;
        allowed += u64::from(black_box(decide(black_box(&items[at as usize]))));
    }
    allowed
}
