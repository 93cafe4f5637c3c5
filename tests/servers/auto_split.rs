//! Keys that are split when they get hot, and come home when they have cooled down.

use std::time::Duration;

use crate::shared::{Cluster, Layout, client_of, define, eventually, sums};
use shardlimit::Shards;

/// None of the clients makes enough calls by itself: the shards say what all of them come to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_hot_in_sum_is_split_and_comes_home() {
    const CLIENTS: usize = 20;
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    for text in crate::shared::SPLIT {
        let text = text.replace("300", "3000000");
        let auto = |node: usize| define(client_of(&cluster, node % 3).shards(Shards::Auto).hot(200), &text);
        let clients: Vec<_> = (0..CLIENTS).map(auto).collect();
        let key = &text;
        assert_eq!(clients[0].plan(key).await.unwrap().shards.len(), 1, "{text}: it begins with home alone");
        let (stop, mut stopped) = tokio::sync::watch::channel(false);
        let mut callers = tokio::task::JoinSet::new();
        for client in &clients {
            let (hot, stopped) = (client.handle(key).unwrap(), stop.subscribe());
            callers.spawn(async move {
                let mut taken = 0;
                while !*stopped.borrow() {
                    taken += u64::from(hot.acquire().await.unwrap().is_allowed());
                    // 40 calls a second at the most.
                    tokio::time::sleep(Duration::from_millis(25)).await;
                }
                taken
            });
        }
        let _ = stopped.borrow_and_update();
        eventually("it is split", async || clients[1].plan(key).await.unwrap().shards.len() == 3).await;
        stop.send_replace(true);
        let mut taken: u64 = callers.join_all().await.into_iter().sum();

        // A few calls a second now.
        eventually("it is home", async || {
            taken += u64::from(clients[2].acquire(key).await.unwrap().is_allowed());
            tokio::time::sleep(Duration::from_millis(50)).await;
            clients[2].plan(key).await.unwrap().shards.len() == 1
        })
        .await;
        let plan = clients[0].plan(key).await.unwrap();
        assert_eq!((plan.shards.len(), sums(&plan).0), (1, 3_000_000), "{text}");
        let left = clients[0].peek(key).await.unwrap().remaining();
        // A day brings 3,000,000: 35 a second.
        assert!(left.permits >= 3_000_000 - taken && left.permits <= 3_000_000, "{text}: {left:?} after {taken}");
        if text.contains("window") {
            assert_eq!(left.permits, 3_000_000 - taken, "{text}");
        }
    }
}

/// A key that is never hot stays at home, whatever the number of calls that need no run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_denied_in_process_stays_at_home() {
    let cluster = Cluster::start(2, 0, Layout::Contiguous, &[]);
    let limit = define(client_of(&cluster, 0).shards(Shards::Auto).hot(1_000), crate::shared::SPLIT[0]);
    let hot = limit.handle("hot").unwrap();
    for _ in 0..3_000 {
        let _ = hot.acquire().await.unwrap();
    }
    let runs: u64 = hot.counts().iter().map(|shard| shard.runs).sum();
    assert!(runs < 1_000, "{runs} runs");
    assert_eq!(limit.plan("hot").await.unwrap().shards.len(), 1);
}
