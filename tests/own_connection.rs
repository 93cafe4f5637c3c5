//! A `ClusterConnection` that the user brought carries the same limiter.
#![cfg(feature = "cluster-async")]

#[path = "support/shared.rs"]
mod shared;

use redis::cluster::ClusterClientBuilder;
use shardlimit::{Limiter, NamedLimit};
use shared::{BURST, Cluster, Layout, SPLIT, candid, client_of, define, take_all, url};

async fn own(cluster: &Cluster, text: &str) -> NamedLimit {
    // As the builder asks for: a request whose fate is unknown must not be sent again.
    let client = ClusterClientBuilder::new(vec![url(&cluster.nodes[0].server)]).retries(0).build().unwrap();
    define(candid(Limiter::builder().cluster_connection(client.get_async_connection().await.unwrap())), text)
}

/// Both kinds of client share one plan and one limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_decides_as_our_own_connections_do() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    for text in SPLIT {
        let (brought, ours) = (own(&cluster, text).await, define(client_of(&cluster, 1), text));
        let plan = brought.plan(text).await.unwrap();
        assert_eq!(plan.shards.len(), 3, "{text}");
        for _ in 0..50 {
            assert!(brought.acquire(text).await.unwrap().is_allowed(), "{text}");
            assert!(ours.acquire(text).await.unwrap().is_allowed(), "{text}");
        }
        assert_eq!(take_all(&brought, text).await + take_all(&ours, text).await, BURST - 100, "{text}");
    }
}

/// With its retries off the connection follows no redirect by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_follows_slots_and_forgotten_scripts() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    let limit = own(&cluster, SPLIT[0]).await;
    let plan = limit.plan("hot").await.unwrap();
    let mut taken = 0;
    let mut ask = async || {
        for _ in 0..9 {
            taken += u64::from(limit.acquire("hot").await.unwrap().is_allowed());
        }
    };
    for shard in &plan.shards {
        let slot = shard.slot.number();
        ask().await;
        let migration = cluster.begin_migration(slot, (cluster.owner_of(slot) + 1) % 3);
        ask().await;
        cluster.move_keys(&migration);
        // The source answers ASK.
        ask().await;
        cluster.finish_migration(migration);
        ask().await;
        for node in &cluster.nodes {
            node.ask::<()>(redis::cmd("SCRIPT").arg("FLUSH"));
        }
        tokio::task::block_in_place(|| cluster.wait_until_ok());
    }
    ask().await;
    assert_eq!(taken + take_all(&limit, "hot").await, BURST);
}
