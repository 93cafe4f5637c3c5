//! The generator: threads with callers, who all begin at one moment.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use shardlimit::{Handle, Limiter, NamedLimit, ShardCounts};
use tokio::runtime::Runtime;
use tokio::task::{LocalSet, spawn_local};

use super::caller::Desk;
use super::job::Job;
use super::live::{Live, Seen};
use super::pacer::Pacer;
use super::schedule::Demand;
use super::tally::{Shard, Tally};
use super::timer::Timer;
use crate::clock::{Nanos, Stopwatch, processor_time};
use crate::error::Failure;
use crate::interrupt::Interrupt;
use crate::output::note;

/// How often a worker publishes its counts and looks whether it should stop while all its callers wait.
const WATCH: Duration = Duration::from_millis(20);
/// How long the store has to confirm that it has back what was leased: some round trips, also of a busy machine.
const RETURN: Duration = Duration::from_secs(1);
/// How often somebody who watches is told.
const SHOW: Duration = Duration::from_millis(100);

/// A generator that has everything it needs: what is left to do takes no time that could make a call late.
#[derive(Debug)]
pub(crate) struct Generator {
    pub stopwatch: Stopwatch,
    job: Job,
    workers: Vec<Worker>,
}

/// One thread-to-be: a runtime of its own, as a gateway that pins its connections to cores has.
#[derive(Debug)]
struct Worker {
    runtime: Runtime,
    timer: Timer,
    limiter: Limiter,
    limit: NamedLimit,
    handle: Handle,
    callers: Vec<u64>,
}

impl Generator {
    pub(crate) fn prepare(job: Job) -> Result<Self, Failure> {
        // On the embedded store the threads share one limiter; on a shared one each has its own connections.
        let embedded = if job.store.is_embedded() { Some(job.store.limiter(None)?) } else { None };
        let threads = job.threads(cores());
        let workers = (0..threads).map(|thread| {
            // Neighbours in the schedule fall to different threads.
            let callers = job.own_callers().skip(thread).step_by(threads).collect();
            Worker::new(&job, embedded.clone(), callers)
        });
        let workers = workers.collect::<Result<_, Failure>>()?;
        Ok(Self { stopwatch: Stopwatch::new(), job, workers })
    }

    /// Runs from `start`, a moment of the generator's stopwatch, and shows how far it is now and then.
    pub(crate) fn run(self, start: Nanos, interrupt: &Interrupt, show: &mut dyn FnMut(Seen)) -> Result<Tally, Failure> {
        let Self { stopwatch, job, workers } = self;
        let (job, mut left) = (Arc::new(job), workers.len());
        let lives: Vec<Arc<Live>> = workers.iter().map(|_| Arc::default()).collect();
        let used_before = processor_time();
        let (done, tallies) = channel();
        for (index, (worker, live)) in workers.into_iter().zip(&lives).enumerate() {
            let (job, live, stopwatch) = (Arc::clone(&job), Arc::clone(live), stopwatch.clone());
            let (interrupt, done) = (interrupt.clone(), done.clone());
            let work = move || {
                // Nobody listens any more only when the run was given up.
                let _ = done.send(worker.run(&job, start, stopwatch, interrupt, live));
            };
            thread::Builder::new().name(format!("bench-{index}")).spawn(work).map_err(|error| no_worker(&error))?;
        }
        drop(done);

        let mut whole = Tally::default();
        while left > 0 {
            match tallies.recv_timeout(SHOW) {
                Ok(tally) => {
                    whole.merge(&tally);
                    left -= 1;
                }
                Err(RecvTimeoutError::Timeout) => {
                    let calls = Some(lives.iter().map(|live| live.read()).sum());
                    show(Seen { elapsed: stopwatch.now().saturating_sub(start), calls });
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Failure::internal("generator", "a worker ended without its counts"));
                }
            }
        }
        whole.processor_time = processor_time().saturating_sub(used_before);
        Ok(whole)
    }
}

