//! How much a process holds: a horizon of its own use, and a part of each share.

use std::time::{Duration, Instant};

use crate::shared::{Cluster, Layout, PARTIAL, Server, client, client_of, define, eventually, left, url};
use shardlimit::{BreakerForce, DecidedBy, Decision, FailurePolicy, Handle, Leases, NamedLimit};

const MOMENT: Duration = Duration::from_millis(1);

/// Nothing comes back by itself while a test runs.
const TEXT: &str = "token-bucket 3000/day burst 3000";
const BURST: u64 = 3_000;

/// So many calls, one after the other with such a pause, until so many were admitted by shards or leases. Says after each how much
/// a process holds, by what somebody else finds that is left.
async fn call(hot: &Handle, calls: u64, pause: Duration, mut judge: impl AsyncFnMut(u64)) -> u64 {
    let mut admitted = 0;
    while admitted < calls {
        if let Decision::Allowed(allowed) = hot.acquire().await.unwrap() {
            assert!([DecidedBy::Store, DecidedBy::Lease].contains(&allowed.decided_by()), "{allowed:?}");
            admitted += 1;
            judge(admitted).await;
        }
        tokio::time::sleep(pause).await;
    }
    admitted
}

async fn held(watcher: &NamedLimit, admitted: u64) -> u64 {
    BURST - admitted - left(watcher, "hot").await
}

/// It falls with use, and when the key falls quiet nothing is held.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_holds_a_horizon_of_its_use() {
    const HORIZON: u64 = 200;
    let server = Server::start(&[]);
    let watcher = define(client(&server), TEXT);
    let leases = Leases::new().horizon(Duration::from_millis(HORIZON)).ttl(Duration::from_millis(600));
    let limiter = client(&server).build().unwrap();
    let hot = limiter.define_leased("api", TEXT.parse().unwrap(), leases).unwrap().handle("hot").unwrap();
    let (mut before, mut peaks) = (0, [0; 2]);
    // The pause is the least that is between two calls, so it can't be more than this.
    for (peak, (calls, pause)) in peaks.iter_mut().zip([(400, 2), (100, 20)]) {
        let most = HORIZON / pause;
        before += call(&hot, calls, Duration::from_millis(pause), async |admitted| {
            // What was taken for more use is held until it is spent or expires, and the use that is known falls by half with each refill:
            // on a busy machine what is held was as little as this after some 70 calls.
            if admitted % 5 == 0 && (pause == 2 || admitted * pause > 1_500) {
                let held = held(&watcher, before + admitted).await;
                *peak = held.max(*peak);
                assert!(held <= most + 1, "{held} held, {most} are the most at a call each {pause} ms");
            }
        })
        .await;
    }
    println!("{peaks:?} held at the most");
    assert!(peaks[0] > 40 && peaks[1] > 0, "{peaks:?}: this tests nothing");
    eventually("a key that fell quiet holds nothing", async || held(&watcher, before).await == 0).await;
}

/// Two of three shards are out of reach, and use would have far more taken of the third: others find most of its share.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_only_shard_that_answers_keeps_most_of_its_share() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &PARTIAL);
    let watcher = define(client_of(&cluster, 0), TEXT);
    let plan = watcher.plan("hot").await.unwrap();
    let limiter = client_of(&cluster, 0).on_failure(FailurePolicy::Closed).build().unwrap();
    // Held for so long that nothing comes back.
    let leases = Leases::new().horizon(Duration::from_secs(5)).ttl(Duration::from_secs(10));
    let limit = limiter.define_leased("api", TEXT.parse().unwrap(), leases).unwrap();
    limit.plan("hot").await.unwrap();
    limiter.ready(Duration::from_secs(10)).await.unwrap();
    for shard in &plan.shards[1..] {
        let master = &cluster.nodes[cluster.owner_of(shard.slot.number())].server;
        limiter.force_breaker(url(master).trim_start_matches("redis://"), BreakerForce::Open).unwrap();
    }
    let hot = limit.handle("hot").unwrap();
    let mut most = 0;
    let admitted = call(&hot, 740, MOMENT, async |admitted| {
        if admitted % 20 == 0 {
            most = held(&watcher, admitted).await.max(most);
        }
    })
    .await;
    let share = plan.shards[0].burst;
    let runs: u64 = hot.counts().iter().map(|shard| shard.runs).sum();
    println!("{most} of a share of {share} held, {admitted} admitted by {runs} runs");
    assert!(most <= share / 4, "{most} held of a share of {share}");
    assert!(most > share / 5, "{most} held of a share of {share}: this tests nothing");
    // Filled when half is spent of what it can hold.
    assert!(runs < 30, "{runs} runs for {admitted} permits");
}

/// What a purse holds by then is of another time: it is given back, and does not keep new ones out until somebody looks through it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_expired_makes_room_for_what_is_of_use() {
    // Purses are looked through each half of it, from the first lease on.
    const TTL: Duration = Duration::from_secs(4);
    let server = Server::start(&[]);
    let limiter = client(&server).build().unwrap();
    let leases = Leases::new().horizon(Duration::from_millis(500)).ttl(TTL);
    let hot = limiter.define_leased("api", TEXT.parse().unwrap(), leases).unwrap().handle("hot").unwrap();
    call(&hot, 5, MOMENT, async |_| {}).await;
    let begun = Instant::now();
    tokio::time::sleep(TTL / 4).await;
    // Of this much is held, and it expires halfway between two looks.
    call(&hot, 400, MOMENT, async |_| {}).await;
    let mut asked = 0;
    while begun.elapsed() < TTL * 3 / 2 {
        let decision = hot.acquire().await.unwrap();
        let Decision::Allowed(allowed) = decision else { panic!("{decision:?}") };
        asked += u64::from(allowed.decided_by() == DecidedBy::Store && begun.elapsed() > TTL * 5 / 4);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    println!("{asked} calls asked the server");
    assert!(asked <= 3, "{asked} calls asked the server: they found nothing of use in the purse");
}
