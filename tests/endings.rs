//! A limiter that comes to its end leaves nothing behind, and nobody waiting.
#![cfg(feature = "redis")]

#[path = "support/shared.rs"]
mod shared;

use std::fs;
use std::time::Duration;

use futures_util::FutureExt;
use shardlimit::{ErrorKind, FailurePolicy, Leases, Limiter, NamedLimit};
use shared::{Cluster, Layout, client_of, eventually, left};
use tokio::runtime::Handle;
use tokio::task::JoinSet;

/// More than all tests take of it.
const LIMIT: &str = "token-bucket 3000/day burst 3000";
const HANGS: Duration = Duration::from_secs(30);

/// What this process has: threads, sockets, and tasks of this runtime.
#[derive(Clone, Copy, Debug)]
struct Things {
    threads: usize,
    sockets: usize,
    tasks: usize,
}

impl Things {
    /// None is more than it was; that one is less makes up for no other.
    fn are_within(self, before: Self) -> bool {
        self.threads <= before.threads && self.sockets <= before.sockets && self.tasks <= before.tasks
    }
}

fn things() -> Things {
    let links = fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    Things {
        threads: fs::read_dir("/proc/self/task").unwrap().count(),
        sockets: links.filter(|link| link.to_string_lossy().starts_with("socket:")).count(),
        tasks: Handle::current().metrics().num_alive_tasks(),
    }
}

/// Nothing of it comes back while a test runs, and nobody comes to its end.
const LEASED: &str = "fixed-window 30000000/365days";

/// Keys in use of every kind: split, leased, refunded, waited for. The last is how many permits of the leased one were spent.
async fn use_it(cluster: &Cluster) -> (Limiter, NamedLimit, NamedLimit, u64) {
    let limiter = client_of(cluster, 0).build().unwrap();
    limiter.ready(HANGS).await.unwrap();
    let limit = limiter.define("api", LIMIT.parse().unwrap()).unwrap();
    let ahead = Leases::new().horizon(Duration::from_millis(500)).ttl(Duration::from_secs(1));
    let leased = limiter.define_leased("leased", LEASED.parse().unwrap(), ahead).unwrap();
    limit.plan("hot").await.unwrap();
    let mut callers = JoinSet::new();
    for _ in 0..50 {
        let (limit, leased) = (limit.clone(), leased.clone());
        callers.spawn(async move {
            assert!(limit.acquire("hot").await.unwrap().is_allowed());
            for _ in 0..100 {
                assert!(leased.acquire("hot").await.unwrap().is_allowed());
            }
        });
    }
    callers.join_all().await;
    (limiter, limit, leased, 5_000)
}

/// However often a limiter is made, used and dropped, nothing of it stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limiter_that_is_dropped_leaves_nothing_behind() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    // What the process makes once. It is gone when what it had leased has expired and is back.
    drop(use_it(&cluster).await);
    tokio::time::sleep(Duration::from_secs(4)).await;
    let before = things();
    for _ in 0..5 {
        drop(use_it(&cluster).await);
    }
    eventually("all of it is gone", async || things().are_within(before)).await;
}

/// Also where the servers went before it, and what was leased of them can't go back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limiter_whose_servers_are_gone_leaves_nothing_behind() {
    let mut cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    // What the process makes once.
    drop(use_it(&cluster).await);
    tokio::time::sleep(Duration::from_secs(4)).await;
    let before = things();
    let (limiter, limit, leased, _) = use_it(&cluster).await;
    cluster.nodes.iter_mut().for_each(|node| node.server.kill());
    // Expired leases have been on their way by now, in vain.
    tokio::time::sleep(Duration::from_secs(2)).await;
    drop((limiter, limit, leased));
    eventually("all of it is gone", async || things().are_within(before)).await;
}

/// The same from outside of any runtime: the limiter's own thread ends with it.
#[test]
fn the_limiters_own_thread_ends_with_it() {
    let cluster = Cluster::start(1, 0, Layout::Contiguous, &[]);
    let threads = || {
        let names = fs::read_dir("/proc/self/task")
            .unwrap()
            .filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("comm")).ok());
        names.filter(|name| name.trim() == "shardlimit").count()
    };
    for end in ["drop", "shut down", "shut down, and go away"] {
        let limiter = client_of(&cluster, 0).build().unwrap();
        let limit = limiter.define("api", "10/day".parse().unwrap()).unwrap();
        assert!(pollster::block_on(limit.acquire("hot")).is_ok());
        assert_eq!(threads(), 1);
        match end {
            "shut down" => pollster::block_on(limiter.shutdown(HANGS)).unwrap(),
            "shut down, and go away" => drop(limiter.shutdown(HANGS).now_or_never()),
            _ => {}
        }
        let kept = (end != "drop").then_some((limiter, limit));
        for _ in 0..1_000 {
            if threads() == 0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(threads(), 0, "{end}");
        if let Some((limiter, _)) = kept {
            // There is nothing left to run it.
            pollster::block_on(limiter.shutdown(HANGS)).unwrap();
        }
    }
}

