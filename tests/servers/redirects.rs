//! Slots move and scripts are forgotten while callers are at work: they see nothing of it, and the count stays exact.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::shared::{BURST, Cluster, Layout, client_of, define, on_master, race, take_all};
use redis::cmd;
use shardlimit::{NamedLimit, Plan};
use tokio::task::JoinSet;

const MANY: u64 = 6_000;
const LIMITS: [&str; 2] = ["token-bucket 6000/day burst 6000", "sliding-window 6000/365days"];

/// Callers that ask now and then while something happens, and take all that is left after it.
struct Callers {
    over: Arc<AtomicBool>,
    tasks: JoinSet<u64>,
}

impl Callers {
    fn start(clients: &[NamedLimit], key: &'static str) -> Self {
        let (over, mut tasks) = (Arc::new(AtomicBool::new(false)), JoinSet::new());
        for client in clients {
            for _ in 0..4 {
                let (client, over) = (client.clone(), Arc::clone(&over));
                tasks.spawn(async move {
                    let mut taken = 0;
                    while !over.load(Ordering::Relaxed) {
                        taken += u64::from(client.acquire(key).await.unwrap().is_allowed());
                        tokio::time::sleep(Duration::from_millis(2)).await;
                    }
                    taken + take_all(&client, key).await
                });
            }
        }
        Self { over, tasks }
    }

    async fn end(self) -> u64 {
        self.over.store(true, Ordering::Relaxed);
        self.tasks.join_all().await.into_iter().sum()
    }
}

/// Moves the slot of each shard to the next master, with a pause at each stage.
fn move_all(cluster: &Cluster, plan: &Plan) {
    let pause = || std::thread::sleep(Duration::from_millis(50));
    for shard in &plan.shards {
        let slot = shard.slot.number();
        let to = (cluster.owner_of(slot) + 1) % cluster.nodes.len();
        let migration = cluster.begin_migration(slot, to);
        pause();
        assert_eq!(cluster.move_keys(&migration), 1);
        // From here on the source answers ASK.
        pause();
        cluster.finish_migration(migration);
        cluster.wait_until_ok();
        assert_eq!(cluster.owner_of(slot), to);
        assert_eq!(on_master::<u8>(cluster, shard, "EXISTS"), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_move_under_callers_who_do_not_notice() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    for key in LIMITS {
        let clients = [0, 1].map(|node| define(client_of(&cluster, node), key));
        let plan = clients[0].plan(key).await.unwrap();
        assert_eq!(plan.shards.len(), 3);
        let callers = Callers::start(&clients, key);
        tokio::task::block_in_place(|| move_all(&cluster, &plan));
        assert_eq!(callers.end().await, MANY, "{key}");
    }
}

/// A key that nobody has used yet is made at the end of a slot that is on its way, and no call is lost between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_begins_while_its_home_moves() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    let home = shardlimit::Slot::of(b"api:new").number();
    let to = (cluster.owner_of(home) + 1) % 3;
    let migration = cluster.begin_migration(home, to);
    let clients = [0, 1].map(|node| define(client_of(&cluster, node), crate::shared::SPLIT[0]));
    let (clients, callers) = (clients.clone(), tokio::spawn(async move { race(&clients, "new", 3).await }));
    assert_eq!(callers.await.unwrap(), BURST);
    tokio::task::block_in_place(|| {
        assert_eq!(cluster.move_keys(&migration), 0, "it was made at the new owner");
        cluster.finish_migration(migration);
        cluster.wait_until_ok();
    });
    assert_eq!(take_all(&clients[0], "new").await, 0);
}

/// The third master has no slot, so no client has heard of it, until all shards of a key are there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shards_are_found_on_a_master_that_was_not_known() {
    let cluster = Cluster::start(3, 0, Layout::LastEmpty, &[]);
    for text in crate::shared::SPLIT {
        let before = define(client_of(&cluster, 0), text);
        let plan = before.plan(text).await.unwrap();
        assert!(plan.shards.len() >= 2);
        for shard in plan.shards.iter().filter(|shard| cluster.owner_of(shard.slot.number()) != 2) {
            cluster.migrate(shard.slot.number(), 2);
        }
        cluster.wait_until_ok();
        let after = define(client_of(&cluster, 2), text);
        assert_eq!(race(&[before, after], text, 2).await, BURST, "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_are_forgotten_under_callers_who_do_not_notice() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    for key in LIMITS {
        let clients = [0, 1].map(|node| define(client_of(&cluster, node), key));
        // From cold: grants and installs are forgotten as well.
        let callers = Callers::start(&clients, key);
        tokio::task::block_in_place(|| {
            for _ in 0..40 {
                for node in &cluster.nodes {
                    node.ask::<()>(cmd("SCRIPT").arg("FLUSH"));
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        assert_eq!(callers.end().await, MANY, "{key}");
    }
}

/// Forgotten and on its way at once: the source must be sent by the way of the ASK, not to the old owner.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_are_forgotten_at_the_far_end_of_a_move() {
    let cluster = Cluster::start(2, 0, Layout::Contiguous, &[]);
    let limit = define(client_of(&cluster, 0), crate::shared::SPLIT[0]);
    let plan = limit.plan("hot").await.unwrap();
    let slot = plan.shards[0].slot.number();
    let migration = cluster.begin_migration(slot, 1 - cluster.owner_of(slot));
    assert_eq!(cluster.move_keys(&migration), 1);
    let mut taken = 0;
    for _ in 0..50 {
        for node in &cluster.nodes {
            node.ask::<()>(cmd("SCRIPT").arg("FLUSH"));
        }
        taken += u64::from(limit.acquire("hot").await.unwrap().is_allowed());
    }
    assert_eq!(taken, 50);
    cluster.finish_migration(migration);
    cluster.wait_until_ok();
    assert_eq!(take_all(&limit, "hot").await, BURST - 50);
}
