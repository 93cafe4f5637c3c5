//! Shards that do not answer: calls end by their deadline, are decided by the policy, and charged once.

use std::time::{Duration, Instant};

use crate::shared::{BURST, Cluster, Layout, Server, client, client_of, eventually, left, lent};
use shardlimit::{
    BreakerForce, BreakerState, Builder, Candidates, DecidedBy, Decision, ErrorKind, FailurePolicy, Limiter,
    NamedLimit, Selector, Shards,
};
use tokio::task::JoinSet;

const PARTIAL: [&str; 2] = ["--cluster-require-full-coverage", "no"];
const LIMIT: &str = "token-bucket 300/day burst 300";
/// Far more than any deadline here, and far less than a request may take: what takes longer hangs.
const HANGS: Duration = Duration::from_secs(30);
const MINUTES: Duration = Duration::from_secs(600);

/// Always the shard with this index.
struct Only(usize);

impl Selector for Only {
    fn select(&self, _: &Candidates<'_>) -> usize {
        self.0
    }
}

fn limiter(builder: Builder) -> (Limiter, NamedLimit) {
    let limiter = builder.build().unwrap();
    let limit = limiter.define("api", LIMIT.parse().unwrap()).unwrap();
    (limiter, limit)
}

/// One server, no splitting, requests that may take for ever, and a deadline.
fn on(server: &Server, deadline: u64) -> Builder {
    client(server).shards(Shards::Off).timeout(MINUTES).deadline(Duration::from_millis(deadline))
}

async fn ends(call: impl Future<Output = Result<Decision, shardlimit::Error>>) -> Result<Decision, shardlimit::Error> {
    tokio::time::timeout(HANGS, call).await.expect("it ends by its deadline")
}

/// A server that hangs: its calls end by their deadline, whatever the request takes; what it grants later goes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_ends_by_its_deadline_and_gives_back_what_comes_later() {
    let server = Server::start(&[]);
    let (_, limit) = limiter(on(&server, 100));
    assert!(limit.acquire("hot").await.unwrap().is_allowed());
    server.pause();
    let error = ends(limit.acquire_n("hot", 50)).await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::Unknown, "deadline"), "{error}");
    // It is known to be sick now: nobody waits for it, and nothing more is sent.
    for _ in 0..10 {
        let error = ends(limit.acquire("hot")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotSent, "{error}");
    }
    assert_eq!(limit.failures().late, 1);
    server.resume();
    let (_, other) = limiter(client(&server).shards(Shards::Off));
    eventually("what was granted too late is back", async || left(&other, "hot").await == BURST - 1).await;
    eventually("it is asked again", async || limit.acquire("hot").await.is_ok()).await;
}

/// Calls that wait behind a round that hangs have deadlines too, each its own, on any runtime.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_behind_others_keeps_the_own_deadline() {
    let server = Server::start(&[]);
    let (_, limit) = limiter(on(&server, 200_000));
    assert!(limit.acquire("hot").await.unwrap().is_allowed());
    server.pause();
    let first = tokio::spawn({
        let limit = limit.clone();
        async move { limit.acquire("hot").await }
    });
    let behind = limit.deadline(Duration::from_millis(150));
    tokio::time::sleep(Duration::from_millis(50)).await;
    let error = ends(behind.acquire("hot")).await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::NotSent, "deadline"), "it was never sent: {error}");
    // A caller without a runtime has no timer, and needs none.
    let error = tokio::task::block_in_place(|| pollster::block_on(behind.acquire("hot"))).unwrap_err();
    assert_eq!(error.field(), "deadline", "{error}");
    assert!(!first.is_finished(), "the first one has all the time in the world");
    server.resume();
    assert!(ends(async { first.await.unwrap() }).await.unwrap().is_allowed());
    let (_, other) = limiter(client(&server).shards(Shards::Off));
    assert_eq!(left(&other, "hot").await, BURST - 2, "those that were not sent cost nothing");
}

