//! A limiter that comes to its end leaves nothing behind, and nobody waiting.
#![cfg(feature = "redis")]

#[path = "support/shared.rs"]
mod shared;

use std::fs;
use std::time::Duration;

use shardlimit::{ErrorKind, Leases, Limiter, NamedLimit};
use shared::{Cluster, Layout, client_of, define, eventually, left};
use tokio::runtime::Handle;
use tokio::task::JoinSet;

/// More than all tests take of it.
const LIMIT: &str = "token-bucket 3000/day burst 3000";
const HANGS: Duration = Duration::from_secs(30);

/// What this process has: threads, sockets, and tasks of this runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
struct Things {
    threads: usize,
    sockets: usize,
    tasks: usize,
}

fn things() -> Things {
    let links = fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    Things {
        threads: fs::read_dir("/proc/self/task").unwrap().count(),
        sockets: links.filter(|link| link.to_string_lossy().starts_with("socket:")).count(),
        tasks: Handle::current().metrics().num_alive_tasks(),
    }
}

/// Keys in use of every kind: split, leased, refunded, waited for.
async fn use_it(cluster: &Cluster) -> (Limiter, NamedLimit, NamedLimit) {
    let limiter = client_of(cluster, 0).build().unwrap();
    limiter.ready(HANGS).await.unwrap();
    let limit = limiter.define("api", LIMIT.parse().unwrap()).unwrap();
    let leased = limiter.define_leased("leased", "30000/s burst 3000".parse().unwrap(), Leases::default()).unwrap();
    limit.plan("hot").await.unwrap();
    let mut callers = JoinSet::new();
    for _ in 0..50 {
        let (limit, leased) = (limit.clone(), leased.clone());
        callers.spawn(async move {
            assert!(limit.acquire("hot").await.unwrap().is_allowed());
            for _ in 0..100 {
                let _ = leased.acquire("hot").await.unwrap();
            }
        });
    }
    callers.join_all().await;
    (limiter, limit, leased)
}

/// However often a limiter is made, used and dropped, nothing of it stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limiter_that_is_dropped_leaves_nothing_behind() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    // What the process makes once.
    drop(use_it(&cluster).await);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = things();
    for _ in 0..5 {
        drop(use_it(&cluster).await);
    }
    eventually("all of it is gone", async || things() <= before).await;
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
    for shut_down in [false, true] {
        let limiter = client_of(&cluster, 0).build().unwrap();
        let limit = limiter.define("api", "10/day".parse().unwrap()).unwrap();
        assert!(pollster::block_on(limit.acquire("hot")).is_ok());
        assert_eq!(threads(), 1);
        if shut_down {
            pollster::block_on(limiter.shutdown(HANGS)).unwrap();
        }
        let kept = shut_down.then_some((limiter, limit));
        for _ in 0..1_000 {
            if threads() == 0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(threads(), 0, "shut down: {shut_down}");
        drop(kept);
    }
}

/// Leases are back, connections closed and tasks gone when it returns; who comes later is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limiter_that_is_shut_down_returns_what_it_holds() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    let watcher = define(client_of(&cluster, 1), LIMIT);
    let before = things();
    let (limiter, limit, leased) = use_it(&cluster).await;
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
    // One that was never used has nothing to end.
    Limiter::builder().redis(["127.0.0.1:1"]).build().unwrap().shutdown(HANGS).await.unwrap();
    Limiter::local().shutdown(HANGS).await.unwrap();
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
