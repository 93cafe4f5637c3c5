//! Clients of a shared store, and what tests ask of them.
#![allow(dead_code, unreachable_pub)]

#[path = "cluster.rs"]
pub mod cluster;
#[path = "server.rs"]
pub mod server;

use std::num::NonZeroU16;
use std::time::{Duration, Instant};

#[allow(unused_imports)] // by those who need no cluster
pub use cluster::{Cluster, Layout};
use redis::{FromRedisValue, cmd};
pub use server::Server;
use shardlimit::{Allowed, Builder, Decision, FailurePolicy, Limiter, NamedLimit, Plan, PlannedShard, Shards};
use tokio::task::JoinSet;

/// Limits that are split, and of which nothing comes back while a test runs: counts are exact. A window of a year
/// does not end in the middle of a test either.
pub const SPLIT: [&str; 4] = [
    "token-bucket 300/day burst 300",
    "leaky-bucket 300/day capacity 300",
    "fixed-window 300/365days",
    "sliding-window 300/365days",
];
/// The same for those that are never split.
pub const WHOLE: [&str; 3] = [
    "sliding-log 300/365days",
    "pacing-queue 300/day capacity 300",
    "token-bucket 400/day burst 300 + sliding-window 320/300days + fixed-window 350/365days",
];
/// What each of them has.
pub const BURST: u64 = 300;

/// A cluster that goes on without a master that is away; a ring always does.
pub const PARTIAL: [&str; 2] = ["--cluster-require-full-coverage", "no"];

/// A caller who is denied so often in a row has been to every shard, also where its first views were wrong,
const DENIALS: usize = 16;
/// and if he waits for so long each time, shares that were on their way have arrived.
const MEANWHILE: Duration = Duration::from_millis(5);

pub fn url(server: &Server) -> String {
    format!("redis://127.0.0.1:{}", server.port)
}

/// A client with time-outs that no stall of a busy machine reaches, and that says what went wrong.
pub fn client(server: &Server) -> Builder {
    client_at([url(server)])
}

fn client_at(urls: impl IntoIterator<Item = String>) -> Builder {
    let builder = Limiter::builder();
    let builder = if cluster::is_ring() {
        cluster::OWNER_BY_RING.get_or_init(|| owner_by_ring);
        builder.ring(urls)
    } else {
        builder.redis(urls)
    };
    candid(builder.timeout(Duration::from_secs(10)))
}

/// The node of a ring that has a slot, as a client sees it.
fn owner_by_ring(cluster: &Cluster, slot: u16) -> usize {
    let limiter = client_at(cluster.nodes.iter().map(|node| url(&node.server))).build().unwrap();
    let watch = limiter.watch_topology().unwrap().expect("a ring has a topology");
    let patience = Instant::now();
    loop {
        let topology = watch.current();
        if let Some(master) = topology.master_of(shardlimit::Slot::new(slot).unwrap()) {
            return cluster.nodes.iter().position(|node| node.server.port == master.port).expect("one of ours");
        }
        assert!(patience.elapsed() < Duration::from_secs(30), "waited 30 s for the ring");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A client whose calls wait for as long as its requests may take, and then say what went wrong.
pub fn candid(builder: Builder) -> Builder {
    builder.deadline(Duration::from_secs(60)).on_failure(FailurePolicy::Error)
}

/// A client that knows one node of the cluster.
pub fn client_of(cluster: &Cluster, node: usize) -> Builder {
    if cluster::is_ring() {
        return client_at(cluster.nodes.iter().map(|node| url(&node.server)));
    }
    client(&cluster.nodes[node].server)
}

pub fn exactly(shards: u16) -> Shards {
    Shards::Exactly(NonZeroU16::new(shards).expect("at least one"))
}

pub fn define(builder: Builder, text: &str) -> NamedLimit {
    builder.build().unwrap().define("api", text.parse().unwrap()).unwrap()
}

/// What a call got that has to be allowed.
pub async fn take(limit: &NamedLimit, key: &str, permits: u64) -> Allowed {
    match limit.acquire_n(key, permits).await.unwrap() {
        Decision::Allowed(allowed) => allowed,
        Decision::Denied(denied) => panic!("denied: {denied:?}"),
    }
}

/// Takes permits, one a call, until there are none left. Says how many.
pub async fn take_all(limit: &NamedLimit, key: impl AsRef<[u8]>) -> u64 {
    let (mut taken, mut denied) = (0, 0);
    while denied < DENIALS {
        if limit.acquire(key.as_ref()).await.unwrap().is_allowed() {
            (taken, denied) = (taken + 1, 0);
        } else {
            denied += 1;
            match tokio::runtime::Handle::try_current() {
                Ok(_) => tokio::time::sleep(MEANWHILE).await,
                Err(_) => std::thread::sleep(MEANWHILE),
            }
        }
    }
    taken
}

/// The same with several callers of each client at once.
pub async fn race(clients: &[NamedLimit], key: &str, callers: usize) -> u64 {
    let mut tasks = JoinSet::new();
    for client in clients {
        for _ in 0..callers {
            let (client, key) = (client.clone(), key.to_owned());
            tasks.spawn(async move { take_all(&client, key).await });
        }
    }
    tasks.join_all().await.into_iter().sum()
}

/// What all shards have together.
pub async fn left(limit: &NamedLimit, key: &str) -> u64 {
    limit.peek(key).await.unwrap().remaining().permits
}

/// Waits for what comes by itself, for as long as a busy machine may take.
pub async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let patience = Instant::now();
    while !holds().await {
        assert!(patience.elapsed() < Duration::from_secs(30), "waited 30 s until {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// One with another seed each time, good enough to vary moments.
pub fn random(below: u64) -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0) % below
}

/// What the master that owns a sub-key says to a command on it.
pub fn on_master<T: FromRedisValue>(cluster: &Cluster, shard: &PlannedShard, command: &str) -> T {
    let master = cluster.owner_of(shard.slot.number());
    cluster.nodes[master].ask(cmd(command).arg(&*shard.sub_key))
}

/// The shards that home lent.
pub fn lent(plan: &Plan) -> &[PlannedShard] {
    assert!(plan.shards[0].is_home && plan.shards[1..].iter().all(|shard| !shard.is_home), "home comes first");
    &plan.shards[1..]
}

/// What the shares have in sum: rate and burst.
pub fn sums(plan: &Plan) -> (u64, u64) {
    plan.shards.iter().fold((0, 0), |(permits, burst), shard| (permits + shard.permits, burst + shard.burst))
}
