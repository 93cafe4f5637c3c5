//! Shares that were lent get lost, and clients die half way: the limit is smaller for a while, never larger.

use std::time::{Duration, Instant};

use crate::shared::cluster::is_ring;
use crate::shared::{BURST, Cluster, Layout, client_of, define, eventually, lent, on_master, race, sums, take_all};
use redis::cmd;
use shardlimit::{ErrorKind, NamedLimit, Plan, Shards, Slot};

/// A share that is gone is granted again with nothing in it: nobody knows how much of it was used.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_share_that_is_wiped_comes_back_empty() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    for text in crate::shared::SPLIT {
        let clients = [0, 1].map(|node| define(client_of(&cluster, node), text));
        let before = clients[0].plan(text).await.unwrap();
        let mut taken = 0;
        for _ in 0..60 {
            taken += u64::from(clients[0].acquire(text).await.unwrap().is_allowed());
        }
        let wiped = &lent(&before)[0];
        assert_eq!(on_master::<u8>(&cluster, wiped, "DEL"), 1);
        let counts = clients[0].handle(text).unwrap().counts();
        let used = counts.iter().find(|shard| shard.slot == wiped.slot).map_or(0, |shard| shard.allowed);
        taken += race(&clients, text, 3).await;
        // Of its 100, what was not used is lost with it.
        assert_eq!(taken, BURST - (100 - used), "{text}");
        // The counts of a shard go on where they were before it was lost.
        let counts = clients.iter().flat_map(|client| client.handle(text).unwrap().counts());
        assert_eq!(counts.map(|shard| shard.allowed).sum::<u64>(), taken, "{text}");
        let after = clients[1].plan(text).await.unwrap();
        assert_eq!((after.shards.len(), sums(&after)), (3, (BURST, BURST)));
        let again = after.shards.iter().find(|shard| shard.slot == lent(&before)[0].slot).expect("the same slot");
        assert_ne!(again.grant, lent(&before)[0].grant);
        assert_eq!(on_master::<u8>(&cluster, again, "EXISTS"), 1);
    }
}

/// All that was lent is wiped at once, again and again, under callers who see no error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wiping_shares_under_load_admits_nobody_twice() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    for text in crate::shared::SPLIT {
        let clients = [0, 1].map(|node| define(client_of(&cluster, node), text));
        let plan = clients[0].plan(text).await.unwrap();
        let callers = {
            let clients = clients.clone();
            tokio::spawn(async move { race(&clients, text, 3).await })
        };
        for _ in 0..5 {
            for shard in lent(&plan) {
                tokio::task::block_in_place(|| on_master::<u8>(&cluster, shard, "DEL"));
            }
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
        let taken = callers.await.unwrap() + race(&clients, text, 1).await;
        // Of what home had left it hands out parts again, and those are wiped again: how much is lost depends on who is first.
        assert!((1..=BURST).contains(&taken), "{text}: {taken}");
        let plan = clients[0].plan(text).await.unwrap();
        assert_eq!((plan.shards.len(), sums(&plan).1), (3, BURST));
    }
}

/// The record itself is wiped: whoever knows of it makes it again, with nothing in it, before anything is spent there. What
/// was lent stays lent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_home_that_is_wiped_is_made_again() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    for text in crate::shared::SPLIT {
        let clients = [0, 1].map(|node| define(client_of(&cluster, node), text));
        let before = clients[0].plan(text).await.unwrap();
        let mut taken = 0;
        for _ in 0..30 {
            taken += u64::from(clients[1].acquire(text).await.unwrap().is_allowed());
        }
        assert_eq!(on_master::<u8>(&cluster, &before.shards[0], "DEL"), 1);
        taken += race(&clients, text, 3).await;
        // 100 of its 300 were home's, and some of those were used.
        assert!((200..=BURST).contains(&taken), "{text}: {taken}");

        let plans = [clients[0].plan(text).await.unwrap(), clients[1].plan(text).await.unwrap()];
        assert_eq!(format!("{:?}", plans[0].shards), format!("{:?}", plans[1].shards));
        assert_eq!((plans[0].shards.len(), sums(&plans[0]).1), (3, BURST));
        assert_eq!(plans[0].shards[1].grant, before.shards[1].grant);
        clients[0].reset(text).await.unwrap();
        assert_eq!(race(&clients, text, 3).await, BURST, "{text}: exact again");
    }
}

/// A client that may grant at home but may not install elsewhere stops half way, as one that dies there does.
struct HalfWay {
    cluster: Cluster,
}

