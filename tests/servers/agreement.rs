//! All clients agree on a key's plan and on its limit, also while masters come and go and definitions differ.

use std::collections::HashSet;
use std::time::Duration;

use crate::shared::{BURST, Cluster, Layout, client_of, eventually, exactly, lent, on_master, race, sums, take_all};
use shardlimit::{Builder, NamedLimit, Plan, Shards};

fn define(builder: Builder, text: &str, revision: u64) -> NamedLimit {
    builder.build().unwrap().define_revision("api", text.parse().unwrap(), revision).unwrap()
}

/// The masters that a plan lies on, by their index in the cluster.
fn masters(cluster: &Cluster, plan: &Plan) -> HashSet<usize> {
    plan.shards.iter().map(|shard| cluster.owner_of(shard.slot.number())).collect()
}

/// Asks now and then, as traffic does, until the plan is as it should be.
async fn until_planned(limit: &NamedLimit, key: &str, what: &str, is_so: impl Fn(&Plan) -> bool) -> Plan {
    eventually(what, async || {
        let _ = limit.acquire(key).await.unwrap();
        is_so(&limit.plan(key).await.unwrap())
    })
    .await;
    limit.plan(key).await.unwrap()
}

/// Shares come home with just what was left of them, once, whoever takes the steps.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_left_of_a_share_comes_home_once() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    for text in crate::shared::SPLIT {
        let split = define(client_of(&cluster, 0), text, 1);
        let before = split.plan(text).await.unwrap();
        assert_eq!(before.shards.len(), 3);
        let mut taken = 0;
        for _ in 0..50 {
            taken += u64::from(split.acquire(text).await.unwrap().is_allowed());
        }
        // Two clients at once that want it whole, while the first one goes on.
        let whole = [1, 2].map(|node| define(client_of(&cluster, node).shards(Shards::Off), text, 2));
        let all = [&whole[..], std::slice::from_ref(&split)].concat();
        taken += race(&all, text, 2).await;
        assert_eq!(taken, BURST, "{text}");
        let after = until_planned(&split, text, "it is whole again", |plan| plan.shards.len() == 1).await;
        assert_eq!(sums(&after), (BURST, BURST));
        assert_eq!(take_all(&whole[0], text).await, 0, "{text}");
        assert!(split.mismatches() > 0 && whole[0].mismatches() == 0, "{text}");
        // A tombstone is there for ten minutes: no request that was held up on its way brings the share back.
        for shard in lent(&before) {
            assert!(on_master::<i64>(&cluster, shard, "PTTL") > 590_000, "{text}");
        }
    }
}

/// Clients that want different numbers of shards follow the later one, and the key does not go to and fro.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_later_number_of_shards_counts_and_nobody_fights() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    let text = "token-bucket 3000/day burst 3000";
    let two = define(client_of(&cluster, 0).shards(exactly(2)), text, 7);
    let six = define(client_of(&cluster, 1).shards(exactly(6)), text, 8);
    let mut taken = u64::from(two.acquire("hot").await.unwrap().is_allowed());
    eventually("the later one counts", async || {
        taken += u64::from(two.acquire("hot").await.unwrap().is_allowed());
        taken += u64::from(six.acquire("hot").await.unwrap().is_allowed());
        six.plan("hot").await.unwrap().shards.len() == 6
    })
    .await;
    let before = six.plan("hot").await.unwrap();
    // A minute: longer than any pause that a client makes before it looks at the cluster or at home again.
    for client in [&two, &six].repeat(300) {
        taken += u64::from(client.acquire("hot").await.unwrap().is_allowed());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // Home's own id counts every change of its ledger.
    assert_eq!(format!("{:?}", six.plan("hot").await.unwrap()), format!("{before:?}"), "the plan went on changing");
    let plans = [two.plan("hot").await.unwrap(), six.plan("hot").await.unwrap()];
    assert_eq!(format!("{:?}", plans[0]), format!("{:?}", plans[1]));
    taken += race(&[two, six], "hot", 2).await;
    assert_eq!(taken, 3_000);
}

