//! Loops on threads, side by side.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

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
    for contestant in contestants {
        run(contestant.work, threads, calls / 10); // warm-up
    }
    let mut rounds = vec![Vec::with_capacity(CONTEST_ROUNDS); contestants.len()];
    for _ in 0..CONTEST_ROUNDS {
        for (times, contestant) in rounds.iter_mut().zip(contestants) {
            times.push(run(contestant.work, threads, calls).as_secs_f64() * 1e9 / calls as f64);
        }
    }
    println!("{title}");
    let ratios: Vec<f64> = rounds
        .iter()
        .map(|times| median(times.iter().zip(&rounds[0]).map(|(time, first)| first / time).collect()))
        .collect();
    for ((contestant, times), ratio) in contestants.iter().zip(&rounds).zip(&ratios) {
        println!("  {:<28} {:>7.1} ns a decision   {ratio:>5.2} x", contestant.name, median(times.clone()));
    }
    ratios
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

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
