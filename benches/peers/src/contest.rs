//! Loops on threads, side by side.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use crate::rounds::{Figures, Results, Rounds, Spread};

/// Many short rounds: on a shared machine the two cores are now near each other and now far apart, for seconds at a time.
pub const CONTEST_ROUNDS: usize = 21;

/// What is measured: `calls` decisions on the given thread, in a loop of its own.
pub type Work<'a> = &'a (dyn Fn(usize, u64) + Sync);

/// One who takes part.
pub struct Contestant<'a> {
    /// As the table names it.
    pub name: &'a str,
    /// Its loop.
    pub work: Work<'a>,
}

/// Prints nanoseconds a decision (wall time × threads ÷ decisions) of each contestant, and returns its ratios to the
/// first.
#[must_use]
pub fn contest(title: &str, threads: usize, calls: u64, contestants: &[Contestant<'_>]) -> Vec<f64> {
    let results = race(threads, calls, CONTEST_ROUNDS, contestants);
    println!("{title}");
    let row = |contestant: &Contestant<'_>| {
        let median = |spread: Option<Spread>| spread.map_or(f64::NAN, |spread| spread.median);
        let nanos = median(results.spread(contestant.name, "ns"));
        let ratio = median(results.ratio(contestant.name, contestants[0].name, "rate"));
        println!("  {:<28} {nanos:>7.1} ns a decision   {ratio:>5.2} x", contestant.name);
        ratio
    };
    contestants.iter().map(row).collect()
}

/// The same without a word: `ns` a decision, and `rate`, decisions a second of all threads together.
#[must_use]
pub fn race(threads: usize, calls: u64, rounds: usize, contestants: &[Contestant<'_>]) -> Results {
    for contestant in contestants {
        run(contestant.work, threads, calls / 10); // warm-up
    }
    let mut turns = Rounds::new(rounds);
    for contestant in contestants {
        turns.contestant(contestant.name, move || {
            let seconds = run(contestant.work, threads, calls).as_secs_f64();
            let rate = (threads as u64 * calls) as f64 / seconds;
            Figures::new().with("ns", seconds * 1e9 / calls as f64).with("rate", rate)
        });
    }
    turns.run()
}

fn run(work: Work<'_>, threads: usize, calls: u64) -> Duration {
    let barrier = Barrier::new(threads);
    thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|thread| {
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    let start = Instant::now();
                    work(thread, calls);
                    start.elapsed()
                })
            })
            .collect();
        running.into_iter().map(|thread| thread.join().expect("a contestant panicked")).max().unwrap_or_default()
    })
}