/// A later definition of the limit itself: for the client that has it, and for those that have the one before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_later_limit_counts_for_all() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    for (old, new, most) in [
        ("token-bucket 300/day burst 300", "token-bucket 90/day burst 90", 90),
        ("fixed-window 300/365days", "fixed-window 90/365days", 40),
        ("sliding-window 300/365days", "sliding-window 90/365days", 40),
        ("token-bucket 300/day burst 300", "fixed-window 90/365days", 0),
    ] {
        let key = format!("{old} {new}");
        let before = define(client_of(&cluster, 0), old, 7);
        assert_eq!(before.plan(&key).await.unwrap().shards.len(), 3);
        for _ in 0..50 {
            assert!(before.acquire(&key).await.unwrap().is_allowed());
        }
        let after = define(client_of(&cluster, 1), new, 8);
        let plan = until_planned(&after, &key, "the new limit is in force", |plan| plan.limit.permits() == 90).await;
        assert_eq!((plan.shards.len(), sums(&plan).0), (3, 90), "{key}");
        let taken = race(&[before.clone(), after], &key, 2).await;
        // What a bucket has is kept as far as it fits; what was used of a window is used. The calls in between took some.
        assert!(taken <= most && taken + 30 >= most, "{key}: {taken}");
        assert_eq!(before.limit_of(&key).await.unwrap(), new.parse().unwrap());
        assert!(before.mismatches() > 0);
    }
}

/// Masters come: the key's shards follow, one at a time, and no caller notices. They go again: so do the shards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shards_follow_masters_that_come_and_go() {
    let mut cluster = Cluster::start(2, 0, Layout::Contiguous, &[]);
    let text = "token-bucket 6000/day burst 6000";
    let clients = [0, 1].map(|node| define(client_of(&cluster, node), text, 1));
    let before = clients[0].plan("hot").await.unwrap();
    assert_eq!(masters(&cluster, &before).len(), 2);
    let mut taken = 0;

    let new: Vec<usize> = (0..2).map(|_| cluster.add_master()).collect();
    // The key's own slot moves too, so that the clients have a reason to look.
    for (index, master) in new.iter().enumerate() {
        for slot in 0..4 {
            let slot = slot + 100 * index as u16;
            if cluster.owner_of(slot) != *master {
                cluster.migrate(slot, *master);
            }
        }
    }
    cluster.migrate(lent(&before)[0].slot.number(), new[0]);
    for _ in 0..200 {
        for client in &clients {
            taken += u64::from(client.acquire("hot").await.unwrap().is_allowed());
        }
    }
    let plan =
        until_planned(&clients[0], "hot", "all masters have a share", |plan| masters(&cluster, plan).len() == 4).await;
    assert_eq!((plan.shards.len(), sums(&plan)), (4, (6_000, 6_000)));

    // All of a new master's slots go back: it has none left, and so no share.
    for slot in 0..16_384 {
        if cluster.owner_of(slot) == new[1] {
            cluster.migrate(slot, 0);
        }
    }
    let plan = until_planned(&clients[1], "hot", "three have", |plan| plan.shards.len() == 3).await;
    assert_eq!((masters(&cluster, &plan).len(), sums(&plan)), (3, (6_000, 6_000)));
    let plans = [clients[0].plan("hot").await.unwrap(), plan];
    assert_eq!(format!("{:?}", plans[0]), format!("{:?}", plans[1]));
    // `until_planned` asks too: so many were taken in all, and no more are left than the rest.
    let rest = race(&clients, "hot", 2).await;
    let shares: u64 = clients.iter().flat_map(|client| client.handle("hot").unwrap().counts()).map(|c| c.allowed).sum();
    assert_eq!(shares, 6_000, "{taken} and {rest} were counted");
}
