//! A `ClusterConnection` that the user brought carries the same limiter.

use crate::shared::{BURST, Cluster, Layout, SPLIT, candid, client_of, define, take_all, url};
use redis::cluster::ClusterClientBuilder;
use shardlimit::counter::{Added, CounterSettings};
use shardlimit::{Builder, Limiter, NamedLimit};

async fn own(cluster: &Cluster, text: &str) -> NamedLimit {
    define(builder(cluster).await, text)
}

async fn builder(cluster: &Cluster) -> Builder {
    // As the builder asks for: a request whose fate is unknown must not be sent again.
    let client = ClusterClientBuilder::new(vec![url(&cluster.nodes[0].server)]).retries(0).build().unwrap();
    candid(Limiter::builder().cluster_connection(client.get_async_connection().await.unwrap()))
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

/// Both kinds of client count together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_counts_as_our_own_connections_do() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    let hour = std::time::Duration::from_secs(3_600);
    let (brought, ours) = (builder(&cluster).await.build().unwrap(), client_of(&cluster, 1).build().unwrap());
    let clicks = [&brought, &ours].map(|limiter| limiter.counters("clicks", CounterSettings::new(hour)).unwrap());
    let visitors = [&brought, &ours].map(|limiter| limiter.distinct_counters("visitors", hour, 3).unwrap());
    for key in ["a", "b", "c", "d"] {
        assert_eq!(clicks[0].add(key, 2).await.unwrap(), Added::Counted { total: Some(2) });
        assert_eq!(clicks[1].add(key, 3).await.unwrap(), Added::Counted { total: Some(5) });
        assert_eq!(clicks[0].get(key).await.unwrap(), 5);
        assert_eq!(visitors[0].add_many(key, ["x", "y"]).await.unwrap(), 2);
        assert_eq!(visitors[1].add_many(key, ["y", "z"]).await.unwrap(), 1);
        assert_eq!(visitors[0].get(key).await.unwrap(), 3);
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