/// Whoever comes while it is shut down already is told the same, and not that its thread has ended.
#[test]
fn it_may_be_shut_down_by_several() {
    let cluster = Cluster::start(1, 0, Layout::Contiguous, &[]);
    for _ in 0..20 {
        let limiter = client_of(&cluster, 0).build().unwrap();
        let limit = limiter.define("api", "1000/day".parse().unwrap()).unwrap();
        assert!(pollster::block_on(limit.acquire("hot")).unwrap().is_allowed());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| pollster::block_on(limiter.shutdown(HANGS)).unwrap());
            }
        });
    }
}

/// A time without end is no moment that a clock can tell.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn there_may_be_all_the_time_in_the_world() {
    let cluster = Cluster::start(1, 0, Layout::Contiguous, &[]);
    let limiter = client_of(&cluster, 0).build().unwrap();
    limiter.ready(Duration::MAX).await.unwrap();
    limiter.shutdown(Duration::MAX).await.unwrap();
}

/// Leases are back, connections closed and tasks gone when it returns; who comes later is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limiter_that_is_shut_down_returns_what_it_holds() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    let other = client_of(&cluster, 1).build().unwrap();
    let watcher = other.define("api", LIMIT.parse().unwrap()).unwrap();
    let before = things();
    let (limiter, limit, leased, spent) = use_it(&cluster).await;
    limiter.shutdown(HANGS).await.unwrap();
    eventually("connections and tasks are gone", async || {
        things().tasks <= before.tasks && things().sockets <= before.sockets
    })
    .await;
    for limit in [&limit, &leased] {
        let error = limit.acquire("another").await.unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::NotSent, "limiter"), "{error}");
    }
    assert_eq!(limit.peek("hot").await.unwrap_err().kind(), ErrorKind::NotSent);
    assert_eq!(limiter.ready(HANGS).await.unwrap_err().field(), "limiter");
    limiter.shutdown(HANGS).await.unwrap();
    assert_eq!(left(&watcher, "hot").await, 3_000 - 50);
    let watcher = other.define("leased", LEASED.parse().unwrap()).unwrap();
    assert_eq!(left(&watcher, "hot").await, 30_000_000 - spent);
    // One that was never used has nothing to end, and does not begin after that.
    let unused = client_of(&cluster, 0).build().unwrap();
    let limit = unused.define_leased("leased", LEASED.parse().unwrap(), Leases::new()).unwrap();
    let before = things();
    unused.shutdown(HANGS).await.unwrap();
    for _ in 0..3 {
        assert_eq!(limit.peek("hot").await.unwrap_err().kind(), ErrorKind::NotSent);
        assert_eq!(limit.reset("hot").await.unwrap_err().kind(), ErrorKind::NotSent);
        assert_eq!(limit.plan("hot").await.unwrap_err().kind(), ErrorKind::NotSent);
        assert_eq!(unused.return_leases(HANGS).await.unwrap_err().kind(), ErrorKind::NotSent);
    }
    assert!(things().are_within(before), "{:?} after {before:?}", things());
    Limiter::local().shutdown(HANGS).await.unwrap();
}

/// Those who go on calling took more ahead while the rest was given back, and that was lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_taken_ahead_while_all_is_given_back() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    let watcher = client_of(&cluster, 1).build().unwrap().define("leased", LEASED.parse().unwrap()).unwrap();
    let mut spent = 0;
    for round in 0..5 {
        let (limiter, _, leased, before) = use_it(&cluster).await;
        let mut callers = JoinSet::new();
        for _ in 0..4 {
            let leased = leased.clone();
            callers.spawn(async move {
                for spent in 0.. {
                    match leased.acquire("hot").await {
                        Ok(decision) => assert!(decision.is_allowed()),
                        Err(error) if error.kind() == ErrorKind::NotSent => return spent,
                        Err(error) => panic!("{error}"),
                    }
                    tokio::task::yield_now().await;
                }
                0
            });
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        limiter.shutdown(HANGS).await.unwrap();
        spent += before + callers.join_all().await.into_iter().sum::<u64>();
        assert_eq!(left(&watcher, "hot").await, 30_000_000 - spent, "{round}");
    }
}

