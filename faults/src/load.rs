//! A process that calls: on schedule, whatever became of the calls before, each call recorded.
//!
//! It says `ready` when its connections are open; `start`, `pause`, `go on` and `stop` come in as lines. The end of its input
//! means *stop*.

use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clap::Args;
use shardlimit::Handle;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::Failure;
use crate::clock::{MILLI, Nanos, SECOND, nanos, now};
use crate::limiter::{KEY, Settings};
use crate::record::{Call, Record, Tick, without_numbers};
use crate::silence::Listener;

/// So many calls may be out at once: a bound for memory, far above what a deadline lets pile up.
const MOST_OUT: u64 = 200_000;
/// A schedule that is further behind than this skips, as a machine that stood still would have.
const MOST_BEHIND: Nanos = SECOND;
/// A process that nobody stops ends by itself.
const LONGEST: Nanos = 180 * SECOND;
/// How often a bare timer is started.
const TICK: Duration = Duration::from_millis(5);
/// A call that has not ended so long after its deadline hangs.
const HANGS: Duration = Duration::from_secs(5);

/// So many different errors are told in words.
const MOST_WHYS: usize = 5;

static PANICS: AtomicU64 = AtomicU64::new(0);

/// What a process is to do.
#[derive(Args, Debug)]
pub(crate) struct Job {
    #[command(flatten)]
    pub settings: Settings,
    /// Calls a second.
    #[arg(long)]
    pub rate: u64,
    /// Where to write what became of them.
    #[arg(long)]
    pub out: PathBuf,
    /// Milliseconds of calling and of silence in turn; without silence it calls all the time.
    #[arg(long, default_value_t = 1_000)]
    pub on: u64,
    #[arg(long, default_value_t = 0)]
    pub off: u64,
    /// Nodes of the cluster.
    #[arg(required = true)]
    pub urls: Vec<String>,
}

/// What the calls of a process have in common.
struct Desk {
    handle: Handle,
    record: Mutex<Record>,
    out: AtomicU64,
    paused: AtomicBool,
    stop: AtomicBool,
}

pub(crate) fn run(job: &Job) -> Result<(), Failure> {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        report(panic);
    }));
    // Two cores are shared by everybody: one thread that calls is enough for a few thousand calls a second.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let handle = job.settings.define(&job.urls)?.handle(KEY)?;
    // A look opens the connections, and charges nothing.
    runtime.block_on(handle.peek())?;
    println!("ready");
    io::stdout().flush()?;
    let mut line = String::new();
    if io::stdin().lock().read_line(&mut line)? == 0 {
        return Ok(());
    }
    let (record, out) = (Mutex::default(), AtomicU64::new(0));
    let (paused, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    let desk = Arc::new(Desk { handle, record, out, paused, stop });
    let told = Arc::clone(&desk);
    std::thread::spawn(move || told.listen());
    let deadline = job.settings.deadline();
    runtime.block_on(async {
        let ticking = tokio::spawn(Arc::clone(&desk).tick(deadline));
        Arc::clone(&desk).call_on_schedule(job).await;
        let patience = now() + nanos(deadline + HANGS);
        while desk.out.load(Ordering::Relaxed) > 0 && now() < patience {
            sleep(Duration::from_millis(5)).await;
        }
        ticking.abort();
    });
    let mut record = std::mem::take(&mut *desk.record());
    record.panics = PANICS.load(Ordering::Relaxed);
    record.write(&job.out)?;
    // What hangs must not hold up the end.
    runtime.shutdown_background();
    Ok(())
}

impl Desk {
    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To what comes in, until it is to stop.
    fn listen(&self) {
        for line in io::stdin().lock().lines() {
            match line.as_deref() {
                Ok("pause") => self.paused.store(true, Ordering::Relaxed),
                Ok("go on") => self.paused.store(false, Ordering::Relaxed),
                _ => break,
            }
        }
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Call k is due at start + k ÷ rate.
    async fn call_on_schedule(self: Arc<Self>, job: &Job) {
        let mut pace = interval(Duration::from_millis(1));
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let start = now();
        let mut made = 0;
        while !self.stop.load(Ordering::Relaxed) && now() < start + LONGEST {
            pace.tick().await;
            if self.paused.load(Ordering::Relaxed) {
                continue;
            }
            let elapsed = now() - start;
            let due = (u128::from(elapsed) * u128::from(job.rate) / u128::from(SECOND)) as u64;
            let behind = MOST_BEHIND * job.rate / SECOND;
            let silent = elapsed / MILLI % (job.on + job.off) >= job.on;
            let skipped = if silent { due - made } else { (due - made).saturating_sub(behind) };
            made += skipped;
            if !silent {
                self.record().skipped += skipped;
            }
            while made < due {
                made += 1;
                if self.out.fetch_add(1, Ordering::Relaxed) >= MOST_OUT {
                    self.out.fetch_sub(1, Ordering::Relaxed);
                    self.record().skipped += 1;
                    continue;
                }
                tokio::spawn(Arc::clone(&self).call());
            }
        }
    }

    async fn call(self: Arc<Self>) {
        let call = Call::begin();
        let index = {
            let mut record = self.record();
            record.calls.push(call);
            record.calls.len() - 1
        };
        let result = self.handle.acquire().await;
        let call = call.end(&result);
        let mut record = self.record();
        if let Some(kept) = record.calls.get_mut(index) {
            *kept = call;
        }
        if let Err(error) = result
            && record.whys.len() < MOST_WHYS
        {
            let why = error.to_string();
            if !record.whys.iter().any(|known| without_numbers(known) == without_numbers(&why)) {
                record.whys.push(why);
            }
        }
        drop(record);
        self.out.fetch_sub(1, Ordering::Relaxed);
    }

    /// Bare timers of the length of a deadline, on the runtime that the calls are on. With each of them it is seen which shards have
    /// answered.
    async fn tick(self: Arc<Self>, deadline: Duration) {
        let mut pace = interval(TICK);
        let mut listener = Listener::default();
        loop {
            pace.tick().await;
            let counts = self.handle.counts();
            let decided = counts.iter().map(|shard| (shard.slot.number(), shard.allowed + shard.denied));
            let mut silences = listener.hear(decided, now());
            if self.stop.load(Ordering::Relaxed) {
                silences.extend(listener.end());
            }
            self.record().silences.extend(silences);
            let desk = Arc::clone(&self);
            tokio::spawn(async move {
                let due = now() + nanos(deadline);
                sleep(deadline).await;
                desk.record().ticks.push(Tick { due, late: now().saturating_sub(due) });
            });
        }
    }
}
