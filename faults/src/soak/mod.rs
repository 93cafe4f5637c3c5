//! The soak: everything that a gateway does with a limiter, for a long time, and whether anything grows meanwhile.
//!
//! * `load`: what is done. `sample`: what there is of memory, tasks, threads and sockets. `verdict`: whether that grew.
//!
//! Samples are taken at rest: the load stops for a moment, so that whatever is there then has no reason to be more each time.

mod load;
mod sample;
mod verdict;

use std::time::{Duration, Instant};

use clap::{Args, Parser};
use redis::cmd;

use crate::Failure;
use crate::fault::{Needs, Place};
use crate::folder::Folder;
use crate::options::Options;
use crate::stage::Stage;
use load::Load;
use sample::Sample;

/// The load goes on for so long,
const WORK: Duration = Duration::from_secs(3);
/// and stops for so long: longer than calls take, connections that were lost are missing, and servers keep the short-lived keys.
const REST: Duration = Duration::from_secs(2);
/// How long calls that are out may take to end at the end.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long to go on.
#[derive(Args, Debug)]
pub(crate) struct Job {
    /// Minutes; at least one.
    #[arg(long, default_value_t = 10.0)]
    pub minutes: f64,
}

/// Runs the soak; says whether nothing grew.
pub(crate) fn run(job: &Job) -> Result<bool, Failure> {
    if !(1.0..=10_000.0).contains(&job.minutes) {
        return Err(Failure::new("--minutes must be 1 to 10000"));
    }
    let folder = Folder::temporary("soak")?;
    // A cluster as faults have it that say nothing else.
    let suite = Options::parse_from(["soak"]).suite;
    let stage = Stage::build(&suite, Needs::only(Place::Loopback), &folder.path)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut load = Load::start(&runtime, &stage.cluster.urls())?;
    let begin = Instant::now();
    let mut samples = Vec::new();
    println!("{}", Sample::HEAD);
    for turn in 0.. {
        load.work();
        std::thread::sleep(WORK / 4);
        // One master at a time loses all of its connections, in every other turn.
        if turn % 2 == 0 {
            let node = &stage.cluster.nodes[turn / 2 % stage.cluster.masters];
            node.ask::<redis::Value>(cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal"))?;
        }
        std::thread::sleep(WORK - WORK / 4);
        load.rest();
        std::thread::sleep(REST);
        let sample = Sample::take(begin.elapsed(), &runtime, &stage.cluster)?;
        println!("{sample}");
        samples.push(sample);
        if begin.elapsed().as_secs_f64() >= job.minutes * 60.0 {
            break;
        }
    }
    let hung = load.end(&runtime, PATIENCE);
    println!("\n{}", load.counts());
    let (unreturned, uncharged) = load.lost();
    println!("permits: {unreturned} that did not go back, {uncharged} that no shard was charged for");
    Ok(verdict::tell(&samples, hung))
}
