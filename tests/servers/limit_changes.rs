//! Limits that are set while they are in use.

use crate::shared::{Cluster, Layout, client_of, define, eventually, lent, on_master, race, sums, take, take_all};
use shardlimit::{Carry, ErrorKind, Limit, Limiter, Shards};

fn limit(text: &str) -> Limit {
    text.parse().unwrap()
}

/// What is carried over, by each way, on a key that is split and on one that is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_key_has_is_carried_over() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    for shards in [Shards::PerMaster, Shards::Off] {
        for (from, to, carry, left) in [
            ("token-bucket 300/day burst 300", "token-bucket 90/day burst 90", Carry::Keep, 90),
            ("token-bucket 300/day burst 300", "token-bucket 900/day burst 900", Carry::Keep, 240),
            ("token-bucket 300/day burst 300", "token-bucket 90/day burst 90", Carry::Proportional, 72),
            ("token-bucket 300/day burst 300", "token-bucket 900/day burst 900", Carry::Reset, 900),
            ("fixed-window 300/365days", "fixed-window 90/365days", Carry::Keep, 30),
            ("fixed-window 300/365days", "fixed-window 90/365days", Carry::Proportional, 72),
            ("sliding-window 300/365days", "sliding-window 900/365days", Carry::Keep, 840),
            ("sliding-window 300/365days", "sliding-window 90/365days", Carry::Reset, 90),
            ("fixed-window 300/365days", "token-bucket 90/day burst 90", Carry::Keep, 0),
            ("token-bucket 300/day burst 300", "sliding-window 90/365days", Carry::Reset, 90),
            // The same again.
            ("token-bucket 300/day burst 300", "token-bucket 300/day burst 300", Carry::Keep, 240),
            ("fixed-window 300/365days", "fixed-window 300/365days", Carry::Proportional, 240),
            ("token-bucket 300/day burst 300", "token-bucket 300/day burst 300", Carry::Reset, 300),
            ("sliding-window 300/365days", "sliding-window 300/365days", Carry::Reset, 300),
        ] {
            let key = format!("{from} {to} {carry}");
            let clients =
                [0, 1].map(|node| define(client_of(&cluster, node).prefix(shards.to_string()).shards(shards), from));
            let expected = if shards == Shards::Off { 1 } else { 3 };
            assert_eq!(clients[0].plan(&key).await.unwrap().shards.len(), expected);
            for _ in 0..60 {
                take(&clients[0], &key, 1).await;
            }
            assert_eq!(clients[0].set_limit_of(&key, limit(to), carry).await.unwrap(), limit(to));
            assert_eq!(clients[1].limit_of(&key).await.unwrap(), limit(to), "{key}");
            let plan = clients[1].plan(&key).await.unwrap();
            assert_eq!((plan.shards.len(), sums(&plan).0), (expected, limit(to).permits()), "{key}");
            let taken = race(&clients, &key, 2).await;
            // A part of a permit on each shard is nobody's: rounded up where it is used, down where it is left.
            assert!(taken <= left && taken + 3 >= left, "{key}, {shards}: {taken} of {left}");
        }
    }
}

/// It is in force at every client by its next call to each shard, and a client that starts later does not undo it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_that_was_set_outranks_definitions() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    let text = "token-bucket 300/day burst 300";
    let clients = [0, 1].map(|node| define(client_of(&cluster, node), text));
    assert_eq!(clients[1].plan("hot").await.unwrap().shards.len(), 3);
    clients[0].set_limit_of("hot", limit("token-bucket 30/day burst 30"), Carry::Keep).await.unwrap();
    assert_eq!(race(&clients[1..], "hot", 1).await, 30);
    assert_eq!(clients[1].mismatches(), 0, "it differs on purpose");

    let later = define(client_of(&cluster, 2), text);
    assert_eq!(take_all(&later, "hot").await, 0);
    assert_eq!(later.limit_of("hot").await.unwrap().burst(), 30);
    assert_eq!(later.limit_of("another").await.unwrap().burst(), 300);
    // Idle for as long as a day: then it may go.
    let plan = later.plan("hot").await.unwrap();
    assert!(on_master::<i64>(&cluster, &plan.shards[0], "PTTL") > 86_000_000);
    // More than was defined can be asked for, where so much was set.
    later.set_limit_of("hot", limit("token-bucket 900/day burst 900"), Carry::Reset).await.unwrap();
    assert_eq!(take(&later, "hot", 600).await.receipt().permits(), 600);
    assert_eq!(take(&clients[0], "hot", 90).await.receipt().permits(), 90);
}