/// While one of three masters hangs the others decide, and nobody waits for it: neither calls nor their selector notice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_three_that_hangs_takes_a_third_along() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &PARTIAL);
    let builder = client_of(&cluster, 0).timeout(MINUTES).deadline(Duration::from_millis(100));
    let (limiter, limit) = limiter(builder.on_failure(FailurePolicy::Closed).selector(Only(1)));
    let plan = limit.plan("hot").await.unwrap();
    let victim = &cluster.nodes[cluster.owner_of(lent(&plan)[0].slot.number())].server;
    assert!(limit.acquire("hot").await.unwrap().is_allowed());
    victim.pause();
    let first = ends(limit.acquire("hot")).await.unwrap();
    assert_eq!((first.is_allowed(), first.decided_by()), (false, DecidedBy::Fallback));
    // What the others have is there for all.
    for _ in 0..200 {
        let decision = ends(limit.acquire("hot")).await.unwrap();
        assert_eq!((decision.is_allowed(), decision.decided_by()), (true, DecidedBy::Store));
    }
    let denied = ends(limit.acquire("hot")).await.unwrap();
    assert!(!denied.is_allowed() && denied.decided_by() == DecidedBy::Fallback, "{denied:?}");
    let address = format!("127.0.0.1:{}", victim.port);
    let state = || limiter.breakers().into_iter().find(|(master, _)| *master == address).expect("a master").1;
    assert_ne!(state(), BreakerState::Closed);
    victim.resume();
    tokio::task::block_in_place(|| cluster.wait_until_ok());
    let mut allowed = 0;
    eventually("its share is there again", async || {
        allowed += u64::from(ends(limit.acquire("hot")).await.unwrap().is_allowed());
        allowed == 99
    })
    .await;
    eventually("its breaker is closed", async || {
        let _ = limit.peek("hot").await;
        state() == BreakerState::Closed
    })
    .await;
    assert_eq!(left(&limit, "hot").await, 0, "one was charged before, and none of those that were denied");
}

/// What was admitted without a shard is charged to it first when it is back, and only once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_admitted_without_a_shard_is_charged_to_it() {
    let server = Server::start(&[]);
    for _ in 0..3 {
        let (_, limit) = limiter(on(&server, 100).on_failure(FailurePolicy::Open));
        limit.reset("hot").await.unwrap();
        assert!(limit.acquire("hot").await.unwrap().is_allowed());
        server.pause();
        for _ in 0..100 {
            let decision = ends(limit.acquire("hot")).await.unwrap();
            assert_eq!((decision.is_allowed(), decision.decided_by()), (true, DecidedBy::Fallback));
        }
        assert_eq!((limit.failures().allowed, limit.failures().late), (100, 1));
        server.resume();
        let (_, other) = limiter(client(&server).shards(Shards::Off));
        let mut more = 0;
        eventually("all of them are charged", async || {
            let decision = limit.acquire("hot").await.unwrap();
            more += u64::from(decision.decided_by() == DecidedBy::Store);
            more += u64::from(decision.decided_by() == DecidedBy::Fallback);
            more > 3 && left(&other, "hot").await == BURST - 101 - more
        })
        .await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(left(&other, "hot").await, BURST - 101 - more, "and not again");
    }
}

/// Alone it goes on at half of what it was granted, and never above half of the share.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_goes_on_at_half_of_what_it_was_granted() {
    let mut server = Server::start(&[]);
    let limiter = on(&server, 1_000).on_failure(FailurePolicy::default()).build().unwrap();
    let limit = limiter.define("api", "token-bucket 1000/s burst 100".parse().unwrap()).unwrap();
    let hot = limit.handle("hot").unwrap();
    let strange = limit.handle("never used before").unwrap();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(3) {
        let _ = hot.acquire().await.unwrap();
        tokio::time::sleep(Duration::from_micros(300)).await;
    }
    server.kill();
    let killed = Instant::now();
    let mut admitted = 0;
    while killed.elapsed() < Duration::from_secs(2) {
        let decision = ends(hot.acquire()).await.unwrap();
        admitted += u64::from(decision.is_allowed() && decision.decided_by() == DecidedBy::Fallback);
        assert!(!ends(strange.acquire()).await.unwrap().is_allowed(), "it has no history to go by");
        tokio::time::sleep(Duration::from_micros(300)).await;
    }
    // Half of 1,000 a second, and what the local bucket holds at the most.
    let most = (killed.elapsed().as_secs_f64() * 500.0) as u64 + 51;
    assert!(admitted > 100 && admitted <= most, "{admitted}, at the most {most}");
    server.restart();
    eventually("the store decides again", async || hot.acquire().await.unwrap().decided_by() == DecidedBy::Store).await;
}

