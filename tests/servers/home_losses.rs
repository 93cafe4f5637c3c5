//! Home forgets its last writes, as it does when a replica takes over that had not seen them: whoever knows more tells it
//! again before it spends.

use crate::shared::{BURST, Cluster, Layout, client_of, eventually, race, sums, take_all};
use redis::cmd;
use shardlimit::{Carry, NamedLimit, Plan, Shards};

fn define(cluster: &Cluster, node: usize, shards: Shards, text: &str, revision: u64) -> NamedLimit {
    let limiter = client_of(cluster, node).shards(shards).build().unwrap();
    limiter.define_revision("api", text.parse().unwrap(), revision).unwrap()
}

/// Home's sub-key as it is stored.
fn save(cluster: &Cluster, plan: &Plan) -> Vec<u8> {
    crate::shared::on_master(cluster, &plan.shards[0], "GET")
}

fn restore(cluster: &Cluster, plan: &Plan, state: &[u8]) {
    let home = &plan.shards[0];
    let master = cluster.owner_of(home.slot.number());
    cluster.nodes[master].ask::<()>(cmd("SET").arg(&*home.sub_key).arg(state).arg("PX").arg(700_000));
}

/// Home has forgotten that it lent anything, and has all of the limit again: it is told, and what it lent is deducted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shares_that_home_forgot_are_logged_again() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    for text in crate::shared::SPLIT {
        let whole = define(&cluster, 0, Shards::Off, text, 1);
        assert!(whole.acquire_n(text, 150).await.unwrap().is_allowed());
        let unsplit = save(&cluster, &whole.plan(text).await.unwrap());
        let clients = [1, 2].map(|node| define(&cluster, node, Shards::PerMaster, text, 2));
        eventually("it is split", async || clients[0].plan(text).await.unwrap().shards.len() == 3).await;
        let plan = clients[0].plan(text).await.unwrap();
        let mut taken = 150;
        for client in clients.iter().cycle().take(60) {
            taken += u64::from(client.acquire(text).await.unwrap().is_allowed());
        }
        restore(&cluster, &plan, &unsplit);
        // One more call of each, so that they hear of it; then as many as there are.
        for client in clients.iter().chain([&whole]).cycle().take(9) {
            taken += u64::from(client.acquire(text).await.unwrap().is_allowed());
        }
        let after = clients[0].plan(text).await.unwrap();
        let grants = |plan: &Plan| plan.shards[1..].iter().map(|shard| shard.grant.clone()).collect::<Vec<_>>();
        assert_eq!(grants(&after), grants(&plan), "{text}: what was lent stays lent");
        assert_eq!(sums(&after), (BURST, BURST));
        let all = [&clients[..], std::slice::from_ref(&whole)].concat();
        taken += race(&all, text, 2).await;
        // 60 are left where they were lent. Home had 150, which may all have been lent: told again that they were, but not that
        // they are gone, it would have 100 of them, its share. A third of the 60 calls was charged there and is forgotten; and
        // so are the first calls of each client, before it hears of the loss.
        assert!((250..=BURST + 30).contains(&taken), "{text}: {taken}");
    }
}

/// Home has forgotten that shares came back: they come back once more, with what their tombstones say.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shares_that_came_home_come_home_again() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    for text in crate::shared::SPLIT {
        let split = define(&cluster, 0, Shards::PerMaster, text, 1);
        let plan = split.plan(text).await.unwrap();
        assert_eq!(plan.shards.len(), 3);
        let mut taken = 0;
        for _ in 0..60 {
            taken += u64::from(split.acquire(text).await.unwrap().is_allowed());
        }
        let lent = save(&cluster, &plan);
        let whole = define(&cluster, 1, Shards::Off, text, 2);
        eventually("it is whole", async || {
            taken += u64::from(whole.acquire(text).await.unwrap().is_allowed());
            whole.plan(text).await.unwrap().shards.len() == 1
        })
        .await;
        restore(&cluster, &plan, &lent);
        let mut forgotten = 0;
        eventually("it is whole again", async || {
            forgotten += 2;
            taken += u64::from(whole.acquire(text).await.unwrap().is_allowed());
            taken += u64::from(split.acquire(text).await.unwrap().is_allowed());
            whole.plan(text).await.unwrap().shards.len() == 1
        })
        .await;
        assert_eq!(sums(&whole.plan(text).await.unwrap()), (BURST, BURST));
        taken += race(&[split, whole], text, 2).await;
        // What was charged at home between the two moments is forgotten; nothing else is.
        assert!((BURST..=BURST + 60 + forgotten).contains(&taken), "{text}: {taken}, {forgotten}");
    }
}

/// Home has forgotten which limit was set.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_that_home_forgot_is_set_again() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    let text = "token-bucket 300/day burst 300";
    let new = ["token-bucket 30/day burst 30", "sliding-window 30/365days"];
    for (shards, new) in [(Shards::PerMaster, new[0]), (Shards::Off, new[0]), (Shards::PerMaster, new[1])] {
        let (key, new) = (format!("{shards} {new}"), new.parse().unwrap());
        let client = define(&cluster, 0, shards, text, 1);
        let plan = client.plan(&key).await.unwrap();
        let before = save(&cluster, &plan);
        client.set_limit_of(&key, new, Carry::Reset).await.unwrap();
        restore(&cluster, &plan, &before);
        eventually("it is in force again", async || {
            let _ = client.acquire(&key).await.unwrap();
            client.limit_of(&key).await.unwrap() == new
        })
        .await;
        let plan = client.plan(&key).await.unwrap();
        assert_eq!(sums(&plan), (30, 30), "{key}");
        assert!(take_all(&client, &key).await <= 30);
        // Wiped altogether, it is made again all the same.
        assert_eq!(crate::shared::on_master::<u8>(&cluster, &plan.shards[0], "DEL"), 1);
        eventually("it is there again", async || {
            let _ = client.acquire(&key).await.unwrap();
            client.limit_of(&key).await.unwrap() == new
        })
        .await;
    }
}

/// A key whose limit was set for all keys had come to its end while nobody used it, and began again with nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_came_to_its_end_is_as_new() {
    let cluster = Cluster::start(2, 0, Layout::Contiguous, &[]);
    let client = define(&cluster, 0, Shards::Off, "fixed-window 300/365days", 1);
    let hot = client.handle("hot").unwrap();
    assert!(hot.acquire().await.unwrap().is_allowed());
    let new = "fixed-window 30/365days".parse().unwrap();
    client.set_limit(new, Carry::Keep).await.unwrap();
    eventually("the key has it", async || {
        let _ = hot.acquire().await.unwrap();
        client.limit_of("hot").await.unwrap() == new
    })
    .await;
    let plan = client.plan("hot").await.unwrap();
    assert_eq!(crate::shared::on_master::<u8>(&cluster, &plan.shards[0], "DEL"), 1);
    assert_eq!(take_all(&client, "hot").await, 30);
}
