//! What is done: a task for each kind of use, all of them through the public API.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use shardlimit::{Carry, DecidedBy, Decision, Error, FailurePolicy, Leases, Limiter, NamedLimit};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::Failure;
use crate::record::Outcome;

/// The process knows so many keys at the most. The short-lived ones are more within seconds.
const MAX_KEYS: usize = 10_000;
const DEADLINE: Duration = Duration::from_millis(200);

/// What most users have, and the one by which every fault is an error: half of all calls each.
const POLICIES: [FailurePolicy; 2] = [FailurePolicy::Local { ratio: 0.5 }, FailurePolicy::Error];

const HOT: &str = "token-bucket 20000/s burst 2000";
const LEASED: &str = "token-bucket 50000/s burst 5000";
/// As new after a fifth of a second: then its servers forget it.
const SHORT: &str = "token-bucket 10/s burst 2";
const SET: [&str; 2] = ["token-bucket 1000/s burst 100", "token-bucket 2000/s burst 200"];

/// What the tasks are to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Work,
    Rest,
    End,
}

/// The tasks, and what their calls came to.
pub(super) struct Load {
    order: watch::Sender<Order>,
    tasks: JoinSet<()>,
    counts: Arc<Counts>,
    /// All that are there from beginning to end.
    limits: Vec<NamedLimit>,
}

/// Calls by their end.
#[derive(Debug, Default)]
pub(super) struct Counts {
    allowed: AtomicU64,
    denied: AtomicU64,
    /// Of both, those that the failure policy decided.
    by_policy: AtomicU64,
    not_sent: AtomicU64,
    unknown: AtomicU64,
    other: AtomicU64,
    /// Given up by their caller.
    dropped: AtomicU64,
    /// Limits set at run time, and limiters made and ended.
    sets: AtomicU64,
    limiters: AtomicU64,
}

/// What a task goes by.
#[derive(Clone)]
struct Desk {
    order: watch::Receiver<Order>,
    counts: Arc<Counts>,
    urls: Arc<[String]>,
}

impl Load {
    pub(super) fn start(runtime: &Runtime, urls: &[String]) -> Result<Self, Failure> {
        let _inside = runtime.enter();
        let (order, orders) = watch::channel(Order::Rest);
        let desk = Desk { order: orders, counts: Arc::default(), urls: urls.into() };
        let (mut tasks, mut limits) = (JoinSet::new(), Vec::new());
        for (number, policy) in POLICIES.into_iter().enumerate() {
            let limiter = desk.limiter(policy)?;
            let hot = limiter.define("hot", HOT.parse()?)?;
            let leased = limiter.define_leased("leased", LEASED.parse()?, Leases::new())?;
            let short = limiter.define("short", SHORT.parse()?)?;
            let set = limiter.define("set", SET[0].parse()?)?;
            for _ in 0..2 {
                tasks.spawn(desk.clone().call(hot.clone()));
                tasks.spawn(desk.clone().wait(hot.clone()));
                tasks.spawn(desk.clone().give_up(hot.clone()));
                tasks.spawn(desk.clone().call(leased.clone()));
            }
            tasks.spawn(desk.clone().come_and_go(short.clone(), number));
            tasks.spawn(desk.clone().set(set.clone()));
            limits.extend([hot, leased, short, set]);
        }
        tasks.spawn(desk.clone().begin_and_end());
        Ok(Self { order, tasks, counts: desk.counts, limits })
    }

    pub(super) fn work(&self) {
        self.order.send_replace(Order::Work);
    }

    pub(super) fn rest(&self) {
        self.order.send_replace(Order::Rest);
    }

    pub(super) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Permits that did not go back, and those that no shard was charged for: connections are cut, so there are some.
    pub(super) fn lost(&self) -> (u64, u64) {
        let all = self.limits.iter().map(NamedLimit::failures);
        all.fold((0, 0), |sum, one| (sum.0 + one.unreturned, sum.1 + one.uncharged))
    }

    /// Ends all tasks; says how many did not end.
    pub(super) fn end(&mut self, runtime: &Runtime, patience: Duration) -> usize {
        self.order.send_replace(Order::End);
        let tasks = &mut self.tasks;
        let _ =
            runtime.block_on(async { timeout(patience, async { while tasks.join_next().await.is_some() {} }).await });
        self.tasks.len()
    }
}

