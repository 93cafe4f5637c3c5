//! More calls on counters than there is room for: the others end at once, and are counted.

use std::time::Duration;

use crate::shared::{Server, client, eventually};
use shardlimit::counter::{Added, CounterSettings, Counters, Within};
use shardlimit::{BreakerForce, ErrorKind};
use tokio::task::JoinSet;

const DAY: Duration = Duration::from_secs(86_400);
const LONG: Duration = Duration::from_secs(60);

fn counters(server: &Server) -> Counters {
    client(server).timeout(LONG).build().unwrap().counters("clicks", CounterSettings::new(DAY)).unwrap()
}

/// Requests of all counters have one bound, whatever they ask.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_have_a_bound() {
    const MOST: usize = 50;
    let server = Server::start(&[]);
    let limiter = client(&server).timeout(LONG).max_in_flight(MOST).build().unwrap();
    let counters = limiter.counters("clicks", CounterSettings::new(DAY)).unwrap();
    let logins = limiter.sliding_counters("logins", [DAY]).unwrap();
    let visitors = limiter.distinct_counters("visitors", DAY, 3).unwrap();
    counters.add("k", 7).await.unwrap();
    // It is not to be given up for having been slow.
    limiter.force_breaker(&format!("127.0.0.1:{}", server.port), BreakerForce::Closed).unwrap();
    server.pause();
    let mut waiting = JoinSet::new();
    for _ in 0..4 * MOST {
        let counters = counters.clone();
        waiting.spawn(async move { counters.get("k").await });
    }
    let turned_away = 3 * MOST as u64;
    eventually("all have asked", async || counters.unanswered().crowded == turned_away).await;
    // Other kinds find no room either; adds need none of it.
    for error in [logins.add("k", 1).await.unwrap_err(), visitors.add("k", "a").await.unwrap_err()] {
        assert_eq!((error.kind(), error.field()), (ErrorKind::NotSent, "max_in_flight"), "{error}");
    }
    assert_eq!((logins.unanswered().crowded, visitors.unanswered().crowded), (1, 1));
    assert_eq!(counters.deadline(Duration::from_millis(20)).add("k", 1).await.unwrap(), Added::Queued);
    server.resume();
    let answers = waiting.join_all().await;
    let (known, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    assert_eq!((known.len(), refused.len() as u64), (MOST, turned_away));
    assert!(refused.iter().all(|error| error.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotSent)));

    // What is over makes room; one that asks for too much at once is told so, key by key.
    counters.flush(LONG).await.unwrap();
    server.pause();
    let many = tokio::spawn({
        let counters = counters.clone();
        async move { counters.get_many((0..MOST + 3).map(|key| key.to_string())).await }
    });
    eventually("three are too many", async || counters.unanswered().crowded == turned_away + 3).await;
    server.resume();
    let answers = many.await.unwrap();
    assert!(answers[..MOST].iter().all(|answer| *answer == Ok(0)) && answers[MOST..].iter().all(Result::is_err));
    assert_eq!(visitors.add_many("k", ["a", "b", "c", "d"]).await, Ok(4));
}

/// Callers of adds that wait have a bound. Nothing is lost above it: a sum takes no room.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_of_adds_have_a_bound_and_their_adds_count() {
    const ADDS: u64 = 110_000;
    let server = Server::start(&[]);
    let counters = counters(&server);
    counters.add("k", 1).await.unwrap();
    server.pause();
    let waiting = tokio::spawn({
        let counters = counters.clone();
        async move { counters.add_many((0..ADDS).map(|_| ("k", 1))).await }
    });
    eventually("all have come", async || counters.undelivered() == ADDS).await;
    assert_eq!(counters.unanswered().crowded, ADDS - 100_000);
    let error = counters.add_within("other", 1, 1).await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::NotSent, "key"), "a bound is asked for now: {error}");
    assert_eq!(counters.dropped().refused, 1);
    server.resume();
    let answers = waiting.await.unwrap();
    let queued = answers.into_iter().filter(|added| *added == Ok(Added::Queued)).count() as u64;
    assert_eq!(queued, ADDS - 100_000);
    counters.flush(LONG).await.unwrap();
    assert_eq!(counters.get("k").await, Ok(1 + ADDS as i64));
    assert_eq!(counters.add("k", 1).await, Ok(Added::Counted { total: Some(ADDS as i64 + 2) }), "there is room again");
}

/// Of adds with a bound each takes a round trip: only so many wait for one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn adds_with_a_bound_wait_in_a_line_that_ends() {
    const MOST: usize = 1_000;
    let server = Server::start(&[]);
    let counters = counters(&server);
    counters.add("k", 1).await.unwrap();
    server.pause();
    let mut waiting = JoinSet::new();
    for _ in 0..MOST + 100 {
        let counters = counters.clone();
        waiting.spawn(async move { counters.add_within("k", 1, 1_000_000).await });
    }
    // One is out.
    eventually("all have asked", async || counters.unanswered().crowded == 99).await;
    // Another key has a line of its own.
    let other = tokio::spawn({
        let counters = counters.clone();
        async move { counters.add_within("other", 1, 1).await }
    });
    server.resume();
    assert_eq!(other.await.unwrap(), Ok(Within::Counted { total: 1 }));
    let counted = waiting.join_all().await.into_iter().flatten().count();
    assert_eq!((counted, counters.dropped().refused), (MOST + 1, 99));
    assert_eq!(counters.get("k").await, Ok(MOST as i64 + 2));
}
