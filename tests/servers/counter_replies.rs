//! Counters of a server that answers what no test can bring about in a real one.

#[path = "../support/hostile.rs"]
mod hostile;

use std::io::Write;
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::shared::{eventually, server};
use hostile::{Act, Hostile, Words};
use shardlimit::counter::{Added, CounterSettings};
use shardlimit::{BreakerForce, Limiter};

const HOUR: Duration = Duration::from_secs(3_600);
const DONE: u8 = 0;
const LATE: u8 = 3;
const OVER: u8 = 5;

/// Until when an add may count, if this is one.
fn not_after(words: &Words) -> Option<u64> {
    let is_add = words[0].starts_with(b"EVAL") && words.get(4).is_some_and(|mode| mode == b"2");
    is_add.then(|| std::str::from_utf8(&words[11]).unwrap().parse().unwrap())
}

/// A copy of unknown fate came late by a clock that had jumped; then the client knew that clock and gave it more time, while the
/// server had forgotten its number.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_be_counted_gets_no_more_time_when_the_clock_jumps() {
    let server = Hostile::start();
    let builder = Limiter::builder().redis([server.url()]).deadline(Duration::from_secs(5));
    let limiter = builder.timeout(Duration::from_secs(1)).build().unwrap();
    let counters = limiter.counters("clicks", CounterSettings::new(24 * HOUR)).unwrap();
    assert_eq!(counters.add("k", 1).await.unwrap(), Added::Counted { total: Some(1) });

    let copies = Arc::new(AtomicU64::new(0));
    let came = Arc::clone(&copies);
    server.attack(move |words, client| {
        let Some(not_after) = not_after(words) else { return Act::Honest };
        if came.fetch_add(1, Ordering::Relaxed) == 0 {
            // It is counted, and nobody hears of it.
            let _ = client.shutdown(Shutdown::Both);
            return Act::Honest;
        }
        let now = (SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + HOUR).as_micros() as u64;
        let status = if not_after < now { LATE } else { DONE };
        Act::Done(write!(client, "*7\r\n:1\r\n:{status}\r\n:{now}\r\n:0\r\n:0\r\n:0\r\n:0\r\n"))
    });
    let error = counters.add("k", 10).await.unwrap_err();
    assert_eq!(error.kind(), shardlimit::ErrorKind::Unknown, "{error}");
    eventually("it is given up", async || counters.undelivered() == 0).await;
    assert_eq!((copies.load(Ordering::Relaxed), counters.dropped().unknown), (2, 1));
    // What surely was not counted goes by the new clock.
    assert!(matches!(counters.add("k", 100).await.unwrap(), Added::Counted { .. }));
    assert_eq!(counters.dropped().unknown, 1);
    server.relent();
    assert_eq!(counters.get("k").await.unwrap(), 11);
}

/// What another shard turned away went to the first one, however many keys had something undelivered by then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_goes_to_the_first_shard_keeps_to_the_queue() {
    let server = Hostile::start();
    let builder = Limiter::builder().redis([server.url()]).deadline(Duration::from_secs(1));
    let limiter = builder.build().unwrap();
    let settings = CounterSettings::new(24 * HOUR).shards(2).queue(2);
    let counters = limiter.counters("clicks", settings).unwrap();
    assert_eq!(counters.get("hot").await.unwrap(), 0);
    // What it refuses is not to make it look sick.
    limiter.force_breaker(&format!("127.0.0.1:{}", server.port()), BreakerForce::Closed).unwrap();
    let (is_over, to_first) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (over, first) = (Arc::clone(&is_over), Arc::clone(&to_first));
    server.attack(move |words, client| {
        if not_after(words).is_none() {
            return Act::Honest;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros();
        let ends = now + HOUR.as_micros();
        let is_stuck = words[3].ends_with(b"stuck");
        let is_first = words[10] == b"1";
        Act::Done(if is_stuck || !is_first && !over.load(Ordering::SeqCst) {
            write!(client, "-OOM command not allowed\r\n")
        } else {
            first.fetch_add(u64::from(is_first), Ordering::SeqCst);
            let status = if is_first { DONE } else { OVER };
            write!(client, "*7\r\n:1\r\n:{status}\r\n:{now}\r\n:0\r\n:1\r\n:7\r\n:{ends}\r\n")
        })
    });
    assert_eq!(counters.add("stuck", 1).await.unwrap(), Added::Queued);
    assert_eq!(counters.add("hot", 1).await.unwrap(), Added::Counted { total: None });
    // One is on its way to the other shard then, and one waits behind it. For the first shard there is no place meanwhile.
    while counters.undelivered() < 3 {
        let _ = counters.add("hot", 1).await;
    }
    let (refused, before) = (counters.dropped().refused, to_first.load(Ordering::SeqCst));
    is_over.store(true, Ordering::SeqCst);
    eventually("only one is stuck", async || counters.undelivered() == 1).await;
    assert_eq!(counters.dropped().refused - refused, 1, "there was no place, and that is told");
    assert_eq!(
        to_first.load(Ordering::SeqCst) - before,
        1,
        "the other one left its place, and has that of the first shard"
    );
    assert_eq!(counters.dropped().unknown, 0);
}
