//! What did not go back, and what was not charged: counted, tried until the end, and said then.

use std::time::Duration;

use crate::shared::{Server, client, define, eventually, left};
use shardlimit::{Decision, ErrorKind, FailurePolicy, Leases, Limiter, NamedLimit};
use tokio::task::JoinSet;

/// Nothing of it comes back while a test runs.
const LIMIT: &str = "fixed-window 1000000/365days";
const MOMENT: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_secs(60);

/// One that has taken permits ahead, and is told soon that a server hangs. Nothing is held for long.
async fn holder(server: &Server) -> (Limiter, NamedLimit) {
    let limiter = client(server).timeout(MOMENT).build().unwrap();
    let short = Leases::new().horizon(MOMENT / 2).ttl(MOMENT / 2);
    let limit = limiter.define_leased("api", LIMIT.parse().unwrap(), short).unwrap();
    let hot = limit.handle("hot").unwrap();
    let mut ahead = 0;
    while ahead < 50 {
        if hot.try_acquire(1).unwrap().is_some_and(|decision| decision.is_allowed()) {
            ahead += 1;
        } else {
            assert!(hot.acquire().await.unwrap().is_allowed());
        }
    }
    (limiter, limit)
}

fn kind(result: Result<(), shardlimit::Error>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

/// Leases that expired while the server hung were given back without an answer, and nobody was told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_that_were_lost_before_are_told_of_once() {
    let server = Server::start(&[]);
    let (limiter, limit) = holder(&server).await;
    server.pause();
    eventually("some are lost", async || limit.failures().unreturned > 0).await;
    server.resume();
    eventually("it answers", async || limit.peek("hot").await.is_ok()).await;
    assert_eq!(kind(limiter.return_leases(LONG).await), Some(ErrorKind::Unknown));
    assert_eq!(kind(limiter.return_leases(LONG).await), None, "that was said");
    limiter.shutdown(LONG).await.unwrap();
}

/// The same where it was gone: they waited for a server that never came, under a key that had fallen quiet long ago.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_that_wait_for_a_server_are_told_of_whenever_they_expired() {
    let mut server = Server::start(&[]);
    let (limiter, limit) = holder(&server).await;
    server.kill();
    // Its purse was looked through many times.
    tokio::time::sleep(10 * MOMENT).await;
    // One may have been on its way here when the server went.
    let before = limit.failures().unreturned;
    assert_eq!(kind(limiter.return_leases(MOMENT).await), Some(ErrorKind::Unknown));
    assert_eq!(limit.failures().unreturned, before, "they may still go back");
    let error = limiter.shutdown(MOMENT).await.unwrap_err();
    let lost = limit.failures().unreturned - before;
    assert!(lost > 0 && error.to_string().contains(&format!("{lost} permits")), "{lost}: {error}");
}

/// The same where it comes back in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_for_a_server_goes_back_at_the_end() {
    let mut server = Server::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    let limiter = client(&server).build().unwrap();
    let limit = limiter.define("api", LIMIT.parse().unwrap()).unwrap();
    let mut receipts = Vec::new();
    for _ in 0..10 {
        let Decision::Allowed(allowed) = limit.acquire("hot").await.unwrap() else { panic!("denied") };
        receipts.push(allowed.into_receipt());
    }
    server.kill();
    is_known_to_be_away(&limit).await;
    for receipt in receipts {
        limit.refund("hot", receipt).await.unwrap();
    }
    let end = tokio::spawn(async move { limiter.shutdown(LONG).await });
    tokio::time::sleep(MOMENT).await;
    server.restart();
    end.await.unwrap().unwrap();
    assert_eq!(left(&define(client(&server), LIMIT), "hot").await, 1_000_000);
}

/// More than wait for one shard.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refunds_that_there_is_no_room_for_are_counted() {
    let mut server = Server::start(&[]);
    let limit = define(client(&server).timeout(MOMENT), LIMIT);
    let mut callers = JoinSet::new();
    for _ in 0..101 {
        let limit = limit.clone();
        callers.spawn(async move {
            let mut receipts = Vec::new();
            for _ in 0..100 {
                let Decision::Allowed(allowed) = limit.acquire_n("hot", 2).await.unwrap() else { panic!("denied") };
                receipts.push(allowed.into_receipt());
            }
            receipts
        });
    }
    let receipts = callers.join_all().await;
    server.kill();
    is_known_to_be_away(&limit).await;
    assert_eq!(limit.failures().unreturned, 0);
    let mut callers = JoinSet::new();
    for receipt in receipts.into_iter().flatten() {
        let limit = limit.clone();
        callers.spawn(async move { limit.refund("hot", receipt).await });
    }
    assert!(callers.join_all().await.iter().all(Result::is_ok), "they are kept");
    eventually("those above 10,000 are lost", async || limit.failures().unreturned >= 200).await;
    assert_eq!(limit.failures().unreturned, 200);
}

/// A connection that is being lost does not tell whether what was sent has arrived.
async fn is_known_to_be_away(limit: &NamedLimit) {
    let away = async || limit.peek("another").await.is_err_and(|error| error.kind() == ErrorKind::NotSent);
    eventually("it is known to be away", away).await;
}

/// Admits one call of each of so many keys without the server.
async fn admit(limit: &NamedLimit, keys: usize) {
    is_known_to_be_away(limit).await;
    for key in 0..keys {
        assert!(limit.acquire(format!("key {key}")).await.unwrap().is_allowed());
    }
    assert_eq!(limit.failures().allowed, keys as u64, "without the server");
}

/// More keys than are tried at once owe something when it ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_debts_are_charged_at_the_end() {
    let mut server = Server::start(&[]);
    let limiter = client(&server).on_failure(FailurePolicy::Open).build().unwrap();
    let limit = limiter.define("api", "1000/365days".parse().unwrap()).unwrap();
    limiter.ready(LONG).await.unwrap();
    server.kill();
    admit(&limit, 3_000).await;
    let end = tokio::spawn(async move { limiter.shutdown(LONG).await });
    tokio::time::sleep(MOMENT).await;
    server.restart();
    end.await.unwrap().unwrap();
    assert_eq!(limit.failures().uncharged, 0);
    let other = define(client(&server), "1000/365days");
    for key in 0..3_000 {
        assert_eq!(left(&other, &format!("key {key}")).await, 999, "{key}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn debts_that_could_not_be_charged_are_told_of() {
    let mut server = Server::start(&[]);
    let limiter = client(&server).on_failure(FailurePolicy::Open).build().unwrap();
    let limit = limiter.define("api", "1000/365days".parse().unwrap()).unwrap();
    limiter.ready(LONG).await.unwrap();
    server.kill();
    admit(&limit, 17).await;
    let error = limiter.shutdown(MOMENT).await.unwrap_err();
    assert_eq!((error.kind(), limit.failures().uncharged), (ErrorKind::Unknown, 17), "{error}");
    assert!(error.to_string().contains(" 17 that"), "{error}");
}