impl Desk {
    fn limiter(&self, policy: FailurePolicy) -> Result<Limiter, Error> {
        Limiter::builder().redis(self.urls.iter()).max_keys(MAX_KEYS).deadline(DEADLINE).on_failure(policy).build()
    }

    /// Waits for work; says whether there is any more.
    async fn has_work(&mut self) -> bool {
        self.order.wait_for(|order| *order != Order::Rest).await.is_ok_and(|order| *order == Order::Work)
    }

    fn count(&self, result: &Result<Decision, Error>) {
        if result.as_ref().is_ok_and(|decision| decision.decided_by() == DecidedBy::Fallback) {
            self.counts.by_policy.fetch_add(1, Ordering::Relaxed);
        }
        let count = match Outcome::of(result) {
            Outcome::Allowed => &self.counts.allowed,
            Outcome::Denied => &self.counts.denied,
            Outcome::NotSent => &self.counts.not_sent,
            Outcome::Unknown => &self.counts.unknown,
            Outcome::Refused | Outcome::Other | Outcome::Hung => &self.counts.other,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// One key, asked again and again.
    async fn call(mut self, limit: NamedLimit) {
        while self.has_work().await {
            for _ in 0..16 {
                self.count(&limit.acquire("hot").await);
            }
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// The same key, waited for.
    async fn wait(mut self, limit: NamedLimit) {
        while self.has_work().await {
            self.count(&limit.acquire_within("hot", 1, Duration::from_millis(50)).await);
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// Callers that go away, sooner and later.
    async fn give_up(mut self, limit: NamedLimit) {
        for call in 0_u64.. {
            if !self.has_work().await {
                return;
            }
            let patience = Duration::from_micros(call * 37 % 1_000);
            match timeout(patience, limit.acquire_n("hot", 1 + call % 3)).await {
                Ok(result) => self.count(&result),
                Err(_) => _ = self.counts.dropped.fetch_add(1, Ordering::Relaxed),
            }
        }
    }

    /// Keys that are asked for a few times and never again.
    async fn come_and_go(mut self, limit: NamedLimit, number: usize) {
        for key in 0_u64.. {
            if !self.has_work().await {
                return;
            }
            let key = format!("{number}:{key}");
            for _ in 0..3 {
                self.count(&limit.acquire(&key).await);
            }
        }
    }

    /// Limits that are set at run time, for all keys and for one.
    async fn set(mut self, limit: NamedLimit) {
        for turn in 0.. {
            if !self.has_work().await {
                return;
            }
            self.count(&limit.acquire("set").await);
            if let Ok(wanted) = SET[turn % 2].parse() {
                // A connection that is cut keeps it from being set: the next turn sets it again.
                let _ = limit.set_limit(wanted, Carry::Proportional).await;
                let _ = limit.set_limit_of("set", wanted, Carry::Proportional).await;
                self.counts.sets.fetch_add(2, Ordering::Relaxed);
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Limiters that are made, used, and shut down or dropped.
    async fn begin_and_end(mut self) {
        for turn in 0_u64.. {
            if !self.has_work().await {
                return;
            }
            // Each way of ending, by each policy.
            let Ok(limiter) = self.limiter(POLICIES[turn as usize / 2 % POLICIES.len()]) else { continue };
            let defined = HOT.parse().and_then(|limit| limiter.define_leased("brief", limit, Leases::new()));
            if let Ok(brief) = defined {
                for _ in 0..20 {
                    self.count(&brief.acquire("hot").await);
                }
            }
            if turn % 2 == 0 {
                let _ = limiter.shutdown(DEADLINE).await;
            }
            self.counts.limiters.fetch_add(1, Ordering::Relaxed);
            drop(limiter);
            sleep(Duration::from_millis(20)).await;
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        write!(
            f,
            "calls: {} allowed, {} denied, {} of both by the failure policy, {} not sent, {} unknown, {} other, {} given up; limits were set {} times, {} \
             limiters came and went",
            read(&self.allowed),
            read(&self.denied),
            read(&self.by_policy),
            read(&self.not_sent),
            read(&self.unknown),
            read(&self.other),
            read(&self.dropped),
            read(&self.sets),
            read(&self.limiters)
        )
    }
}
