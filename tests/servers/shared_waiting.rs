//! Waiting for permits on a shared store: allowed once they are there, denied if they can't come in time.

use std::time::Duration;

use crate::shared::{Cluster, Layout, client_of, define, exactly, take_all};
use shardlimit::{Decision, ErrorKind, Shards};

const LONG: Duration = Duration::from_secs(60);
const LIMITS: [&str; 4] = [
    "token-bucket 200/s burst 60",
    "leaky-bucket 200/s capacity 60",
    "fixed-window 60/500ms",
    "sliding-window 60/500ms precision 10",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_waits_until_its_permits_are_there() {
    let cluster = Cluster::start(2, 0, Layout::Contiguous, &[]);
    for text in LIMITS {
        for shards in [exactly(2), Shards::Off] {
            let limit = define(client_of(&cluster, 0).prefix(shards.to_string()).shards(shards), text);
            limit.plan(text).await.unwrap();
            // 50 is more than one share: gathered where the key is split.
            for permits in [1, 20, 50] {
                while limit.acquire_n(text, 60).await.unwrap().is_allowed() {}
                let waited = limit.acquire_within(text, permits, LONG).await.unwrap();
                assert!(waited.is_allowed(), "{text} {shards}: {permits}");
            }
        }
    }
}

/// Several callers wait for a few permits at a time, and all get their turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_wait_and_all_are_served() {
    let cluster = Cluster::start(2, 0, Layout::Contiguous, &[]);
    let limits = [0, 1].map(|node| define(client_of(&cluster, node).shards(exactly(2)), LIMITS[0]));
    let mut tasks = tokio::task::JoinSet::new();
    for caller in 0..60 {
        let limit = limits[caller % 2].clone();
        tasks.spawn(async move { limit.acquire_within("hot", 2, LONG).await.unwrap().is_allowed() });
    }
    assert!(tasks.join_all().await.into_iter().all(|allowed| allowed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_can_not_be_served_in_time_is_denied() {
    let cluster = Cluster::start(2, 0, Layout::Contiguous, &[]);
    for text in crate::shared::SPLIT {
        let limit = define(client_of(&cluster, 0), text);
        take_all(&limit, text).await;
        for permits in [1, 200] {
            let Decision::Denied(denied) =
                limit.acquire_within(text, permits, Duration::from_millis(50)).await.unwrap()
            else {
                panic!("{text}: there was nothing to be had");
            };
            assert!(!denied.retry_after().is_zero(), "{text}");
        }
        assert_eq!(limit.acquire_within(text, 301, LONG).await.unwrap_err().kind(), ErrorKind::Never);
        assert_eq!(take_all(&limit, text).await, 0);
    }
}

/// A place in a pacing queue: those whose turn comes in time wait for it, the others give their place back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_is_waited_in() {
    let cluster = Cluster::start(2, 0, Layout::Contiguous, &[]);
    let limit = define(client_of(&cluster, 0), "pacing-queue 50/s capacity 30");
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let limit = limit.clone();
        tasks.spawn(async move {
            match limit.acquire_within("mail", 1, LONG).await.unwrap() {
                Decision::Allowed(allowed) => allowed.wait().is_zero(),
                Decision::Denied(_) => false,
            }
        });
    }
    assert!(tasks.join_all().await.into_iter().all(|served| served), "each had its turn, and has it now");

    let slow = define(client_of(&cluster, 0), "pacing-queue 300/day capacity 300");
    assert!(slow.acquire_within("mail2", 1, Duration::ZERO).await.unwrap().is_allowed());
    assert!(!slow.acquire_within("mail2", 1, Duration::from_millis(50)).await.unwrap().is_allowed());
    assert_eq!(crate::shared::left(&slow, "mail2").await, 299, "the place was given back");
}
