//! A limit is split over distinct masters, its shares add up, and its sub-keys lie where the plan says.

use std::collections::HashSet;

use crate::shared::cluster::is_ring;
use crate::shared::{Cluster, Layout, client_of, define, exactly, sums};
use redis::cmd;
use shardlimit::{Limiter, Plan, PlannedShard, Shards, Slot};

/// How many masters the shards lie on.
fn masters(owners: &[usize], plan: &Plan) -> usize {
    plan.shards.iter().map(|shard| owners[usize::from(shard.slot.number())]).collect::<HashSet<_>>().len()
}

/// Every shard is stored on the master that the plan names, for a limited time, and home outlives the others.
fn check_sub_keys(cluster: &Cluster, owners: &[usize], plan: &Plan) {
    let node = |shard: &PlannedShard| &cluster.nodes[owners[usize::from(shard.slot.number())]];
    let lives: Vec<i64> = plan.shards.iter().map(|shard| node(shard).ask(cmd("PTTL").arg(&*shard.sub_key))).collect();
    for (shard, life) in plan.shards.iter().zip(&lives) {
        let node = node(shard);
        // By the cluster's own word, where there is one.
        let slot: u16 = if is_ring() {
            Slot::of(&shard.sub_key).number()
        } else {
            node.ask(cmd("CLUSTER").arg("KEYSLOT").arg(&*shard.sub_key))
        };
        assert_eq!(slot, shard.slot.number());
        assert_eq!(*shard.master.as_ref().expect("an owner").id, *node.id);
        assert!(!node.ask::<Vec<u8>>(cmd("GET").arg(&*shard.sub_key)).is_empty());
        assert!(*life > 0, "{life}: it would stay for ever");
    }
    assert!(lives[1..].iter().all(|life| *life < lives[0]), "home is the first to go: {lives:?}");
}

/// A cluster of three nodes, of which so many own slots.
async fn covers(layout: Layout, count: usize) {
    let cluster = Cluster::start(3, 0, layout, &[]);
    let limit = define(client_of(&cluster, 2), "token-bucket 1000/day burst 301");
    // Asked for once: a striped cluster takes long to say it.
    let owners = cluster.owners();
    for key in ["a", "b", "c", "d", "e", "f"] {
        let plan = limit.plan(key).await.unwrap();
        assert_eq!((plan.shards.len(), masters(&owners, &plan)), (count, count), "{plan:?}");
        assert_eq!(sums(&plan), (1000, 301));
        check_sub_keys(&cluster, &owners, &plan);
        let again = limit.plan(key).await.unwrap();
        assert_eq!(format!("{plan:?}"), format!("{again:?}"), "a look changes nothing");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_master_of_a_contiguous_cluster_has_one_shard() {
    covers(Layout::Contiguous, 3).await;
}

/// Neighbouring slots are on different masters here: a plan that went by distance would fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_master_of_a_striped_cluster_has_one_shard() {
    covers(Layout::Striped, 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_without_slots_has_no_shard() {
    covers(Layout::LastEmpty, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_has_as_many_shards_as_were_asked_for() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    let _ = client_of(&cluster, 0);
    let owners = cluster.owners();
    for text in crate::shared::SPLIT {
        let wanted =
            [(Shards::Off, 1, 1), (exactly(1), 1, 1), (exactly(2), 2, 2), (exactly(3), 3, 3), (exactly(7), 7, 3)];
        for (shards, count, distinct) in wanted {
            let limit = define(client_of(&cluster, 0).prefix(shards.to_string()).shards(shards), text);
            let plan = limit.plan(text).await.unwrap();
            assert_eq!((plan.shards.len(), masters(&owners, &plan)), (count, distinct), "{text} {shards}");
            assert_eq!(sums(&plan), (300, 300));
            let slots: HashSet<_> = plan.shards.iter().map(|shard| shard.slot).collect();
            assert_eq!(slots.len(), count, "two shards in one slot would be one sub-key");
            let most = plan.shards.iter().map(|shard| shard.burst).max();
            let least = plan.shards.iter().map(|shard| shard.burst).min();
            assert!(most.unwrap() - least.unwrap() <= 1, "{plan:?}");
            check_sub_keys(&cluster, &owners, &plan);
        }
    }
}

/// A share with a burst of less than 20 denies what the whole limit would allow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_that_is_too_small_is_not_split() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    let count = async |shards: Shards, text: &str| {
        let limit = define(client_of(&cluster, 0).prefix(format!("p{shards}")).shards(shards), text);
        let plan = limit.plan(text).await.unwrap();
        assert_eq!(sums(&plan).1, limit.limit().burst());
        plan.shards.len()
    };
    assert_eq!(count(Shards::PerMaster, "10/day").await, 1);
    assert_eq!(count(Shards::PerMaster, "39/day").await, 1);
    assert_eq!(count(Shards::PerMaster, "40/day").await, 2);
    assert_eq!(count(Shards::PerMaster, "60/day").await, 3);
    assert_eq!(count(Shards::PerMaster, "100000/s burst 1000").await, 1, "10 ms of its rate do not outlast a stall");
    assert_eq!(count(exactly(3), "10/day").await, 3, "who asks for it gets it");
    assert_eq!(count(exactly(9), "4/day").await, 4, "no share is of nothing");
    assert_eq!(count(exactly(3), "1/day").await, 1);
    for text in crate::shared::WHOLE {
        assert_eq!(count(exactly(3), text).await, 1, "{text} can't be split");
    }
}

/// When home is lost, the client that makes the next plan must find the slots of the one before it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_client_plans_alike() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    let mut plans = HashSet::new();
    for prefix in ["one", "two", "three"] {
        let limit = define(client_of(&cluster, 0).prefix(prefix), "token-bucket 300/day burst 300");
        let slots: Vec<u16> = limit.plan("hot").await.unwrap().shards.iter().map(|shard| shard.slot.number()).collect();
        plans.insert(slots);
    }
    assert_eq!(plans.len(), 1, "{plans:?}");
}

#[test]
fn the_embedded_store_has_no_plan() {
    let limit = Limiter::local().define("api", "300/day".parse().unwrap()).unwrap();
    let error = pollster::block_on(limit.plan("hot")).unwrap_err();
    assert_eq!(error.kind(), shardlimit::ErrorKind::Refused);
}

/// A crowd of new keys: each was split by a task of its own, and more and more of them waited for the servers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_keys_is_split_by_few_tasks() {
    const CALLERS: usize = 100;
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    let limit = define(client_of(&cluster, 0), "token-bucket 1000/day burst 301");
    limit.plan("warm up").await.unwrap();
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..CALLERS {
        let limit = limit.clone();
        callers.spawn(async move {
            for number in 0..100 {
                assert!(limit.acquire(format!("{caller}:{number}")).await.unwrap().is_allowed());
            }
        });
    }
    let mut most = 0;
    while !callers.is_empty() {
        most = most.max(tasks() - before);
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        while callers.try_join_next().is_some_and(|joined| joined.map_err(|error| panic!("{error}")).is_ok()) {}
    }
    println!("{most} tasks at the most");
    // Callers, those that move shares, and one that sends for each of either.
    assert!(most <= 2 * CALLERS + 2 * 64, "{most} tasks");
    // Those that found no place are split when they are called again.
    crate::shared::eventually("all of some keys are split", async || {
        let mut split = 0;
        for number in 0..10 {
            let key = format!("0:{number}");
            assert!(limit.acquire(&key).await.unwrap().is_allowed());
            split += usize::from(limit.handle(&key).unwrap().counts().len() == 3);
        }
        split == 10
    })
    .await;
}
