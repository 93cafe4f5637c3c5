//! Memory of a limiter on a shared store: none allocated where this process decides, and bounded by the keys it tracks.
#![cfg(feature = "redis")]
#![allow(unsafe_code)]

#[path = "support/heap.rs"]
#[allow(dead_code, unreachable_pub)]
mod heap;
#[path = "support/shared.rs"]
mod shared;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use shardlimit::{DecidedBy, Decision, Error, FailurePolicy, Handle, Leases, NamedLimit};
use shared::{Cluster, Layout, Server, client, client_of, define, eventually, take_all};
use tokio::task::JoinSet;

#[global_allocator]
static HEAP: heap::Counting = heap::Counting;

const CALLS: usize = 10_000;

/// One test at a time: what any thread allocates counts.
static ONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// How a caller asks.
#[derive(Clone, Copy, Debug)]
enum Way {
    Try(u64),
    Await(u64),
}

const WAYS: [Way; 4] = [Way::Try(1), Way::Await(1), Way::Try(3), Way::Await(3)];

/// Allocations of this thread in one call, and who decided it; nobody yet: it is given up.
fn call(hot: &Handle, way: Way) -> (usize, Option<DecidedBy>) {
    let before = heap::allocations();
    let decision = match way {
        Way::Try(permits) => hot.try_acquire(permits).unwrap(),
        Way::Await(permits) => match pin!(hot.acquire_n(permits)).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(decided) => Some(decided.unwrap()),
            Poll::Pending => None,
        },
    };
    let decided_by = decision.as_ref().map(Decision::decided_by);
    drop(decision);
    (heap::allocations() - before, decided_by)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denial_in_process_allocates_nothing() {
    let _one = ONE.lock().await;
    let cluster = Cluster::start(2, 0, Layout::Contiguous, &[]);
    for text in shared::SPLIT {
        let limit = define(client_of(&cluster, 0).ceiling(Duration::from_secs(60)), text);
        limit.plan(text).await.unwrap();
        take_all(&limit, text).await;
        let hot = limit.handle(text).unwrap();
        for way in WAYS {
            assert_eq!(call(&hot, way).1, Some(DecidedBy::Ceiling), "{text}, {way:?}");
            for number in 0..CALLS {
                assert_eq!(call(&hot, way), (0, Some(DecidedBy::Ceiling)), "{text}, {way:?}, call {number}");
            }
        }
        let before = heap::allocations();
        for _ in 0..CALLS {
            assert!(limit.try_acquire(text, 1).unwrap().is_some_and(|decision| !decision.is_allowed()));
        }
        assert_eq!(heap::allocations() - before, 0, "{text}: by key");
    }
}

