//! Several limits of one key as one: all of them give, or none does.

use std::time::Duration;

use crate::shared::{Cluster, Layout, Server, client, client_of, define, eventually, exactly, left, race, take};
use redis::cmd;
use shardlimit::{Carry, DecidedBy, Decision, Denied, FakeClock, Limit, Limiter, NamedLimit, Plan, Shards};

/// Nothing of it comes back while a test runs. The second and the third part are the ones that run out.
const THREE: &str = "token-bucket 900/day burst 200 + sliding-window 100/200day + fixed-window 60/365day";

async fn denied(limit: &NamedLimit, key: &str, permits: u64) -> Denied {
    match limit.acquire_n(key, permits).await.unwrap() {
        Decision::Denied(denied) => denied,
        Decision::Allowed(allowed) => panic!("allowed: {allowed:?}"),
    }
}

/// The same key under each part alone, by a definition that resets nothing: what that part has left.
async fn left_of_parts(server: &Server, key: &str) -> Vec<i64> {
    let raw: Vec<u8> = cmd("GET").arg(key).query(&mut server.connection()).unwrap();
    // Kernel 4, then the number of parts; of each its kernel and its numbers, as lua/README.md has it.
    let mut at = 39;
    assert_eq!((raw[1], raw[at]), (4, 3));
    at += 1;
    let number = |at: usize| i64::from_le_bytes(raw[at..at + 8].try_into().unwrap());
    let mut left = Vec::new();
    for _ in 0..3 {
        let (kernel, body) = (raw[at], at + 1);
        let (has, size) = match kernel {
            1 => (number(body + 25) / number(body + 8), 41),
            2 => (number(body) - number(body + 24), 32),
            _ => {
                let count = u32::from_le_bytes(raw[body + 40..body + 44].try_into().unwrap());
                (number(body) - number(body + 32), 44 + 16 * count as usize)
            }
        };
        left.push(has);
        at = body + size;
    }
    left
}

async fn until_planned(limit: &NamedLimit, key: &str, what: &str, is: impl Fn(&Plan) -> bool) -> Plan {
    let mut found = None;
    eventually(what, async || {
        found = Some(limit.plan(key).await.unwrap()).filter(&is);
        found.is_some()
    })
    .await;
    found.expect("it was found")
}

fn only_key(server: &Server) -> String {
    let keys: Vec<String> = cmd("KEYS").arg("*{*").query(&mut server.connection()).unwrap();
    assert_eq!(keys.len(), 1, "one record for all parts: {keys:?}");
    keys[0].clone()
}

/// Where the third part denies, the first two have what they had, to the last unit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_that_denies_costs_the_others_nothing() {
    let server = Server::start(&[]);
    let limit = define(client(&server), THREE);
    drop(take(&limit, "k", 55).await);
    let key = only_key(&server);
    assert_eq!(left_of_parts(&server, &key).await, [145, 45, 5]);
    let bytes = |key: &str| cmd("GET").arg(key).query::<Vec<u8>>(&mut server.connection()).unwrap();
    let before = bytes(&key);
    for permits in [6, 30, 45] {
        let denied = denied(&limit, "k", permits).await;
        assert_eq!(denied.part(), Some(2), "{permits}");
        assert!(denied.retry_after() > Duration::from_secs(60));
    }
    assert_eq!(bytes(&key), before, "not a byte is another");
    assert_eq!(left(&limit, "k").await, 5);
    drop(take(&limit, "k", 5).await);
    assert_eq!(left_of_parts(&server, &key).await, [140, 40, 0]);
}

/// A call is one run of one script, however many parts there are; calls at once share runs as ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decision_is_one_run() {
    let server = Server::start(&[]);
    let limit = define(client(&server).ceiling(Duration::ZERO), THREE);
    let runs = || {
        let stats: String = cmd("INFO").arg("commandstats").query(&mut server.connection()).unwrap();
        let line = stats
            .lines()
            .find(|line| line.starts_with("cmdstat_evalsha:"))
            .unwrap_or("cmdstat_evalsha:calls=0,")
            .to_owned();
        line["cmdstat_evalsha:calls=".len()..].split(',').next().unwrap().parse::<u64>().unwrap()
    };
    drop(take(&limit, "k", 1).await);
    let before = runs();
    for _ in 0..70 {
        drop(limit.acquire("k").await.unwrap());
    }
    // The limit's own record is looked at once a second as well.
    let runs = runs() - before;
    assert!((70..=72).contains(&runs), "{runs}");
}

