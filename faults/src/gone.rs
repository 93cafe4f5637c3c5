//! All masters gone: how many calls a second this process decides without them, and that it finds back by itself.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use shardlimit::{DecidedBy, Handle};
use tokio::task::{JoinSet, yield_now};
use tokio::time::sleep;

use crate::Failure;
use crate::fault::{Needs, Place};
use crate::folder::Folder;
use crate::limiter::KEY;
use crate::options::Suite;
use crate::stage::{MASTERS, Stage};

pub(crate) const NAME: &str = "gone";
pub(crate) const ABOUT: &str = "all masters are gone: calls a second that are decided in process, by two tasks";

const CALLERS: u64 = 2;
/// Until then the policy knows what was granted here, and the masters are found dead.
const SETTLE: Duration = Duration::from_secs(2);
const MEASURED: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(20);
/// As the promise has it.
const LEAST: f64 = 1e6;

/// What became of the calls.
#[derive(Debug)]
pub(crate) struct Decided {
    per_second: f64,
    allowed_per_second: f64,
    errors: u64,
    /// From the moment the cluster was sound again until shards allowed calls.
    back_after: Option<Duration>,
}

#[derive(Default)]
struct Counts {
    allowed: AtomicU64,
    denied: AtomicU64,
    errors: AtomicU64,
    /// Allowed by a shard.
    by_shard: AtomicU64,
    over: AtomicBool,
}

impl Decided {
    pub(crate) fn is_well(&self) -> bool {
        self.per_second >= LEAST && self.errors == 0 && self.back_after.is_some()
    }
}

impl fmt::Display for Decided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.is_well() { "ok" } else { "NOT OK" };
        let Self { per_second, allowed_per_second, errors, back_after } = self;
        let back = back_after.map_or_else(|| "never".into(), |after| format!("after {:.1} s", after.as_secs_f64()));
        write!(
            f,
            "{verdict:6} {per_second:.0} decisions a second without any master, of which {allowed_per_second:.0} allowed; \
             {errors} errors; shards decide again {back}"
        )
    }
}

pub(crate) fn run(suite: &Suite) -> Result<Decided, Failure> {
    let folder = Folder::temporary(NAME)?;
    let mut stage = Stage::build(suite, Needs::only(Place::Loopback), &folder.path)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let hot = suite.settings.define(&stage.cluster.urls())?.handle(KEY)?;
    runtime.block_on(measure(&mut stage, hot))
}

async fn measure(stage: &mut Stage, hot: Handle) -> Result<Decided, Failure> {
    hot.peek().await?;
    let counts = Arc::<Counts>::default();
    let mut tasks = JoinSet::new();
    for _ in 0..CALLERS {
        tasks.spawn(call(hot.clone(), Arc::clone(&counts)));
    }
    let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let all = || (read(&counts.allowed), read(&counts.denied), read(&counts.errors));
    sleep(SETTLE).await;
    for node in &mut stage.cluster.nodes {
        node.kill();
    }
    sleep(SETTLE).await;
    let (before, begin) = (all(), Instant::now());
    sleep(MEASURED).await;
    let (after, seconds) = (all(), begin.elapsed().as_secs_f64());
    for node in &mut stage.cluster.nodes[..MASTERS] {
        node.restart()?;
    }
    stage.cluster.wait_until_sound()?;
    let (sound, by_shard) = (Instant::now(), read(&counts.by_shard));
    while read(&counts.by_shard) == by_shard && sound.elapsed() < PATIENCE {
        sleep(Duration::from_millis(10)).await;
    }
    let back_after = (read(&counts.by_shard) > by_shard).then(|| sound.elapsed());
    counts.over.store(true, Ordering::Relaxed);
    tasks.join_all().await;
    let (allowed, denied) = (after.0 - before.0, after.1 - before.1);
    Ok(Decided {
        per_second: (allowed + denied) as f64 / seconds,
        allowed_per_second: allowed as f64 / seconds,
        errors: after.2 - before.2,
        back_after,
    })
}

/// Asks again at once, and lets others have the thread now and then.
async fn call(hot: Handle, counts: Arc<Counts>) {
    while !counts.over.load(Ordering::Relaxed) {
        for _ in 0..64 {
            match hot.acquire().await {
                Ok(decision) if decision.is_allowed() => {
                    counts.allowed.fetch_add(1, Ordering::Relaxed);
                    if decision.decided_by() == DecidedBy::Store {
                        counts.by_shard.fetch_add(1, Ordering::Relaxed);
                    }
                }
                Ok(_) => _ = counts.denied.fetch_add(1, Ordering::Relaxed),
                Err(_) => _ = counts.errors.fetch_add(1, Ordering::Relaxed),
            }
        }
        yield_now().await;
    }
}
