//! What a process keeps of many keys: each seen once, then the usual load. In a process of its own, because memory that
//! was freed stays with the process, and would hide what the next pass takes.

use std::fmt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use shardlimit::NamedLimit;
use shardlimit_peers::load::{Outcome, closed_loop, runtime};
use shardlimit_peers::usage::resident;
use tokio::runtime::Runtime;

use crate::callers::{Draw, Ours, SPLIT, client, limit, name};
use crate::{CALLERS, PASS};

/// Connections, their buffers, scripts and tasks are there before the first figure is taken.
const WARM_UP: u64 = 20_000;

/// What a pass is told.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) urls: Vec<String>,
    /// What all keys are under.
    pub(crate) limit: String,
    pub(crate) max_keys: usize,
    pub(crate) keys: u64,
    /// Of the load after the pass.
    pub(crate) length: Duration,
}

/// What it found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    /// Bytes resident before the first key, after the last one, and after the load.
    pub(crate) before: u64,
    pub(crate) after: u64,
    pub(crate) after_load: u64,
    /// How long it took to see every key once, in milliseconds.
    pub(crate) took: u64,
    pub(crate) failed: u64,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { before, after, after_load, took, failed } = self;
        write!(f, "{before} {after} {after_load} {took} {failed}")
    }
}

/// The parent's side.
pub(crate) fn measure(job: &Job) -> Found {
    let program = std::env::current_exe().expect("a path to this program");
    let (max_keys, keys, length) =
        (job.max_keys.to_string(), job.keys.to_string(), job.length.as_secs_f64().to_string());
    let mut command = Command::new(program);
    command.args([PASS, &job.urls.join(","), &job.limit, &max_keys, &keys, &length]);
    let output = command.stderr(std::process::Stdio::inherit()).output().expect("a process");
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers: Vec<u64> = text.split_whitespace().filter_map(|number| number.parse().ok()).collect();
    let [before, after, after_load, took, failed] = numbers[..] else {
        panic!("not what a pass reports ({}): {text}", output.status);
    };
    Found { before, after, after_load, took, failed }
}

/// The child's side.
pub(crate) fn run(arguments: &[String]) {
    let [urls, text, max_keys, keys, length] = arguments else { panic!("not a pass: {arguments:?}") };
    let job = Job {
        urls: urls.split(',').map(ToOwned::to_owned).collect(),
        limit: text.clone(),
        max_keys: max_keys.parse().expect("a number of keys"),
        keys: keys.parse().expect("a number of keys"),
        length: Duration::from_secs_f64(length.parse().expect("a number of seconds")),
    };
    let runtime = runtime(shardlimit_peers::machine::cores());
    let client = client(&job.urls, job.max_keys);
    // Names of its own for each pass: no key is known to the masters. The keys of the warm-up stay under theirs: freed,
    // they would make room for others.
    let process = std::process::id();
    let is_split = job.limit == SPLIT;
    let warm = see(&runtime, &limit(&client, &format!("warm-{process}"), &job.limit), WARM_UP, is_split);
    let limit = limit(&client, &format!("pass-{process}"), &job.limit);
    let before = resident();
    let began = Instant::now();
    let failed = see(&runtime, &limit, job.keys, is_split);
    let (took, after) = (began.elapsed().as_millis() as u64, resident());
    let load = closed_loop(&runtime, CALLERS, job.length, |seed| Ours {
        limit: limit.clone(),
        draw: Draw::new(job.keys, seed),
    });
    let found = Found { before, after, after_load: resident(), took, failed: warm + failed + load.failed };
    println!("{found}");
}

/// Calls once for each of so many keys, by all callers at once. Returns how many calls failed. Of keys that are split, each is so
/// before its call: else the steps by which they are would come after the calls, and more and more of them at once.
fn see(runtime: &Runtime, limit: &NamedLimit, keys: u64, is_split: bool) -> u64 {
    let (next, failed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let (limit, next, failed) = (limit.clone(), Arc::clone(&next), Arc::clone(&failed));
            runtime.spawn(async move {
                let mut key = String::new();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed) + 1;
                    if number > keys {
                        return;
                    }
                    let key = name(number, &mut key);
                    let is_planned = !is_split || limit.plan(key).await.is_ok();
                    // Of the failure policy's decisions the servers know nothing: they are failures, too.
                    let outcome = Outcome::from(limit.acquire(key).await);
                    if outcome == Outcome::Failed || !is_planned {
                        failed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })
        })
        .collect();
    for caller in callers {
        runtime.block_on(caller).expect("a caller panicked");
    }
    failed.load(Ordering::Relaxed)
}
