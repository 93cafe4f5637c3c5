//! One client: a process of its own, with a limiter of its own.

use std::io::{self, BufRead};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use shardlimit::{DecidedBy, Decision, Error, Handle, Limiter};
use shardlimit_peers::load::{Outcome, runtime};
use shardlimit_peers::machine::processor_time;
use tokio::runtime::Runtime;

use crate::job::{Counts, Job};

/// Calls that fall due within so short a time are made together: sixteen processes that wake more often have no time
/// left to call.
const TICK: Duration = Duration::from_micros(500);
/// A call that is so late is not made any more: the next ones are due. What was really offered is in the report.
const BACKLOG: Duration = Duration::from_millis(10);
/// Calls of one process that may wait for the store. Above that no further ones are made.
const MOST_WAITING: u64 = 4_096;
/// How long the last calls may take after the end.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs what the arguments say, between two lines to the parent: one when it is connected, one with its counts.
pub(crate) fn run(arguments: &[String]) {
    let job = Job::parse(arguments).expect("a job");
    let runtime = runtime(1);
    let builder = Limiter::builder().redis(job.urls.iter().map(String::as_str)).timeout(Duration::from_secs(5));
    let limit = builder.build().and_then(|limiter| job.mode.define(&limiter, job.limit.parse()?));
    let limit = limit.expect("a valid limit");
    let handle = limit.handle(&job.key).expect("a valid key");
    // Connects, and charges nothing. Beside fifteen others that may take longer than a call's deadline.
    let begun = monotonic();
    while let Err(error) = runtime.block_on(handle.peek()) {
        assert!(monotonic() - begun < PATIENCE, "the cluster does not answer: {error}");
    }
    println!("ready");
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).expect("a line from the parent");
    // No number: the parent is gone.
    let Ok(start) = line.trim().parse() else { return };
    println!("{}", pace(&runtime, &handle, &job, Duration::from_nanos(start)));
}

/// Time that all processes of a machine see alike.
pub(crate) fn monotonic() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn pace(runtime: &Runtime, handle: &Handle, job: &Job, start: Duration) -> Counts {
    let desk = Arc::new(Desk::default());
    thread::sleep(start.saturating_sub(monotonic()));
    let used_before = processor_time();
    let due_at = |moment: Duration| (moment.saturating_sub(start).as_secs_f64() * job.rate) as u64;
    let all = (job.length.as_secs_f64() * job.rate) as u64;
    let most_behind = ((BACKLOG.as_secs_f64() * job.rate) as u64).max(1);
    let (mut next, mut made) = (0, 0);
    while next < all {
        let now = monotonic();
        let due = due_at(now).min(all);
        next = next.max(due.saturating_sub(most_behind));
        made += make(runtime, handle, &desk, due - next);
        next = due;
        thread::sleep(TICK.saturating_sub(monotonic().saturating_sub(now)));
    }
    let over = monotonic();
    while desk.waiting.load(Ordering::Acquire) > 0 && monotonic() - over < PATIENCE {
        thread::sleep(Duration::from_millis(1));
    }
    let read = |count: &AtomicU64| count.load(Ordering::Acquire);
    Counts {
        due: all,
        made,
        allowed: read(&desk.allowed),
        denied: read(&desk.denied),
        by_ceiling: read(&desk.by_ceiling),
        by_lease: read(&desk.by_lease),
        failed: read(&desk.failed) + read(&desk.waiting),
        took: (monotonic() - start).as_nanos() as u64,
        used: (processor_time() - used_before).as_nanos() as u64,
    }
}

/// Makes so many calls, unless too many wait already: at once what can be decided at once, the others as tasks. Says how
/// many it made.
fn make(runtime: &Runtime, handle: &Handle, desk: &Arc<Desk>, calls: u64) -> u64 {
    let mut to_ask = 0;
    let room = MOST_WAITING.saturating_sub(desk.waiting.load(Ordering::Acquire));
    let mut made = 0;
    for _ in 0..calls {
        match handle.try_acquire(1) {
            Ok(None) if to_ask == room => continue,
            Ok(None) => to_ask += 1,
            Ok(Some(decision)) => desk.count(Ok(decision)),
            Err(error) => desk.count(Err(error)),
        }
        made += 1;
    }
    if to_ask > 0 {
        desk.waiting.fetch_add(to_ask, Ordering::AcqRel);
        let (handle, desk) = (handle.clone(), Arc::clone(desk));
        // From a worker, because that wakes nobody but those who have nothing to do.
        runtime.spawn(async move {
            for _ in 0..to_ask {
                let (handle, desk) = (handle.clone(), Arc::clone(&desk));
                tokio::spawn(async move {
                    desk.count(handle.acquire().await);
                    desk.waiting.fetch_sub(1, Ordering::AcqRel);
                });
            }
        });
    }
    made
}

#[derive(Debug, Default)]
struct Desk {
    waiting: AtomicU64,
    allowed: AtomicU64,
    denied: AtomicU64,
    by_ceiling: AtomicU64,
    by_lease: AtomicU64,
    failed: AtomicU64,
}

impl Desk {
    fn count(&self, answer: Result<Decision, Error>) {
        let add = |count: &AtomicU64| count.fetch_add(1, Ordering::Relaxed);
        match answer.as_ref().map(Decision::decided_by) {
            Ok(DecidedBy::Ceiling) => add(&self.by_ceiling),
            Ok(DecidedBy::Lease) => add(&self.by_lease),
            _ => 0,
        };
        add(match answer.into() {
            Outcome::Allowed => &self.allowed,
            Outcome::Denied => &self.denied,
            // Also what the failure policy said: no server gave that permit, and no bound holds it.
            Outcome::Failed => &self.failed,
        });
    }
}
