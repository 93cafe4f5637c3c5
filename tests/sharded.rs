//! One limit on many masters: the way of a call on real clusters.
#![cfg(feature = "redis")]

#[path = "support/cluster.rs"]
mod cluster;
#[path = "support/server.rs"]
mod server;

use cluster::{Cluster, Layout};
use shardlimit::{Decision, Limiter, Shards};

fn url(cluster: &Cluster, node: usize) -> String {
    format!("redis://127.0.0.1:{}", cluster.nodes[node].server.port)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_split_over_all_masters() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    let limiter = Limiter::builder().redis([url(&cluster, 0)]).build().unwrap();
    let limit = limiter.define("api", "token-bucket 3000/day burst 300".parse().unwrap()).unwrap();
    let plan = limit.plan("hot").await.unwrap();
    println!("{plan:#?}");
    let mut allowed = 0;
    for _ in 0..400 {
        if let Decision::Allowed(_) = limit.acquire("hot").await.unwrap() {
            allowed += 1;
        }
    }
    assert_eq!(allowed, 300);
    let _ = Shards::Off;
}