/// For all keys of a name: here at once, at others within a second, and not for a key that has a limit of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_limit_of_all_keys_can_be_set() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    let text = "token-bucket 300/day burst 300";
    let clients = [0, 1].map(|node| define(client_of(&cluster, node), text));
    clients[1].set_limit_of("own", limit("token-bucket 7/day burst 7"), Carry::Reset).await.unwrap();
    take(&clients[1], "known", 1).await;
    clients[0].set_limit(limit("token-bucket 30/day burst 30"), Carry::Reset).await.unwrap();
    assert_eq!(clients[0].limit(), limit("token-bucket 30/day burst 30"));
    assert_eq!(take_all(&clients[0], "new").await, 30);
    eventually("the other client knows", async || {
        let _ = clients[1].acquire("any").await.unwrap();
        clients[1].limit() == limit("token-bucket 30/day burst 30")
    })
    .await;
    eventually("a key that was in use has it", async || {
        let _ = clients[1].acquire("known").await.unwrap();
        clients[1].limit_of("known").await.unwrap() == limit("token-bucket 30/day burst 30")
    })
    .await;
    assert_eq!(take_all(&clients[0], "own").await, 7);
    // A client that starts later knows it as soon as it asks, also for a key that nobody has used.
    let asks = define(client_of(&cluster, 2), text);
    assert_eq!(asks.limit_of("nobody's").await.unwrap(), limit("token-bucket 30/day burst 30"));
    // Or it learns it with its first calls.
    let later = define(client_of(&cluster, 2), text);
    eventually("one that starts later knows", async || {
        let _ = later.acquire("any").await.unwrap();
        later.limit() == limit("token-bucket 30/day burst 30")
    })
    .await;
}

/// Also one of another algorithm, whose state is not that of the keys before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_limit_of_all_keys_can_be_of_another_kind() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    let clients = [0, 1].map(|node| define(client_of(&cluster, node), "token-bucket 300/day burst 300"));
    take(&clients[1], "known", 1).await;
    let set = limit("sliding-window 30/365days");
    clients[0].set_limit(set, Carry::Reset).await.unwrap();
    for key in ["any", "known"] {
        eventually("the other client goes by it", async || {
            let _ = clients[1].acquire(key).await.unwrap();
            clients[1].limit() == set && clients[1].limit_of(key).await.unwrap() == set
        })
        .await;
    }
    let later = define(client_of(&cluster, 2), "token-bucket 300/day burst 300");
    assert_eq!(later.limit_of("nobody's").await.unwrap(), set);
}

/// A client that denies by itself, for as long as an hour, hears of more all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_that_is_raised_is_not_held_back_by_ceilings() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    for shards in [Shards::PerMaster, Shards::Off] {
        let hour = std::time::Duration::from_secs(3_600);
        let build = |node| client_of(&cluster, node).prefix(shards.to_string()).shards(shards).ceiling(hour);
        let clients = [0, 1].map(|node| define(build(node), "token-bucket 3/day burst 3"));
        for permits in [1, 2] {
            let key = permits.to_string();
            assert_eq!(take_all(&clients[1], &key).await, 3);
            clients[0].set_limit_of(&key, limit("token-bucket 300/day burst 300"), Carry::Reset).await.unwrap();
            eventually("it is allowed", async || clients[1].acquire_n(&key, permits).await.unwrap().is_allowed()).await;
        }
    }
}

/// A key that was used up was never told of another limit: only calls that were allowed had it looked after.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_used_up_takes_another_limit_too() {
    let cluster = Cluster::start(2, 0, Layout::Contiguous, &[]);
    let client = define(client_of(&cluster, 0), "token-bucket 2/day burst 2");
    assert_eq!(take_all(&client, "used up").await, 2);
    client.set_limit(limit("token-bucket 100/day burst 100"), Carry::Reset).await.unwrap();
    eventually("it is allowed again", async || client.acquire("used up").await.unwrap().is_allowed()).await;
    assert_eq!(client.limit_of("used up").await.unwrap().burst(), 100);
}

