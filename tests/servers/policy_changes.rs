//! Policies that are exchanged while a shard is away, and callers who have less time than others.

use std::time::{Duration, Instant};

use crate::shared::{BURST, Server, client, eventually, left};
use shardlimit::counter::CounterSettings;
use shardlimit::{BreakerState, Builder, DecidedBy, ErrorKind, FailurePolicy, Handle, Limiter, Shards};

const MOMENT: Duration = Duration::from_micros(300);
const SECOND: Duration = Duration::from_secs(1);

fn alone(server: &Server) -> Builder {
    client(server).shards(Shards::Off).deadline(SECOND)
}

/// Asks as fast as it goes, for so long. What was admitted without the shard, a second.
async fn admitted(hot: &Handle, seconds: u32) -> f64 {
    let (begun, mut admitted) = (Instant::now(), 0);
    while begun.elapsed() < seconds * SECOND {
        let decision = hot.acquire().await.unwrap();
        admitted += u32::from(decision.is_allowed() && decision.decided_by() == DecidedBy::Fallback);
        tokio::time::sleep(MOMENT).await;
    }
    f64::from(admitted) / begun.elapsed().as_secs_f64()
}

/// What was granted before the fault was forgotten when it was first asked for, and the first ratio counted to the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_goes_by_what_was_granted_before_the_fault() {
    let mut server = Server::start(&[]);
    let limiter = alone(&server).on_failure(FailurePolicy::Closed).build().unwrap();
    let hot = limiter.define("api", "token-bucket 400/s burst 40".parse().unwrap()).unwrap().handle("hot").unwrap();
    assert!(admitted(&hot, 3).await < 1.0, "the store decides");
    server.kill();
    assert!(admitted(&hot, 3).await < 1.0, "nobody does");
    for (ratio, rate) in [(0.5, 200.0), (0.1, 40.0), (1.0, 400.0)] {
        limiter.set_failure_policy(FailurePolicy::Local { ratio }).unwrap();
        let admitted = admitted(&hot, 2).await;
        // Below it on a machine that is busy; above it by what the bucket holds.
        assert!(admitted > 0.5 * rate && admitted < 1.1 * rate + 1.0, "{admitted} of {rate} a second");
    }
}

/// A caller with little time had the shard given up, and the master with it, for all who have more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_who_has_no_time_says_nothing_of_the_master() {
    let server = Server::start(&[]);
    let limiter = alone(&server).deadline(30 * SECOND).build().unwrap();
    let limit = limiter.define("api", "token-bucket 300/day burst 300".parse().unwrap()).unwrap();
    let counters = limiter.counters("clicks", CounterSettings::new(86_400 * SECOND)).unwrap();
    assert!(limit.acquire("hot").await.unwrap().is_allowed());
    assert_eq!(counters.get("k").await, Ok(0));
    tokio::time::sleep(SECOND / 10).await;
    server.pause();
    let brief = Duration::from_millis(20);
    let error = limit.deadline(brief).acquire("hot").await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::Unknown, "deadline"), "{error}");
    assert_eq!(counters.deadline(brief).get("k").await.unwrap_err().kind(), ErrorKind::Unknown);
    assert!(limiter.breakers().iter().all(|(_, state)| *state == BreakerState::Closed), "{:?}", limiter.breakers());
    let others = tokio::spawn({
        let limit = limit.clone();
        async move { limit.acquire("hot").await }
    });
    tokio::time::sleep(SECOND / 10).await;
    assert!(!others.is_finished(), "{:?}", others.await);
    server.resume();
    assert!(others.await.unwrap().unwrap().is_allowed());
    eventually("what came too late is back", async || left(&limit, "hot").await == BURST - 2).await;
}

/// A caller is told that nothing was sent: so nothing is, when there is a connection at last.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_too_late_to_be_sent_is_never_sent() {
    let server = Server::start(&[]);
    // It takes connections, and says nothing on them.
    server.pause();
    let limiter: Limiter = alone(&server).timeout(60 * SECOND).deadline(SECOND / 20).build().unwrap();
    let limit = limiter.define("api", "token-bucket 300/day burst 300".parse().unwrap()).unwrap();
    // The cluster has to be found before anything could be sent: that is no one's first request.
    for key in 0..10 {
        let error = limit.acquire(format!("key{key}")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotSent, "{error}");
    }
    server.resume();
    eventually("it answers", async || limit.peek("another").await.is_ok()).await;
    tokio::time::sleep(SECOND / 5).await;
    let keys: Vec<Vec<u8>> = redis::cmd("KEYS").arg("*{*").query(&mut server.connection()).unwrap();
    assert!(keys.is_empty(), "{} keys were made", keys.len());
}

/// Who was told that it was not sent went along with the others of its round.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_too_late_does_not_go_along_with_the_others() {
    let server = Server::start(&[]);
    // It takes connections, and says nothing on them.
    server.pause();
    let limiter: Limiter = alone(&server).timeout(60 * SECOND).deadline(60 * SECOND).build().unwrap();
    let limit = limiter.define("api", "token-bucket 300/day burst 300".parse().unwrap()).unwrap();
    let hot = limit.handle("hot").unwrap();
    let call = |within, permits| {
        let limit = limit.deadline(within);
        tokio::spawn(async move { limit.acquire_n("hot", permits).await })
    };
    // As long as this one is to be sent, the others wait; then they are one round.
    let first = call(SECOND / 5, 1);
    tokio::time::sleep(SECOND / 20).await;
    let late = call(SECOND / 2, 100);
    tokio::time::sleep(SECOND / 20).await;
    let in_time = call(60 * SECOND, 7);
    for late in [first, late] {
        let error = late.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotSent, "{error}");
    }
    server.resume();
    assert!(in_time.await.unwrap().unwrap().is_allowed());
    assert_eq!(hot.counts()[0].allowed, 1, "nobody else was");
    assert_eq!(left(&limit, "hot").await, BURST - 7);
}
