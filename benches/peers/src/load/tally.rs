//! What callers count, and what is left of it at the end.

use std::ops::AddAssign;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use hdrhistogram::Histogram;
use quanta::Instant;

use super::Outcome;
use crate::rounds::Figures;

/// More than any bench has workers; those that share one only wait for each other now and then.
const STRIPES: usize = 16;
/// Latency is told apart to 1 %, up to a minute, in nanoseconds.
const DIGITS: u8 = 2;
const LONGEST: u64 = 60_000_000_000;

/// What a load came to.
#[derive(Clone, Debug)]
pub struct Load {
    /// Calls that were answered in the time that counts.
    pub decisions: u64,
    /// Those of them that may go on.
    pub allowed: u64,
    /// Those of them that may not.
    pub denied: u64,
    /// Calls without an answer, whenever they ended.
    pub failed: u64,
    /// All calls that ended, also before and after the time that counts.
    pub calls: u64,
    /// Calls that began more than [`LATE`](super::LATE) after they were due. None in a closed loop.
    pub late: u64,
    /// The length of the time that counts.
    pub elapsed: Duration,
    /// What this process used of the processors in that time.
    pub processor_time: Duration,
    /// In nanoseconds, of the calls that began (open loop: were due) in that time, whenever they were answered; of many
    /// callers in a closed loop, of a part of their calls.
    pub latency: Histogram<u64>,
}

impl Load {
    /// Decisions a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.decisions as f64 / self.elapsed.as_secs_f64()
    }

    /// What so many percent of calls did not exceed, in microseconds.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> f64 {
        self.latency.value_at_quantile(percent / 100.0) as f64 / 1_000.0
    }

    /// The part of calls that began late.
    #[must_use]
    pub fn lateness(&self) -> f64 {
        self.late as f64 / self.calls.max(1) as f64
    }

    /// Whether more than 1 % of calls began late: then the generator was measured, not the contestant.
    #[must_use]
    pub fn is_late(&self) -> bool {
        self.lateness() > 0.01
    }

    /// The usual figures: `rate` (decisions a second), `p50` and `p99` (µs), `cpu` (of this process, µs a decision),
    /// `late` (part of calls), `failed` and `denied` (calls).
    #[must_use]
    pub fn figures(&self) -> Figures {
        Figures::new()
            .with("rate", self.rate())
            .with("p50", self.percentile(50.0))
            .with("p99", self.percentile(99.0))
            .with("cpu", self.processor_time.as_secs_f64() * 1e6 / self.decisions as f64)
            .with("late", self.lateness())
            .with("failed", self.failed as f64)
            .with("denied", self.denied as f64)
            .late(self.is_late())
    }
}

/// The time that counts: from when on, and until when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub from: Instant,
    pub until: Instant,
}

impl Span {
    pub(super) fn holds(self, moment: Instant) -> bool {
        self.from <= moment && moment < self.until
    }
}

/// Counts by thread. A histogram for each caller would take 100 MB of cold memory with 10,000 of them; a lock that hardly
/// anybody else wants takes some 15 ns.
#[derive(Debug)]
pub(super) struct Tallies {
    stripes: Vec<CachePadded<Mutex<Tally>>>,
}

#[derive(Debug)]
struct Tally {
    counts: Counts,
    latency: Histogram<u64>,
}

/// Calls by what became of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub allowed: u64,
    pub denied: u64,
    pub failed: u64,
    pub calls: u64,
    pub late: u64,
}

impl Counts {
    /// One more call; decisions count only in the time that does.
    pub(super) fn add(&mut self, outcome: Outcome, counts: bool) {
        self.calls += 1;
        match outcome {
            Outcome::Failed => self.failed += 1,
            Outcome::Allowed => self.allowed += u64::from(counts),
            Outcome::Denied => self.denied += u64::from(counts),
        }
    }
}

impl AddAssign<&Counts> for Counts {
    fn add_assign(&mut self, other: &Counts) {
        let Counts { allowed, denied, failed, calls, late } = other;
        self.allowed += allowed;
        self.denied += denied;
        self.failed += failed;
        self.calls += calls;
        self.late += late;
    }
}

impl Tallies {
    pub(super) fn new() -> Self {
        let tally = || Tally { counts: Counts::default(), latency: histogram() };
        Self { stripes: (0..STRIPES).map(|_| CachePadded::new(Mutex::new(tally()))).collect() }
    }

    pub(super) fn add(&self, counts: &Counts) {
        lock(&self.stripes[stripe()]).counts += counts;
    }

    pub(super) fn time(&self, latency: Duration) {
        lock(&self.stripes[stripe()]).latency.saturating_record(latency.as_nanos() as u64);
    }

    pub(super) fn sum(&self, span: Span, processor_time: Duration) -> Load {
        let (mut counts, mut latency) = (Counts::default(), histogram());
        for stripe in &self.stripes {
            let tally = lock(stripe);
            counts += &tally.counts;
            latency.add(&tally.latency).expect("the same bounds");
        }
        let Counts { allowed, denied, failed, calls, late } = counts;
        let elapsed = span.until.duration_since(span.from);
        Load { decisions: allowed + denied, allowed, denied, failed, calls, late, elapsed, processor_time, latency }
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST, DIGITS).expect("the bounds are sound")
}

fn lock(tally: &Mutex<Tally>) -> MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The stripe of this thread.
fn stripe() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static STRIPE: usize = THREADS.fetch_add(1, Ordering::Relaxed) % STRIPES);
    STRIPE.with(|stripe| *stripe)
}
