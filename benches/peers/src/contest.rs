//! Loops on threads, side by side.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use crate::rounds::{Figures, Results, Rounds, Spread};

/// Many short rounds: on a shared machine the two cores are now near each other and now far apart, for seconds at a time.
pub const CONTEST_ROUNDS: usize = 21;

/// What is measured: so many decisions on the given thread, in a loop of its own. Returns how many of them allowed; see
/// [`allowed_of`].
pub type Work<'a> = &'a (dyn Fn(usize, u64) -> u64 + Sync);

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

fn race(threads: usize, calls: u64, rounds: usize, contestants: &[Contestant<'_>]) -> Results {
    for contestant in contestants {
        let _ = lap(contestant.work, threads, calls / 10); // warm-up
    }
    let mut turns = Rounds::new(rounds);
    for contestant in contestants {
        turns.contestant(contestant.name, move || lap(contestant.work, threads, calls).figures());
    }
    turns.run()
}

/// The plain loop, the same for all who are compared. What a call says is only added up on its own thread: others would pay for a
/// count that they share.
pub fn allowed_of(calls: u64, call: impl Fn() -> bool) -> u64 {
    (0..calls).map(|_| u64::from(black_box(call()))).sum()
}

/// What one turn of all threads came to.
#[derive(Clone, Copy, Debug)]
pub struct Lap {
    /// Calls of all threads together.
    pub calls: u64,
    /// Those that were allowed.
    pub allowed: u64,
    threads: usize,
    took: Duration,
}

impl Lap {
    /// `ns` a decision, and `rate`, decisions a second of all threads together.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let seconds = self.took.as_secs_f64();
        let nanos = seconds * 1e9 * self.threads as f64 / self.calls as f64;
        Figures::new().with("ns", nanos).with("rate", self.calls as f64 / seconds)
    }
}

/// One turn: so many calls on each of so many threads, which begin together.
///
/// # Panics
/// If one of them does.
#[must_use]
pub fn lap(work: Work<'_>, threads: usize, calls: u64) -> Lap {
    let barrier = Barrier::new(threads);
    thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|thread| {
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    let start = Instant::now();
                    let allowed = work(thread, calls);
                    (allowed, start.elapsed())
                })
            })
            .collect();
        let mut lap = Lap { calls: threads as u64 * calls, allowed: 0, threads, took: Duration::ZERO };
        for thread in running {
            let (allowed, took) = thread.join().expect("a contestant panicked");
            (lap.allowed, lap.took) = (lap.allowed + allowed, lap.took.max(took));
        }
        lap
    })
}