impl Worker {
    fn new(job: &Job, embedded: Option<Limiter>, callers: Vec<u64>) -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| no_worker(&error))?;
        let timer = {
            let _inside = runtime.enter();
            Timer::new().map_err(|error| no_worker(&error))?
        };
        let limiter = embedded.map_or_else(|| job.store.limiter(Some(runtime.handle())), Ok)?;
        let limit = job.store.define_on(&limiter, &job.name, job.limit)?;
        let handle = limit.handle(&job.key)?;
        // A look opens the connections, and charges nothing.
        runtime.block_on(handle.peek())?;
        Ok(Self { runtime, timer, limiter, limit, handle, callers })
    }

    fn run(self, job: &Job, start: Nanos, stopwatch: Stopwatch, interrupt: Interrupt, live: Arc<Live>) -> Tally {
        let Self { runtime, timer, limiter, limit, handle, callers } = self;
        // One place more than callers: the worker itself waits for the end.
        let pacer = Pacer::new(stopwatch.clone(), timer, callers.len() + 1, job.sharers(cores()));
        let desk = Rc::new(Desk {
            stopwatch,
            pacer,
            interrupt,
            handle,
            permits: job.permits,
            callers: job.callers,
            start,
            end: start + job.duration,
            sample: job.sample,
            check: job.check,
            tally: RefCell::default(),
        });
        // The driver and the watch never end by themselves; they go with the set.
        LocalSet::new().block_on(&runtime, async {
            let (driver, watch) = (Rc::clone(&desk), Rc::clone(&desk));
            spawn_local(async move { driver.pacer.drive().await });
            spawn_local(async move { watch.watch(&live).await });
            let own_place = callers.len();
            let calling: Vec<_> = callers
                .into_iter()
                .enumerate()
                .map(|(place, caller)| spawn_local(Rc::clone(&desk).make_calls(place, caller, job.demand)))
                .collect();
            for caller in calling {
                caller.await.expect("a caller counts its errors");
            }
            // A slow schedule has its last call well before its end.
            if !desk.interrupt.is_set() {
                desk.pacer.until(own_place, desk.end).await;
            }
        });
        let mut tally = desk.tally.take();
        tally.elapsed = desk.stopwatch.now().saturating_sub(start);
        tally.interrupted = desk.interrupt.is_set();
        // The runtime ends with this worker: nobody could give back later what is held now.
        if let Err(error) = runtime.block_on(limiter.return_leases(RETURN)) {
            note(&error.to_string());
        }
        tally.shards = shards(&limiter, &desk.handle);
        tally.mismatches = BTreeMap::from([(job.part, limit.mismatches())]);
        tally
    }
}

impl Desk {
    async fn make_calls(self: Rc<Self>, place: usize, caller: u64, demand: Option<Demand>) {
        match demand {
            Some(demand) => self.open_loop(place, caller, demand).await,
            None => self.closed_loop(place).await,
        }
    }

    /// Tells those who watch how far the calls are, and those who wait that the run was interrupted.
    async fn watch(&self, live: &Live) {
        loop {
            tokio::time::sleep(WATCH).await;
            live.publish(self.tally.borrow().calls());
            if self.interrupt.is_set() {
                self.pacer.wake_all();
            }
        }
    }
}

/// What this worker's limiter had of each shard, and whose slot it is now.
fn shards(limiter: &Limiter, handle: &Handle) -> BTreeMap<u16, Shard> {
    let watch = limiter.watch_topology().ok().flatten();
    let master = |slot| Some(watch.as_ref()?.current().master_of(slot)?.to_string());
    let shard = |counts: ShardCounts| {
        let ShardCounts { slot, runs, allowed, denied, .. } = counts;
        (slot.number(), Shard { master: master(slot), runs, allowed, denied })
    };
    handle.counts().into_iter().map(shard).collect()
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

fn no_worker(error: &io::Error) -> Failure {
    Failure::system("generator", "a worker can't be started", error)
}