/// Also not one that finds the purse low, and has it filled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_admission_by_a_lease_allocates_nothing() {
    let _one = ONE.lock().await;
    let cluster = Cluster::start(2, 0, Layout::Contiguous, &[]);
    let texts = ["token-bucket 1000000/s burst 1000000", "fixed-window 1000000000/h"];
    for (number, (text, way)) in texts.into_iter().flat_map(|text| WAYS.map(|way| (text, way))).enumerate() {
        let builder = client_of(&cluster, 0).prefix(format!("test-{number}"));
        let limit = builder.build().unwrap().define_leased("api", text.parse().unwrap(), Leases::new()).unwrap();
        limit.plan("hot").await.unwrap();
        let hot = limit.handle("hot").unwrap();
        let runs = || hot.counts().iter().map(|shard| shard.runs).sum::<u64>();
        let (mut asked, mut by_lease, mut allocating) = (0, 0, 0);
        while by_lease < CALLS {
            for _ in 0..100 {
                let (allocations, decided_by) = call(&hot, way);
                asked += 1;
                if decided_by == Some(DecidedBy::Lease) {
                    by_lease += 1;
                    allocating += usize::from(allocations > 0);
                }
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let runs = runs();
        println!("{text}, {way:?}: {by_lease} of {asked} by leases, {allocating} of them allocated, {runs} runs");
        // A machine that stands still for some milliseconds has calls that find nothing: how many is its affair.
        assert!(by_lease > asked / 2, "{text}, {way:?}: only {by_lease} of {asked} by leases");
        assert!(runs > 1, "{text}, {way:?}: the purse was never filled again");
        assert_eq!(allocating, 0, "{text}, {way:?}: of {by_lease} calls");
    }
}

/// One thread takes a slice of what is held and goes away; another spends all there is, and so what that one has left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_admission_by_what_another_thread_has_allocates_nothing() {
    const BURST: usize = 10_000;
    let _one = ONE.lock().await;
    let server = Server::start(&[]);
    // Held for so long that nothing comes back; and of what is spent nothing does.
    let leases = Leases::new().horizon(Duration::from_secs(5)).ttl(Duration::from_secs(10));
    let text = format!("token-bucket {BURST}/365days burst {BURST}").parse().unwrap();
    let limit = client(&server).build().unwrap().define_leased("api", text, leases).unwrap();
    let runtime = tokio::runtime::Handle::current();
    // So many calls, or all that find permits.
    let spend = |calls: usize| {
        let (hot, runtime) = (limit.handle("hot").unwrap(), runtime.clone());
        std::thread::spawn(move || {
            let (mut admitted, mut by_lease, mut allocating) = (0, 0, 0);
            while admitted < calls {
                let (allocations, decided_by) = call(&hot, Way::Try(1));
                let is_by_lease = decided_by == Some(DecidedBy::Lease);
                (by_lease, allocating) =
                    (by_lease + usize::from(is_by_lease), allocating + usize::from(is_by_lease && allocations > 0));
                let is_admitted = match decided_by {
                    None => runtime.block_on(hot.acquire()).unwrap().is_allowed(),
                    Some(_) => is_by_lease,
                };
                admitted += usize::from(is_admitted);
            }
            println!("{by_lease} of {admitted} by leases, {allocating} of them allocated");
            (by_lease, allocating)
        })
    };
    let first = 1_000;
    for calls in [first, BURST - first] {
        let (by_lease, allocating) = spend(calls).join().unwrap();
        assert!(by_lease > calls / 2, "{by_lease} of {calls}: this tests nothing");
        assert_eq!(allocating, 0, "of {by_lease} calls");
    }
}

/// All calls that wait go from core to core in it.
#[tokio::test]
async fn a_call_waits_in_a_small_future() {
    let limiter = shardlimit::Limiter::builder().redis(["127.0.0.1:1"]).build().unwrap();
    let hot = limiter.define("api", "100/s".parse().unwrap()).unwrap().handle("hot").unwrap();
    let bytes = size_of_val(&hot.acquire());
    println!("a call waits in {bytes} bytes");
    assert!(bytes <= 320, "{bytes}");
}

/// Each key once, by callers that work side by side.
async fn see_once(limit: &NamedLimit, keys: std::ops::Range<usize>) {
    call_each(limit, keys, |decision| assert!(decision.unwrap().is_allowed())).await;
}

async fn call_each(limit: &NamedLimit, keys: std::ops::Range<usize>, judge: fn(Result<Decision, Error>)) {
    let (next, end) = (Arc::new(AtomicUsize::new(keys.start)), keys.end);
    let mut tasks = JoinSet::new();
    for _ in 0..200 {
        let (limit, next) = (limit.clone(), Arc::clone(&next));
        tasks.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= end {
                    return;
                }
                judge(limit.acquire(format!("key:{number}")).await);
            }
        });
    }
    tasks.join_all().await;
}

