//! Masters fail over, die and hang: their calls end, the others go on, and nothing is charged twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::shared::{
    BURST, Cluster, Layout, PARTIAL, Server, client, client_of, define, eventually, left, lent, sums, take_all,
};
use shardlimit::{Candidates, Decision, Error, ErrorKind, NamedLimit, Selector};
use tokio::task::JoinSet;

/// Far more than the time-outs of a call and of its connection: what takes longer hangs.
const HANGS: Duration = Duration::from_secs(30);

/// Always the shard with this index.
struct Only(usize);

impl Selector for Only {
    fn select(&self, _: &Candidates<'_>) -> usize {
        self.0
    }
}

async fn ends(limit: &NamedLimit, key: &str) -> Result<Decision, Error> {
    tokio::time::timeout(HANGS, limit.acquire(key)).await.expect("a call never hangs")
}

/// What became of calls: allowed, denied, not sent, unknown.
#[derive(Debug, Default)]
struct Tally {
    allowed: u64,
    denied: u64,
    not_sent: u64,
    unknown: u64,
}

impl Tally {
    async fn add(&mut self, limit: &NamedLimit, key: &str) {
        match ends(limit, key).await {
            Ok(Decision::Allowed(_)) => self.allowed += 1,
            Ok(Decision::Denied(_)) => self.denied += 1,
            Err(error) if error.kind() == ErrorKind::NotSent => self.not_sent += 1,
            Err(error) if error.kind() == ErrorKind::Unknown => self.unknown += 1,
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// Runs are what a server was sent: while it is dead there are none, however many calls there are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_never_sent_is_no_run() {
    let mut server = Server::start(&[]);
    let hot = define(client(&server), "token-bucket 1000/day burst 1000").handle("hot").unwrap();
    let runs = || hot.counts().iter().map(|shard| shard.runs).sum::<u64>();
    for _ in 0..10 {
        assert!(hot.acquire().await.unwrap().is_allowed());
    }
    assert_eq!(runs(), 10);
    server.kill();
    for _ in 0..50 {
        let _ = tokio::time::timeout(HANGS, hot.acquire()).await.expect("a call never hangs");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // One may have left before it was known that nobody listens.
    assert!(runs() <= 11, "{}", runs());
}

/// By command nothing is lost: the replica has every write before it takes over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_go_on_through_a_failover() {
    const MANY: u64 = 3_000;
    let cluster = Cluster::start(3, 1, Layout::Contiguous, &[]);
    let text = "token-bucket 3000/day burst 3000";
    let clients = [0, 1].map(|node| define(client_of(&cluster, node), text));
    let plan = clients[0].plan("hot").await.unwrap();
    let masters: Vec<usize> = plan.shards.iter().map(|shard| cluster.owner_of(shard.slot.number())).collect();

    let over = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    for client in &clients {
        for _ in 0..3 {
            let (client, over) = (client.clone(), Arc::clone(&over));
            tasks.spawn(async move {
                let mut tally = Tally::default();
                while !over.load(Ordering::Relaxed) {
                    tally.add(&client, "hot").await;
                    tokio::time::sleep(Duration::from_millis(3)).await;
                }
                tally
            });
        }
    }
    tokio::task::block_in_place(|| {
        // Home's master, and one that holds a share.
        for master in &masters[..2] {
            cluster.fail_over_to(master + 3);
        }
    });
    over.store(true, Ordering::Relaxed);
    let tallies = tasks.join_all().await;
    let unknown: u64 = tallies.iter().map(|tally| tally.unknown).sum();
    let mut allowed: u64 = tallies.iter().map(|tally| tally.allowed).sum();
    allowed += take_all(&clients[0], "hot").await;
    assert!((MANY - unknown..=MANY).contains(&allowed), "{allowed} of {MANY}: {tallies:?}");
}

/// The share on a master that dies is out of reach; the rest of the limit is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_master_takes_only_its_share_along() {
    let mut cluster = Cluster::start(3, 0, Layout::Contiguous, &PARTIAL);
    let limit = define(client_of(&cluster, 0).timeout(Duration::from_secs(1)), crate::shared::SPLIT[0]);
    let plan = limit.plan("hot").await.unwrap();
    let victim = cluster.owner_of(lent(&plan)[0].slot.number());
    let mut tally = Tally::default();
    for _ in 0..30 {
        tally.add(&limit, "hot").await;
    }
    assert_eq!(tally.allowed, 30, "{tally:?}");

    cluster.nodes[victim].server.kill();
    for _ in 0..30 {
        tally.add(&limit, "hot").await;
    }
    assert!(tally.not_sent + tally.unknown <= 12, "one in three asks the dead one: {tally:?}");
    assert!(tally.allowed >= 48, "the others go on: {tally:?}");

    cluster.nodes[victim].server.restart();
    tokio::task::block_in_place(|| cluster.wait_until_ok());
    let mut sound = 0;
    // A shard that failed is tried again after a second: until then the others decide, and all seems well.
    while sound < 60 {
        let before = tally.not_sent + tally.unknown;
        tally.add(&limit, "hot").await;
        sound = if tally.not_sent + tally.unknown == before { sound + 1 } else { 0 };
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // It came back with nothing: its share is granted again, empty.
    let plan = limit.plan("hot").await.unwrap();
    assert_eq!((plan.shards.len(), sums(&plan).1), (3, BURST));
    let all = tally.allowed + take_all(&limit, "hot").await;
    assert!(all <= BURST && all + 100 + tally.unknown >= BURST, "{all} and {tally:?}");
}

/// Home is the record, not the door: while its master is away the other shards decide, for longer than a client goes
/// without home's word.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_home_takes_only_its_share_along() {
    let mut cluster = Cluster::start(3, 0, Layout::Contiguous, &PARTIAL);
    let limit = define(client_of(&cluster, 0).timeout(Duration::from_secs(1)), "token-bucket 3000/day burst 3000");
    let plan = limit.plan("hot").await.unwrap();
    assert!(limit.acquire("hot").await.unwrap().is_allowed());
    let home = cluster.owner_of(plan.shards[0].slot.number());
    cluster.nodes[home].server.kill();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let mut tally = Tally::default();
    for _ in 0..60 {
        tally.add(&limit, "hot").await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(tally.allowed >= 50, "what was surely not sent hops to a shard that is there: {tally:?}");
}

/// A denial stays a denial when the shard that the call would have hopped to can't be reached.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exhausted_limit_denies_also_with_a_dead_master() {
    let mut cluster = Cluster::start(3, 0, Layout::Contiguous, &PARTIAL);
    let limit = define(client_of(&cluster, 0).timeout(Duration::from_secs(1)), crate::shared::SPLIT[0]);
    let plan = limit.plan("hot").await.unwrap();
    take_all(&limit, "hot").await;
    let victim = cluster.owner_of(lent(&plan)[0].slot.number());
    cluster.nodes[victim].server.kill();
    // Its ceiling is not known any more.
    limit.reset("hot").await.unwrap_err();
    take_all_but_errors(&limit).await;
    let mut tally = Tally::default();
    for _ in 0..60 {
        tally.add(&limit, "hot").await;
    }
    assert!(
        tally.allowed == 0 && tally.denied >= 36,
        "only calls that begin at the dead one can end in an error: {tally:?}"
    );
}

async fn take_all_but_errors(limit: &NamedLimit) {
    let mut denied = 0;
    while denied < 20 {
        denied += u32::from(limit.acquire("hot").await.is_ok_and(|decision| !decision.is_allowed()));
    }
}

/// A master that hangs may still run what it was sent: each call is charged at most once, when it wakes up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_hangs_charges_nobody_twice() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &PARTIAL);
    for text in crate::shared::SPLIT {
        let builder = client_of(&cluster, 0).timeout(Duration::from_millis(300)).selector(Only(1));
        let limit = define(builder, text);
        let watcher = define(client_of(&cluster, 1), text);
        let plan = watcher.plan(text).await.unwrap();
        limit.plan(text).await.unwrap();
        let mut tally = Tally::default();
        for _ in 0..10 {
            tally.add(&limit, text).await;
        }
        assert_eq!(tally.allowed, 10, "{text}: {tally:?}");

        let sick = &cluster.nodes[cluster.owner_of(lent(&plan)[0].slot.number())].server;
        sick.pause();
        for _ in 0..2 {
            tally.add(&limit, text).await;
        }
        sick.resume();
        assert_eq!((tally.allowed, tally.unknown), (11, 1), "{text}: the second one goes elsewhere: {tally:?}");
        tokio::task::block_in_place(|| cluster.wait_until_ok());
        eventually("what was sent has run", async || left(&watcher, text).await == BURST - 12).await;
        eventually("calls are answered again", async || ends(&limit, text).await.is_ok()).await;
        let now = left(&watcher, text).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(left(&watcher, text).await, now, "{text}: nothing is sent again later");
    }
}