/// Without any master decisions go on in process, also for those who can't wait, and come back to the store by themselves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_any_master_the_policy_decides() {
    let mut cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    let (limiter, limit) = limiter(client_of(&cluster, 0).deadline(Duration::from_secs(2)));
    limit.plan("hot").await.unwrap();
    let hot = limit.handle("hot").unwrap();
    assert!(hot.acquire().await.unwrap().is_allowed());
    cluster.nodes.iter_mut().for_each(|node| node.server.kill());
    let kind = |error: shardlimit::Error| error.kind();
    eventually("all are known to be away", async || {
        let _ = ends(hot.acquire()).await;
        hot.try_acquire(1).is_err()
    })
    .await;
    let policies = [
        (FailurePolicy::Open, Ok(true)),
        (FailurePolicy::Closed, Ok(false)),
        (FailurePolicy::Error, Err(ErrorKind::NotSent)),
    ];
    for (policy, expected) in policies {
        limiter.set_failure_policy(policy).unwrap();
        let runs: u64 = hot.counts().iter().map(|shard| shard.runs).sum();
        for _ in 0..10_000 {
            let decided = ends(hot.acquire()).await;
            assert_eq!(decided.map(|decision| decision.is_allowed()).map_err(kind), expected, "{policy}");
            let at_once = hot.try_acquire(1).map_err(kind);
            assert_eq!(at_once.map(|decision| decision.expect("the policy knows").is_allowed()), expected, "{policy}");
        }
        let tries = hot.counts().iter().map(|shard| shard.runs).sum::<u64>() - runs;
        assert!(tries < 1_000, "{tries} requests for 20,000 calls");
    }
    // A limit may have a policy of its own.
    limit.set_failure_policy(Some(FailurePolicy::Open)).unwrap();
    assert!(ends(hot.acquire()).await.unwrap().is_allowed());
    limit.set_failure_policy(None).unwrap();
    cluster.nodes.iter_mut().for_each(|node| node.server.restart());
    tokio::task::block_in_place(|| cluster.wait_until_ok());
    eventually("the store decides again", async || {
        hot.acquire().await.is_ok_and(|decision| decision.decided_by() == DecidedBy::Store)
    })
    .await;
}

/// Who was denied beside shards that answer was told to wait until the sick one is tried again, though the others had permits before that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_denied_beside_a_sick_shard_learns_of_the_others() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &PARTIAL);
    let builder = client_of(&cluster, 0).timeout(MINUTES).deadline(Duration::from_millis(100));
    let limiter = builder.on_failure(FailurePolicy::Closed).build().unwrap();
    let limit = limiter.define("api", "token-bucket 300/s burst 90".parse().unwrap()).unwrap();
    let plan = limit.plan("hot").await.unwrap();
    let victim = &cluster.nodes[cluster.owner_of(lent(&plan)[0].slot.number())].server;
    victim.pause();
    let (mut waits, mut allowed) = (Vec::new(), 0);
    while waits.len() < 1_000 || allowed < 100 {
        match ends(limit.acquire("hot")).await.unwrap() {
            Decision::Denied(denied) if denied.decided_by() == DecidedBy::Fallback => waits.push(denied.retry_after()),
            Decision::Allowed(_) => allowed += 1,
            Decision::Denied(_) => {}
        }
    }
    // A permit of 100 a second, and a little so that not all come at once. The first try of one that is sick comes later.
    let longest = waits.iter().max().unwrap();
    assert!(*longest <= Duration::from_millis(12), "{longest:?}");
    assert!(waits.iter().all(|wait| !wait.is_zero()));
    victim.resume();
}

/// An operator takes a master out, and puts it back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_breaker_can_be_forced() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    let (limiter, limit) = limiter(client_of(&cluster, 0).on_failure(FailurePolicy::Closed));
    limit.plan("hot").await.unwrap();
    let states = || limiter.breakers().into_iter().map(|(_, state)| state).collect::<Vec<_>>();
    assert_eq!(states(), [BreakerState::Closed; 3]);
    let victim = limiter.breakers()[1].0.clone();
    limiter.force_breaker(&victim, BreakerForce::Open).unwrap();
    assert_eq!(states(), [BreakerState::Closed, BreakerState::Open, BreakerState::Closed]);
    let mut allowed = 0;
    for _ in 0..400 {
        allowed += u64::from(ends(limit.acquire("hot")).await.unwrap().is_allowed());
    }
    assert_eq!(allowed, 200, "the others' shares");
    limiter.force_breaker(&victim, BreakerForce::Off).unwrap();
    eventually("its share is there again", async || {
        allowed += u64::from(ends(limit.acquire("hot")).await.unwrap().is_allowed());
        allowed == BURST
    })
    .await;
    let error = limiter.force_breaker("127.0.0.1:1", BreakerForce::Open).unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidSetting, "breaker"));
}