impl HalfWay {
    /// For keys whose home is where `api:hot` has its own.
    fn start() -> Self {
        let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
        let _ = client_of(&cluster, 0);
        let home = cluster.owner_of(Slot::of(b"api:hot").number());
        for (index, node) in cluster.nodes.iter().enumerate() {
            let mut user = cmd("ACL");
            user.arg("SETUSER").arg("half").arg("on").arg(">secret").arg("~*").arg("+@all");
            if index != home {
                user.arg("-eval").arg("-evalsha");
            }
            node.ask::<()>(&user);
        }
        Self { cluster }
    }

    /// Grants shares of `hot` and leaves them there. They may be installed for twice the time-out, or a second.
    async fn stop_half_way(&self, text: &str, prefix: &str, timeout: Duration) {
        let urls = self.cluster.nodes.iter().map(|node| format!("redis://half:secret@127.0.0.1:{}", node.server.port));
        let builder = client_of(&self.cluster, 0);
        let builder = if is_ring() { builder.ring(urls) } else { builder.redis(urls) };
        let limit = define(builder.prefix(prefix).timeout(timeout), text);
        let error = limit.plan("hot").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
        assert!(error.to_string().contains("NOPERM"), "{error}");
    }

    /// A client that knows nothing of the key, with its connections open.
    async fn ready(&self, text: &str, prefix: &str) -> NamedLimit {
        let limit = define(client_of(&self.cluster, 1).prefix(prefix), text);
        limit.plan("other").await.unwrap();
        limit
    }

    fn check(&self, plan: &Plan) {
        assert_eq!((plan.shards.len(), sums(plan)), (3, (BURST, BURST)));
        assert!(plan.shards.iter().all(|shard| on_master::<u8>(&self.cluster, shard, "EXISTS") == 1));
    }
}

/// The next client finishes what it finds begun, with the permits that were on their way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_left_half_done_is_finished_by_the_next_client() {
    let half_way = HalfWay::start();
    for (number, text) in crate::shared::SPLIT.into_iter().enumerate() {
        let prefix = format!("p{number}");
        let next = half_way.ready(text, &prefix).await;
        half_way.stop_half_way(text, &prefix, Duration::from_secs(10)).await;
        half_way.check(&next.plan("hot").await.unwrap());
        assert_eq!(take_all(&next, "hot").await, BURST, "{text}");
    }
}

/// A share that is not live is not used: one that never was comes home with what it was given, and goes out again with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shares_that_come_too_late_come_home_whole() {
    let half_way = HalfWay::start();
    for (number, text) in crate::shared::SPLIT.into_iter().enumerate() {
        let prefix = format!("p{number}");
        // Whoever may not write everywhere can't begin a ring.
        drop(half_way.ready(text, &prefix).await);
        half_way.stop_half_way(text, &prefix, Duration::from_millis(500)).await;
    }
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    for (number, text) in crate::shared::SPLIT.into_iter().enumerate() {
        let next = half_way.ready(text, &format!("p{number}")).await;
        half_way.check(&next.plan("hot").await.unwrap());
        assert_eq!(take_all(&next, "hot").await, BURST, "{text}");
    }
}

/// Nobody asks for the plan, callers just call: the first of them sees to it that the shares arrive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_alone_finish_a_plan() {
    let half_way = HalfWay::start();
    let next = half_way.ready(crate::shared::SPLIT[0], "p").await;
    half_way.stop_half_way(crate::shared::SPLIT[0], "p", Duration::from_secs(10)).await;
    let hot = next.handle("hot").unwrap();
    eventually("all three shards are in use", async || {
        let _ = hot.acquire().await.unwrap();
        hot.counts().iter().filter(|shard| shard.runs > 0).count() == 3
    })
    .await;
    half_way.check(&next.plan("hot").await.unwrap());
}

/// Home is lost and made anew by another client. One that was idle meanwhile asks home before it spends shares that have
/// refilled: what was there twice is one burst, not two.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_client_asks_home_before_it_spends() {
    async fn take_by_hundreds(limit: &NamedLimit) -> u64 {
        let mut taken = 0;
        for _ in 0..30 {
            taken += 100 * u64::from(limit.acquire_n("hot", 100).await.unwrap().is_allowed());
        }
        taken
    }
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    let text = "token-bucket 450/s burst 1500";
    let idle = define(client_of(&cluster, 0), text);
    let other = define(client_of(&cluster, 1).shards(Shards::Off), text);
    let plan = idle.plan("hot").await.unwrap();
    let begun = Instant::now();
    let mut taken = take_by_hundreds(&idle).await;
    assert_eq!(on_master::<u8>(&cluster, &plan.shards[0], "DEL"), 1);
    taken += take_by_hundreds(&other).await;
    tokio::time::sleep(Duration::from_millis(4_500)).await;
    taken += take_by_hundreds(&idle).await + take_by_hundreds(&other).await;
    let most = 2.0 * 1_500.0 + 450.0 * begun.elapsed().as_secs_f64();
    assert!(taken as f64 <= most, "{taken} of {most}: the formula and one burst");
}
