//! What is admitted by leases is charged at the servers: a call that is decided in process is fast, not free.

use std::thread;
use std::time::Duration;

use shardlimit::{DecidedBy, Handle, Leases, Limiter};
use shardlimit_peers::cluster::{Cluster, urls};
use shardlimit_peers::count;
use tokio::runtime::Runtime;

use crate::THREADS;

/// Nothing of it comes back while this runs, unless it is midnight by the servers' clock.
const PERMITS: u64 = 10_000_000;
const LIMIT: &str = "fixed-window 10000000/day";
const KEY: &str = "item:42";
/// Calls of each thread.
const CALLS: u64 = 100_000;

/// Spends by leases, gives back what is held, and has another client look at what the servers have left.
pub(crate) fn check(runtime: &Runtime, cluster: &Cluster) {
    let limit = LIMIT.parse().expect("a valid limit");
    let client =
        || Limiter::builder().redis(urls(cluster)).runtime(runtime.handle().clone()).build().expect("settings");
    let (spender, other) = (client(), client());
    let leased = spender.define_leased("charged", limit, Leases::default()).expect("a name");
    // Before the first call, so that all masters have a share to lend from.
    let shards = runtime.block_on(leased.plan(KEY)).expect("a cluster that answers").shards.len();
    let handle = leased.handle(KEY).expect("a valid key");
    let (admitted, by_lease) = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(|| spend(runtime, &handle))).collect();
        let each = threads.into_iter().map(|thread| thread.join().expect("a caller panicked"));
        each.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
    });
    assert!(by_lease * 10 > admitted * 9, "{by_lease} of {admitted} by leases: this says nothing about them");
    runtime.block_on(spender.return_leases(Duration::from_secs(10))).expect("servers that take them back");

    let (exact, left) = (other.define("charged", limit).expect("a name"), PERMITS - admitted);
    let peek = runtime.block_on(exact.peek(KEY)).expect("a cluster that answers");
    assert_eq!(peek.remaining().permits, left, "left, after {admitted} were admitted");
    // The shards are not read at one moment, so that is an estimate to the library. But these can be had, and no more.
    let had = |permits| runtime.block_on(exact.acquire_n(KEY, permits)).expect("a cluster that answers").is_allowed();
    assert!(had(left), "{left} permits are there, but can't be had");
    assert!(!had(1), "more than {left} permits can be had");
    let [permits, admitted, by_lease] = [PERMITS, admitted, by_lease].map(|permits| count(permits as f64));
    println!(
        "leases are charged: of {permits} permits in {shards} shards {admitted} were admitted, {by_lease} of them by leases;"
    );
    println!("once the rest of the leases was given back, the servers had exactly the others left");
}

/// What was admitted, and how much of it by leases.
fn spend(runtime: &Runtime, handle: &Handle) -> (u64, u64) {
    let mut admitted = (0, 0);
    for _ in 0..CALLS {
        let decision = handle.try_acquire(1).expect("a valid ask");
        let decision = decision.unwrap_or_else(|| runtime.block_on(handle.acquire()).expect("a cluster that answers"));
        admitted.0 += u64::from(decision.is_allowed());
        admitted.1 += u64::from(decision.is_allowed() && decision.decided_by() == DecidedBy::Lease);
    }
    admitted
}