/// What the failure policy would admit, nobody could be charged for any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_decided_without_a_server_after_the_end() {
    let mut cluster = Cluster::start(1, 0, Layout::Contiguous, &[]);
    let limiter = client_of(&cluster, 0).on_failure(FailurePolicy::Open).build().unwrap();
    let hot = limiter.define("api", LIMIT.parse().unwrap()).unwrap().handle("hot").unwrap();
    assert!(hot.acquire().await.unwrap().is_allowed());
    cluster.nodes[0].server.kill();
    let by_policy = async || hot.try_acquire(1).unwrap().is_some_and(|decision| decision.is_allowed());
    while !by_policy().await {
        let _ = hot.acquire().await;
    }
    let _ = limiter.shutdown(Duration::from_millis(100)).await;
    for _ in 0..1_000 {
        assert_eq!(hot.try_acquire(1).unwrap_err().kind(), ErrorKind::NotSent);
    }
}

/// Those who wait for a server that hangs learn that it is over, and do not wait on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_still_waits_is_answered_when_it_is_shut_down() {
    let cluster = Cluster::start(1, 0, Layout::Contiguous, &[]);
    let minutes = Duration::from_secs(600);
    let limiter = client_of(&cluster, 0).timeout(minutes).deadline(minutes).build().unwrap();
    let limit = limiter.define("api", "1000/day".parse().unwrap()).unwrap();
    assert!(limit.acquire("hot").await.unwrap().is_allowed());
    cluster.nodes[0].server.pause();
    let mut waiting = JoinSet::new();
    for _ in 0..20 {
        let limit = limit.clone();
        waiting.spawn(async move { limit.acquire("hot").await.map(|decision| decision.is_allowed()) });
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    let _ = tokio::time::timeout(HANGS, limiter.shutdown(Duration::from_millis(100))).await.expect("it is bounded");
    let all = tokio::time::timeout(HANGS, waiting.join_all()).await.expect("nobody waits on");
    assert!(all.iter().all(|result| result.as_ref().is_err_and(|error| error.field() == "runtime")), "{all:?}");
    cluster.nodes[0].server.resume();
}

/// A call that is alone with its shard sends by itself: no task is dropped that would answer it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_sends_by_himself_is_answered_when_it_is_shut_down() {
    let cluster = Cluster::start(1, 0, Layout::Contiguous, &[]);
    let minutes = Duration::from_secs(600);
    let limiter = client_of(&cluster, 0).timeout(minutes).deadline(minutes).build().unwrap();
    let limit = limiter.define("api", "1000/day".parse().unwrap()).unwrap();
    let paced = limiter.define("paced", "pacing-queue 1/day capacity 10".parse().unwrap()).unwrap();
    assert!(limit.acquire("hot").await.unwrap().is_allowed());
    assert!(paced.acquire("hot").await.unwrap().is_allowed());
    let mut waiting = JoinSet::new();
    // Its turn is tomorrow.
    waiting.spawn(async move { paced.acquire_within("hot", 1, 200 * minutes).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    cluster.nodes[0].server.pause();
    for number in 0..20 {
        let limit = limit.clone();
        waiting.spawn(async move { limit.acquire(format!("key {number}")).await });
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    let _ = tokio::time::timeout(HANGS, limiter.shutdown(Duration::from_millis(100))).await.expect("it is bounded");
    let all = tokio::time::timeout(HANGS, waiting.join_all()).await.expect("nobody waits on");
    let is_told = |error: &shardlimit::Error| error.kind() == ErrorKind::Unknown && error.field() == "runtime";
    assert!(all.iter().all(|result| result.as_ref().is_err_and(is_told)), "{all:?}");
    cluster.nodes[0].server.resume();
}

/// It has the time that it was given, as those have for whom a task sends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_sends_by_himself_is_waited_for_when_it_is_shut_down() {
    let cluster = Cluster::start(1, 0, Layout::Contiguous, &[]);
    let limiter = client_of(&cluster, 0).build().unwrap();
    let limit = limiter.define("api", "1000/day".parse().unwrap()).unwrap();
    assert!(limit.acquire("hot").await.unwrap().is_allowed());
    cluster.nodes[0].server.pause();
    let call = tokio::spawn(async move { limit.acquire("another").await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    let end = tokio::spawn(async move { limiter.shutdown(HANGS).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    cluster.nodes[0].server.resume();
    assert!(call.await.unwrap().unwrap().is_allowed());
    end.await.unwrap().unwrap();
}
