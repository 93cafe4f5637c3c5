//! How far a limit was exceeded, as all processes together see it while they use it.

use crate::shared::{Cluster, Layout, client_of, eventually, take_all};
use redis::cmd;
use shardlimit::NamedLimit;

const KEY: &str = "item:42";
/// Nothing comes back while a test runs.
const LIMIT: &str = "token-bucket 300/day burst 300";

fn watching(cluster: &Cluster, node: usize, keys: usize) -> NamedLimit {
    let limiter = client_of(cluster, node).watch_overshoot(keys).build().unwrap();
    limiter.define("checkout", LIMIT.parse().unwrap()).unwrap()
}

/// Both ask now and then, as traffic does.
async fn until(limits: &[&NamedLimit], what: &str, is_so: impl Fn(i64) -> bool) {
    eventually(what, async || {
        for limit in limits {
            let _ = limit.acquire(KEY).await.unwrap();
        }
        limits.iter().all(|limit| limit.overshoot().is_some_and(|overshoot| is_so(overshoot.permits)))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_two_processes_admit_is_judged_together() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    let (one, other) = (watching(&cluster, 0, 4), watching(&cluster, 1, 4));
    assert_eq!(one.plan(KEY).await.unwrap().shards.len(), 3);
    assert_eq!(one.overshoot(), None, "nothing was admitted yet");
    // A process judges what was admitted since its own first call: before that, the limit may have been another.
    assert!(one.acquire(KEY).await.unwrap().is_allowed() && other.acquire(KEY).await.unwrap().is_allowed());
    one.reset(KEY).await.unwrap();
    let taken = take_all(&one, KEY).await;
    assert_eq!(taken, 300);
    // Neither of them is above the limit by itself.
    one.reset(KEY).await.unwrap();
    let taken = take_all(&other, KEY).await;
    assert_eq!(taken, 300);
    // Only who is granted something tells of it.
    one.reset(KEY).await.unwrap();
    until(&[&one, &other], "both see what both admitted", |permits| permits >= 290).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_that_is_kept_has_none() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    let (one, other) = (watching(&cluster, 0, 4), watching(&cluster, 1, 4));
    assert_eq!(one.plan(KEY).await.unwrap().shards.len(), 3);
    for _ in 0..100 {
        assert!(one.acquire(KEY).await.unwrap().is_allowed() && other.acquire(KEY).await.unwrap().is_allowed());
    }
    eventually("both have told of it", async || {
        let _ = (one.acquire(KEY).await.unwrap(), other.acquire(KEY).await.unwrap());
        one.overshoot().is_some() && other.overshoot().is_some()
    })
    .await;
    for limit in [&one, &other] {
        let overshoot = limit.overshoot().unwrap();
        assert!((-300..=0).contains(&overshoot.permits), "{overshoot:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_pays_for_it_unasked() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    let limit = watching(&cluster, 0, 0);
    take_all(&limit, KEY).await;
    assert_eq!(limit.overshoot(), None);
    let tallies: Vec<Vec<String>> = cluster.nodes.iter().map(|node| node.ask(cmd("KEYS").arg("*tally*"))).collect();
    assert!(tallies.iter().all(Vec::is_empty), "{tallies:?}");
}