/// Waits until so little is left: the last tasks let go of their keys by themselves.
async fn falls_to(what: &str, before: isize, most: isize) {
    let mut least = isize::MAX;
    let grown = async || {
        least = least.min(heap::bytes_of_all() - before);
        least <= most
    };
    let patience = tokio::time::timeout(Duration::from_secs(20), eventually(what, grown)).await;
    println!("{what}: {least} bytes");
    assert!(patience.is_ok(), "{what}: {least} bytes, {most} are the most");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_was_seen_takes_little_and_all_of_them_are_bounded() {
    const KEYS: usize = 50_000;
    let _one = ONE.lock().await;
    let server = Server::start(&[]);
    let text = "token-bucket 10/min burst 10";
    let warm_up = async |limit: &NamedLimit| {
        see_once(limit, 0..1_000).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
    };

    let all = define(client(&server), text);
    warm_up(&all).await;
    let before = heap::bytes_of_all();
    see_once(&all, 1_000..KEYS + 1_000).await;
    falls_to("200 bytes a key", before, 200 * KEYS as isize).await;
    // Whoever held on to some leaves no more behind.
    let handles: Vec<Handle> = (1_000..11_000).map(|number| all.handle(format!("key:{number}")).unwrap()).collect();
    drop(handles);
    falls_to("200 bytes a key after handles", before, 200 * KEYS as isize).await;
    drop(all);

    // Of a leased limit they hold permits for a while, and fall idle when those are back.
    let limiter = client(&server).prefix("leased").build().unwrap();
    let leased = limiter.define_leased("api", text.parse().unwrap(), Leases::new()).unwrap();
    warm_up(&leased).await;
    let before = heap::bytes_of_all();
    see_once(&leased, 1_000..11_000).await;
    falls_to("200 bytes a key of a leased limit", before, 200 * 10_000).await;
    drop((leased, limiter));

    // Three times as many as there is room for, and then three times as many again: no growth but in the tables.
    let few = define(client(&server).prefix("few").max_keys(1_000), text);
    warm_up(&few).await;
    let before = heap::bytes_of_all();
    see_once(&few, 1_000..21_000).await;
    falls_to("room for 1,000 keys", before, 200 * 1_000).await;
}

/// Of three shares, with what each granted. Its plan is kept while it is idle, but for the last few not as it is used.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_split_keeps_its_plan_in_few_bytes_and_is_bounded() {
    const KEYS: usize = 20_000;
    let _one = ONE.lock().await;
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    let text = "token-bucket 100/min burst 100";
    // The last few that fell idle stay whole: six in each of 64 segments.
    let warm_up = async |limit: &NamedLimit| {
        see_once(limit, 0..1_000).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
    };

    let all = define(client_of(&cluster, 0), text);
    warm_up(&all).await;
    let before = heap::bytes_of_all();
    see_once(&all, 1_000..KEYS + 1_000).await;
    falls_to("200 bytes a key that is split", before, 200 * KEYS as isize).await;
    let split = all.plan(format!("key:{KEYS}")).await.unwrap();
    assert_eq!(split.shards.len(), 3);
    // Called again they are as they were, and fall idle again.
    see_once(&all, 1_000..KEYS + 1_000).await;
    falls_to("200 bytes a key that is split, once more", before, 200 * KEYS as isize).await;
    drop(all);

    // Of a leased limit they hold permits for a while, and fall idle when those are back.
    let limiter = client_of(&cluster, 0).prefix("leased").build().unwrap();
    let leased = limiter.define_leased("api", text.parse().unwrap(), Leases::new()).unwrap();
    warm_up(&leased).await;
    let before = heap::bytes_of_all();
    see_once(&leased, 1_000..6_000).await;
    falls_to("200 bytes a key of a leased limit that is split", before, 200 * 5_000).await;
    drop((leased, limiter));

    // Far more than there is room for. What waits on connections, 57 or 115 kB each in any order, is no matter of keys: so many that it
    // is little beside them.
    let few = define(client_of(&cluster, 0).prefix("few").max_keys(5_000), text);
    warm_up(&few).await;
    let before = heap::bytes_of_all();
    see_once(&few, 1_000..KEYS).await;
    falls_to("room for 5,000 keys that are split", before, 200 * 5_000).await;
}

/// In an outage they stay whole, for the policy goes by more than a plan. After it they are packed, though nobody calls them again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn split_keys_that_nobody_calls_after_an_outage_take_little_again() {
    const KEYS: usize = 2_000;
    let _one = ONE.lock().await;
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &["--cluster-require-full-coverage", "no"]);
    let policy = FailurePolicy::Local { ratio: 0.5 };
    let builder = client_of(&cluster, 0).on_failure(policy).deadline(Duration::from_secs(1));
    let limit = define(builder, "token-bucket 100/s burst 100");
    // How calls are decided is not the question.
    call_each(&limit, 0..KEYS, drop).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = heap::bytes_of_all();

    cluster.nodes[1].server.pause();
    // Each shard has its turn.
    for _ in 0..3 {
        call_each(&limit, 0..KEYS, drop).await;
    }
    let at_its_height = heap::bytes_of_all() - before;
    println!("in the outage: {at_its_height} bytes more");
    assert!(at_its_height > 1_000 * KEYS as isize, "{at_its_height} bytes more: they did not stay whole");
    cluster.nodes[1].server.resume();
    falls_to("200 bytes a key after an outage", before, 200 * KEYS as isize).await;
}