/// More calls than a shard's queue takes: the policy decides the others at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_is_bounded() {
    let server = Server::start(&[]);
    let (_, limit) = limiter(on(&server, 600_000).ceiling(Duration::ZERO).on_failure(FailurePolicy::Closed));
    assert!(limit.acquire("hot").await.unwrap().is_allowed());
    server.pause();
    let mut waiting = JoinSet::new();
    for _ in 0..110_000 {
        let limit = limit.clone();
        waiting.spawn(async move { limit.acquire("hot").await.unwrap().is_allowed() });
    }
    // Nobody else comes back before the server does.
    assert!(!tokio::time::timeout(HANGS, waiting.join_next()).await.expect("at once").unwrap().unwrap());
    eventually("all have asked", async || limit.failures().crowded >= 7_000).await;
    server.resume();
    let allowed = waiting.join_all().await.into_iter().filter(|allowed| *allowed).count() as u64;
    assert_eq!(allowed, BURST - 1);
}

/// The same where every call is for another key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_keys_is_bounded() {
    const MOST: usize = 300;
    let server = Server::start(&[]);
    let builder = on(&server, 600_000).ceiling(Duration::ZERO).on_failure(FailurePolicy::Closed).max_in_flight(MOST);
    let (_, limit) = limiter(builder);
    assert!(limit.acquire("hot").await.unwrap().is_allowed());
    server.pause();
    let mut waiting = JoinSet::new();
    for key in 0..1_000 {
        let limit = limit.clone();
        waiting.spawn(async move { limit.acquire(format!("key{key}")).await.unwrap().is_allowed() });
    }
    eventually("all have asked", async || limit.failures().crowded >= 1_000 - MOST as u64 - 2).await;
    server.resume();
    let allowed = waiting.join_all().await.into_iter().filter(|allowed| *allowed).count();
    // Two who look at once may both find room; and the limiter itself may be asking for the limit's record.
    assert!((MOST - 1..=MOST + 2).contains(&allowed), "{allowed}");
    // What is over makes room again.
    for key in 0..2 * MOST {
        assert!(limit.acquire(format!("key{key}")).await.unwrap().is_allowed(), "{key}");
    }
    let error = Limiter::builder().redis([crate::shared::url(&server)]).max_in_flight(0).build().unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidSetting, "max_in_flight"));
}

/// Shadow mode lets everybody pass, and says who would not have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_shadow_mode_nobody_is_turned_away() {
    let mut server = Server::start(&[]);
    let (_, limit) = limiter(on(&server, 5_000).shadow(true));
    let hot = limit.handle("hot").unwrap();
    let mut shadowed = 0;
    for _ in 0..2 * BURST {
        let Decision::Allowed(allowed) = hot.acquire().await.unwrap() else { panic!("denied") };
        shadowed += u64::from(allowed.shadowed().is_some());
        if allowed.shadowed().is_some() {
            // Nothing was charged, so nothing comes back.
            hot.settle(allowed.into_receipt(), 7).await.unwrap();
        }
    }
    assert_eq!((shadowed, limit.shadowed(), left(&limit, "hot").await), (BURST, BURST, 0));
    assert!(hot.acquire_within(1, MINUTES).await.unwrap().is_allowed(), "nobody waits either");
    server.kill();
    assert!(ends(hot.acquire()).await.unwrap().is_allowed(), "nor is anybody by a fault");
    assert_eq!(hot.acquire_n(BURST + 1).await.unwrap_err().kind(), ErrorKind::Never, "nonsense stays nonsense");
    limit.set_shadow(false);
    assert!(!ends(hot.acquire()).await.is_ok_and(|decision| decision.is_allowed()), "now it counts");
}
