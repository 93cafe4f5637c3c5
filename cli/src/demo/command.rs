//! The run: no questions asked, a few seconds long.

use super::report::DemoReport;
use crate::bench::{Demand, Generator, Job, Progress};
use crate::clock::{MILLI, Nanos, SECOND};
use crate::error::Failure;
use crate::interrupt::Interrupt;
use crate::store::Store;

/// A rate that any machine reaches three times over with a core to spare.
const LIMIT: &str = "token-bucket 20000/s burst 2000";
const DEMAND: Demand = Demand { calls: 60_000, period: SECOND };
const DURATION: Nanos = 5 * SECOND;
pub(super) const SAMPLE: Nanos = 100 * MILLI;

pub(crate) fn run(interrupt: &Interrupt) -> Result<DemoReport, Failure> {
    let job = Job {
        store: Store::embedded(),
        check: false,
        key: b"item:42".into(),
        name: "demo".into(),
        limit: LIMIT.parse()?,
        permits: 1,
        callers: 64,
        demand: Some(DEMAND),
        duration: DURATION,
        sample: Some(SAMPLE),
        part: 0,
        parts: 1,
    };
    let mut progress = Progress::new(DURATION);
    let generator = Generator::prepare(job.clone())?;
    let start = generator.stopwatch.now() + job.lead();
    let tally = generator.run(start, interrupt, &mut |seen| progress.show(seen))?;
    drop(progress);
    Ok(DemoReport::new(&job, DEMAND, &tally))
}