/// The record of what was set for all keys is deleted: whoever goes by it makes it again, and it can be set anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_is_wiped_is_made_again() {
    let cluster = Cluster::start(2, 0, Layout::Contiguous, &[]);
    let client = define(client_of(&cluster, 0), "token-bucket 300/day burst 300");
    client.set_limit(limit("token-bucket 30/day burst 30"), Carry::Keep).await.unwrap();
    for node in &cluster.nodes {
        node.ask::<()>(&redis::cmd("FLUSHALL"));
    }
    assert_eq!(client.set_limit(limit("token-bucket 70/day burst 70"), Carry::Keep).await.unwrap().burst(), 70);
    for node in &cluster.nodes {
        node.ask::<()>(&redis::cmd("FLUSHALL"));
    }
    eventually("another client learns it from the record", async || {
        let _ = client.acquire("any").await.unwrap();
        let later = define(client_of(&cluster, 1), "token-bucket 300/day burst 300");
        let _ = later.acquire("another").await.unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        later.limit().burst() == 70
    })
    .await;
}

/// A master that can't be reached keeps its share of the old limit; the new one is in force elsewhere, less by that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_share_out_of_reach_stays_lent() {
    let mut cluster = Cluster::start(3, 0, Layout::Contiguous, &["--cluster-require-full-coverage", "no"]);
    let text = "token-bucket 300/day burst 300";
    let client = define(client_of(&cluster, 0).timeout(std::time::Duration::from_millis(500)), text);
    let before = client.plan("hot").await.unwrap();
    let away = cluster.owner_of(lent(&before)[1].slot.number());
    let home = cluster.owner_of(before.shards[0].slot.number());
    assert_ne!(away, home);
    cluster.nodes[away].server.kill();
    let set = client.set_limit_of("hot", limit("token-bucket 210/day burst 210"), Carry::Reset).await.unwrap();
    assert_eq!(set.burst(), 210, "it is in force all the same");
    let mut taken = 0;
    for _ in 0..300 {
        taken += client.acquire("hot").await.map_or(0, |decision| u64::from(decision.is_allowed()));
    }
    // 100 of the old limit are out of reach.
    assert!((50..=110).contains(&taken), "{taken}");
    cluster.nodes[away].server.restart();
    eventually("the share is home", async || {
        let _ = client.acquire("hot").await;
        client.plan("hot").await.is_ok_and(|plan| sums(&plan) == (210, 210) && plan.shards.len() == 3)
    })
    .await;
}

/// Home had nothing left beside a share of the old limit that was out of reach, so every call was denied in process, and
/// nobody ever heard that the share could be reached again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_home_with_nothing_left_goes_on_asking() {
    for (from, to) in [
        ("token-bucket 300/s burst 300", "token-bucket 90/s burst 90"),
        ("fixed-window 300/s", "fixed-window 90/s"),
        ("sliding-window 300/s", "sliding-window 90/s"),
    ] {
        let mut cluster = Cluster::start(3, 0, Layout::Contiguous, &["--cluster-require-full-coverage", "no"]);
        let client = define(client_of(&cluster, 0).timeout(std::time::Duration::from_millis(500)), from);
        let before = client.plan("hot").await.unwrap();
        let away = cluster.owner_of(lent(&before)[1].slot.number());
        assert_ne!(away, cluster.owner_of(before.shards[0].slot.number()));
        cluster.nodes[away].server.kill();
        assert_eq!(client.set_limit_of("hot", limit(to), Carry::Reset).await.unwrap(), limit(to));
        for _ in 0..20 {
            let decision = client.acquire("hot").await;
            assert!(
                !decision.is_ok_and(|decision| decision.is_allowed()),
                "{to}: the share that is out has more than all"
            );
        }
        cluster.nodes[away].server.restart();
        eventually("the share is home", async || {
            client.acquire("hot").await.is_ok_and(|decision| decision.is_allowed())
        })
        .await;
    }
}

/// The embedded store says that it can't.
#[tokio::test]
async fn the_embedded_store_says_that_it_can_not() {
    let local = Limiter::local().define("api", limit("30/day")).unwrap();
    let error = local.set_limit_of("key", limit("40/day"), Carry::Keep).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert_eq!(local.limit_of("key").await.unwrap(), limit("30/day"));
}
