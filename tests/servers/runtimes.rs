//! A limiter lives on the runtime it is first used on if that has threads of its own, or on a thread of its own, and serves
//! callers on any.

use std::time::{Duration, Instant};

use crate::shared::{self, BURST, Cluster, Layout, Server, client, client_of, define, take_all};
use redis::cmd;
use shardlimit::{ErrorKind, NamedLimit};
use tokio::runtime::{Builder, Runtime};

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn two_threads() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// For tests that no runtime runs.
fn until(what: &str, holds: impl Fn() -> bool) {
    let patience = Instant::now();
    while !holds() {
        assert!(patience.elapsed() < Duration::from_secs(30), "waited 30 s until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Connections to the server other than the one that asks.
fn connections(server: &Server) -> usize {
    let list: String = cmd("CLIENT").arg("LIST").arg("TYPE").arg("normal").query(&mut server.connection()).unwrap();
    list.lines().count() - 1
}

/// Threads of this process that a limiter started.
fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.map(|task| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default());
    names.filter(|name| name.trim() == "shardlimit").count()
}

#[test]
fn the_first_call_comes_from_a_runtime_of_one_thread() {
    let cluster = Cluster::start(2, 0, Layout::Contiguous, &[]);
    let limit = define(client_of(&cluster, 0), shared::SPLIT[0]);
    let runtime = one_thread();
    assert_eq!(runtime.block_on(take_all(&limit, "hot")), BURST);
    assert_eq!(runtime.block_on(limit.plan("hot")).unwrap().shards.len(), 2);
    drop(limit);
    // What is left to be done is done when the runtime runs again.
    runtime.block_on(async { tokio::time::sleep(Duration::from_millis(200)).await });
    until("no connection is left", || cluster.nodes.iter().all(|node| connections(&node.server) == 0));
}

#[test]
fn the_first_call_comes_from_a_runtime_of_several_threads() {
    let cluster = Cluster::start(2, 0, Layout::Contiguous, &[]);
    let limit = define(client_of(&cluster, 0), shared::SPLIT[0]);
    let runtime = two_threads();
    assert_eq!(runtime.block_on(take_all(&limit, "hot")), BURST);
    assert!(cluster.nodes.iter().all(|node| connections(&node.server) > 0));
    drop(limit);
    until("no connection is left", || cluster.nodes.iter().all(|node| connections(&node.server) == 0));
    until("no task is left", || runtime.metrics().num_alive_tasks() == 0);
}

/// Without a runtime it has a thread of its own, which goes when it does.
#[test]
fn the_first_call_comes_from_no_runtime_at_all() {
    let cluster = Cluster::start(2, 0, Layout::Contiguous, &[]);
    let limit = define(client_of(&cluster, 0), shared::SPLIT[0]);
    assert_eq!(threads(), 0, "not before it is used");
    assert_eq!(pollster::block_on(take_all(&limit, "hot")), BURST);
    assert_eq!(threads(), 1);
    let receipt = pollster::block_on(async {
        limit.reset("hot").await.unwrap();
        assert!(limit.acquire_within("hot", 200, Duration::from_secs(5)).await.unwrap().is_allowed());
        shared::take(&limit, "hot", 20).await.into_receipt()
    });
    pollster::block_on(limit.refund("hot", receipt)).unwrap();
    assert_eq!(pollster::block_on(limit.plan("hot")).unwrap().shards.len(), 2);
    drop(limit);
    until("its thread has ended", || threads() == 0);
    until("no connection is left", || cluster.nodes.iter().all(|node| connections(&node.server) == 0));
}

/// Gateways have several runtimes, and threads without one.
#[test]
fn callers_on_several_runtimes_share_a_limiter() {
    let cluster = Cluster::start(2, 0, Layout::Contiguous, &[]);
    let given = two_threads();
    let limit = define(client_of(&cluster, 0).runtime(given.handle().clone()), shared::SPLIT[0]);
    let on = |run: fn(NamedLimit) -> u64| {
        let limit = limit.clone();
        std::thread::spawn(move || run(limit))
    };
    let callers = [
        on(|limit| one_thread().block_on(take_all(&limit, "hot"))),
        on(|limit| two_threads().block_on(take_all(&limit, "hot"))),
        on(|limit| pollster::block_on(take_all(&limit, "hot"))),
        on(|limit| pollster::block_on(take_all(&limit, "hot"))),
    ];
    assert_eq!(callers.map(|caller| caller.join().unwrap()).iter().sum::<u64>(), BURST);
}

/// The runtime that a limiter was given is gone: calls from another one end with an error instead of hanging.
#[test]
fn calls_end_when_the_limiters_runtime_has_ended() {
    let server = Server::start(&[]);
    let first = one_thread();
    let limit = define(client(&server).runtime(first.handle().clone()), shared::SPLIT[0]);
    assert!(first.block_on(limit.acquire("hot")).unwrap().is_allowed());
    drop(first);
    for _ in 0..3 {
        let call = async { tokio::time::timeout(Duration::from_secs(30), limit.acquire("hot")).await };
        let error = one_thread().block_on(call).expect("a call never hangs").unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::NotSent | ErrorKind::Unknown), "{error:?}");
        assert_eq!(error.field(), "runtime", "{error}");
    }
    let after = define(client(&server), shared::SPLIT[0]);
    assert_eq!(pollster::block_on(after.peek("hot")).unwrap().remaining().permits, BURST - 1);
}

/// The first call came from a runtime of one thread, which then rests: others' calls must not wait for it.
#[test]
fn a_runtime_that_rests_holds_nobody_up() {
    let server = Server::start(&[]);
    let limit = define(client(&server), "10/day");
    let first = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    assert!(first.block_on(limit.acquire("hot")).unwrap().is_allowed());
    let second = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let call = async { tokio::time::timeout(Duration::from_secs(60), limit.acquire("hot")).await };
    assert!(second.block_on(call).expect("the call hangs").unwrap().is_allowed());
    drop(first);
}

/// A call that is alone sends by itself. Another one may join just when the answer comes: then the first goes its way, and
/// nobody comes after it who would send for the second.
#[test]
fn whoever_sends_for_another_does_not_leave_it_behind() {
    let server = Server::start(&[]);
    let limit = define(client(&server), "1000000/s");
    let runtime = two_threads();
    let call = async |limit: NamedLimit, after: u64| {
        let due = Instant::now() + Duration::from_micros(after);
        while Instant::now() < due {
            std::hint::spin_loop();
        }
        assert!(limit.acquire("hot").await.unwrap().is_allowed());
    };
    for _ in 0..4_000 {
        let second = runtime.spawn(call(limit.clone(), shared::random(250)));
        runtime.block_on(runtime.spawn(call(limit.clone(), 0))).unwrap();
        let ended = async { tokio::time::timeout(Duration::from_secs(30), second).await };
        runtime.block_on(ended).expect("a call hangs").unwrap();
    }
}