/// Permits that can't be given back because their master is dead wait for it, and do not keep this process busy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refunds_to_a_dead_master_wait_quietly() {
    let mut cluster = Cluster::start(3, 0, Layout::Contiguous, &PARTIAL);
    let limit = define(client_of(&cluster, 0).timeout(Duration::from_secs(1)), crate::shared::SPLIT[0]);
    let plan = limit.plan("hot").await.unwrap();
    let hot = limit.handle("hot").unwrap();
    // Asks that no two callers can have together are taken in part and given back, shard by shard in this order.
    let first = plan.shards.iter().map(|shard| shard.slot).min().unwrap();
    let victim = cluster.owner_of(first.number());
    let over = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    for _ in 0..24 {
        let (hot, over) = (hot.clone(), Arc::clone(&over));
        tasks.spawn(async move {
            while !over.load(Ordering::Relaxed) {
                if let Ok(Decision::Allowed(allowed)) = hot.acquire_n(180).await {
                    let _ = hot.refund(allowed.into_receipt()).await;
                }
            }
        });
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    cluster.nodes[victim].server.kill();
    tokio::time::sleep(Duration::from_millis(200)).await;
    over.store(true, Ordering::Relaxed);
    tasks.join_all().await;

    let runs = || hot.counts().iter().find(|shard| shard.slot == first).map_or(0, |shard| shard.runs);
    tokio::time::sleep(Duration::from_millis(200)).await;
    let before = runs();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(runs() - before < 20, "{} runs in vain while nobody asked for anything", runs() - before);
}

/// Permits come back on the live shards in time: a call that waits gets one, and learns of no error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_goes_on_beside_a_dead_master() {
    let mut cluster = Cluster::start(3, 0, Layout::Contiguous, &PARTIAL);
    let limit = define(client_of(&cluster, 0).timeout(Duration::from_secs(1)), "token-bucket 60/s burst 60");
    let plan = limit.plan("hot").await.unwrap();
    let victim = cluster.owner_of(lent(&plan)[0].slot.number());
    cluster.nodes[victim].server.kill();
    let mut unknown = 0;
    for _ in 0..80 {
        match limit.acquire_within("hot", 1, HANGS).await {
            Ok(decision) => assert!(decision.is_allowed()),
            Err(error) if error.kind() == ErrorKind::Unknown => unknown += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(unknown <= 2, "only what was out when the master died: {unknown}");
}
