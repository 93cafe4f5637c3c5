//! The run, from its options to its report.

use super::generator::Generator;
use super::job::Job;
use super::processes;
use super::progress::Progress;
use super::report::BenchReport;
use crate::error::Failure;
use crate::interrupt::Interrupt;
use crate::options::BenchOptions;
use crate::output::note;
use crate::store::{Mode, Store};

pub(crate) fn run(options: BenchOptions, interrupt: &Interrupt) -> Result<BenchReport, Failure> {
    let record = options.record.clone();
    let job = job(options)?;
    if job.parts > 1 && job.store.is_embedded() {
        note(&format!(
            "on the embedded store each process has a limit of its own: the {} of them may allow {} times \"{}\"",
            job.parts, job.parts, job.limit
        ));
    }
    if job.store.mode() == Mode::Leased && job.store.is_embedded() {
        note("the embedded store is in process already: it leases nothing, and decides as in exact mode");
    }
    let mut progress = Progress::new(job.duration);
    let mut show = |seen| progress.show(seen);
    let tally = if job.parts == 1 {
        let generator = Generator::prepare(job.clone())?;
        let start = generator.stopwatch.now() + job.lead();
        generator.run(start, interrupt, &mut show)?
    } else {
        processes::run(&job, interrupt, &mut show)?
    };
    drop(progress);
    if let Some(error) = &tally.error {
        note(&format!("the first error was: {error}"));
    }
    if let Some(path) = record {
        crate::check::write(&path, &tally.admissions)?;
    }
    Ok(BenchReport::new(&job, &tally))
}

fn job(options: BenchOptions) -> Result<Job, Failure> {
    let BenchOptions { key, limit, store, mode, callers, duration, demand, permits, processes, check, record } =
        options;
    let (store, found) = Store::of(&store, &limit)?;
    crate::store::check(&limit.name, found, &key.0, permits)?;
    if processes > callers {
        let message = format!("must be from 1 to the number of callers, {callers}, got {processes}");
        return Err(Failure::usage("processes", message));
    }
    Ok(Job {
        store: if limit.config.is_some() { store } else { store.in_mode(mode)? },
        key: key.0,
        name: limit.name,
        limit: found,
        permits,
        callers,
        demand,
        duration,
        sample: None,
        check: check || record.is_some(),
        part: 0,
        parts: processes,
    })
}