/// Clients at once take the smallest part and no more, on one master, whatever number of shards they want.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_share_it_on_one_master() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    for shards in [Shards::PerMaster, exactly(3), Shards::Auto] {
        let key = shards.to_string();
        let clients = [0, 1, 2].map(|node| define(client_of(&cluster, node).shards(shards), THREE));
        assert_eq!(race(&clients, &key, 3).await, 60, "{key}");
        let plan = clients[0].plan(&key).await.unwrap();
        assert_eq!((plan.shards.len(), plan.limit.to_string()), (1, THREE.to_owned()));
        // Once it was said, it is known without asking, as long as the key is in use; and which part it was.
        let _in_use = clients[0].handle(&key).unwrap();
        assert_eq!(denied(&clients[0], &key, 1).await.part(), Some(2));
        let denied = denied(&clients[0], &key, 1).await;
        assert_eq!((denied.decided_by(), denied.part()), (DecidedBy::Ceiling, Some(2)));
    }
}

/// What comes back comes back to every part.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refund_and_a_settlement_reach_every_part() {
    let server = Server::start(&[]);
    let limit = define(client(&server), THREE);
    let receipt = take(&limit, "k", 50).await.into_receipt();
    let key = only_key(&server);
    limit.refund("k", receipt).await.unwrap();
    assert_eq!(left_of_parts(&server, &key).await, [200, 100, 60]);
    let receipt = take(&limit, "k", 10).await.into_receipt();
    limit.settle("k", receipt, 70).await.unwrap();
    assert_eq!(left_of_parts(&server, &key).await, [130, 30, -10]);
    assert_eq!(left(&limit, "k").await, 0);
    limit.reset("k").await.unwrap();
    assert_eq!(left(&limit, "k").await, 60);
}

/// A split limit becomes composite and back while it is in use: nothing is admitted beside it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_becomes_composite_and_back() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    let split = "token-bucket 300/day burst 300";
    let clients = [0, 1].map(|node| define(client_of(&cluster, node), split));
    assert_eq!(clients[0].plan("k").await.unwrap().shards.len(), 3);
    for client in &clients {
        drop(take(client, "k", 10).await);
    }
    let three: Limit = THREE.parse().unwrap();
    clients[0].set_limit_of("k", three, Carry::Keep).await.unwrap();
    let plan = until_planned(&clients[1], "k", "it is composite", |plan| plan.limit == three).await;
    assert_eq!(plan.shards.len(), 1);
    assert_eq!(race(&clients, "k", 2).await, 0, "nobody knows what each part would have had left");
    clients[0].reset("k").await.unwrap();
    assert_eq!(race(&clients, "k", 2).await, 60);

    // Larger numbers of the same parts: what was used stays used.
    let more: Limit =
        "token-bucket 900/day burst 200 + sliding-window 100/200days + fixed-window 80/365days".parse().unwrap();
    clients[1].set_limit_of("k", more, Carry::Keep).await.unwrap();
    until_planned(&clients[0], "k", "it has more", |plan| plan.limit == more).await;
    assert_eq!(race(&clients, "k", 2).await, 20);

    let back: Limit = split.parse().unwrap();
    clients[1].set_limit_of("k", back, Carry::Reset).await.unwrap();
    until_planned(&clients[0], "k", "it is split again", |plan| plan.limit == back && plan.shards.len() == 3).await;
    assert_eq!(race(&clients, "k", 2).await, 300);
}

/// Who waits is served when the slowest part has it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_is_served_by_the_slowest_part() {
    let server = Server::start(&[]);
    let text = "token-bucket 1000/s burst 50 + sliding-window 20/400ms + fixed-window 100000/day";
    for limit in [define(client(&server), text), Limiter::local().define("api", text.parse().unwrap()).unwrap()] {
        drop(take(&limit, "k", 20).await);
        assert_eq!(denied(&limit, "k", 1).await.part(), Some(0), "that of the shortest period comes first");
        let waited = limit.acquire_within("k", 15, Duration::from_secs(20)).await.unwrap();
        assert!(waited.is_allowed());
        assert!(!limit.acquire_n("k", 6).await.unwrap().is_allowed());
    }
}

/// On the embedded store, by a clock of its own: each part comes back in its own time.
#[tokio::test]
async fn each_part_comes_back_in_its_own_time() {
    let clock = FakeClock::new();
    let limiter = Limiter::builder().clock(&clock).build().unwrap();
    let limit = limiter.define("api", "token-bucket 10/s burst 10 + fixed-window 15/min".parse().unwrap()).unwrap();
    drop(take(&limit, "k", 10).await);
    assert_eq!(
        (denied(&limit, "k", 3).await.part(), denied(&limit, "k", 3).await.retry_after()),
        (Some(0), Duration::from_millis(300))
    );
    clock.advance(Duration::from_millis(300));
    drop(take(&limit, "k", 3).await);
    let denied = denied(&limit, "k", 3).await;
    assert_eq!(denied.part(), Some(1), "two are left of the minute");
    clock.advance(denied.retry_after());
    assert_eq!(left(&limit, "k").await, 10);
    drop(take(&limit, "k", 10).await);
}
