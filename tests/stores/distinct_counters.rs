//! Distinct values in a sliding window, exact and about, on every store.

use std::time::Duration;

use pollster::block_on;
use shardlimit::counter::{ApproximateCounters, DistinctCounters};
use shardlimit::{ErrorKind, FakeClock, Limiter};

const HOUR: Duration = Duration::from_secs(3_600);

async fn counts(visitors: &DistinctCounters) {
    assert_eq!(visitors.get("k").await.unwrap(), 0);
    assert!(visitors.add("k", "alice").await.unwrap());
    assert!(!visitors.add("k", "alice").await.unwrap());
    assert_eq!(visitors.add_many("k", ["alice", "bob", "bob", "a\0b"]).await.unwrap(), 2);
    assert_eq!((visitors.get("k").await.unwrap(), visitors.get("other").await.unwrap()), (3, 0));
    let many = (0..5_000).map(|value| value.to_string());
    assert_eq!(visitors.add_many("k", many).await.unwrap(), 5_000);
    assert_eq!(visitors.get("k").await.unwrap(), 5_003);
    for bad in [vec![], vec![0; 513]] {
        let error = visitors.add_many("k", [vec![1], bad]).await.unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidAmount, "value"));
    }
    assert_eq!(visitors.get("k").await.unwrap(), 5_003);
    visitors.clear("k").await.unwrap();
    assert_eq!(visitors.get("k").await.unwrap(), 0);
    assert!(visitors.add("k", "alice").await.unwrap());
}

async fn estimates(visitors: &ApproximateCounters) {
    assert_eq!(visitors.get("k").await.unwrap(), 0);
    visitors.add("k", "alice").await.unwrap();
    visitors.add_many("k", ["alice", "bob"]).await.unwrap();
    assert_eq!(visitors.get("k").await.unwrap(), 2, "few are counted exactly");
    for _ in 0..2 {
        visitors.add_many("k", (0..30_000).map(|value| value.to_string())).await.unwrap();
    }
    let about = visitors.get("k").await.unwrap();
    // Four standard errors: values are always the same, so this is no matter of luck.
    assert!(about.abs_diff(30_002) < 972, "{about}");
    assert_eq!(visitors.add("k", "").await.unwrap_err().kind(), ErrorKind::InvalidAmount);
    visitors.clear("k").await.unwrap();
    assert_eq!(visitors.get("k").await.unwrap(), 0);
}

#[test]
fn the_embedded_store_counts() {
    block_on(counts(&Limiter::local().distinct_counters("visitors", HOUR, 3).unwrap()));
    block_on(estimates(&Limiter::local().approximate_counters("visitors", HOUR).unwrap()));
}

#[test]
fn a_value_counts_from_when_it_was_last_seen() {
    let time = FakeClock::new();
    let limiter = Limiter::builder().clock(&time).build().unwrap();
    let exact = limiter.distinct_counters("visitors", HOUR, 1).unwrap();
    let about = limiter.approximate_counters("visitors", HOUR).unwrap();
    let add = |value: &str| {
        block_on(about.add("k", value)).unwrap();
        block_on(exact.add("k", value)).unwrap()
    };
    let both = || (block_on(exact.get("k")).unwrap(), block_on(about.get("k")).unwrap());
    assert!(add("alice") && add("bob"));
    time.advance(HOUR / 2);
    assert!(!add("bob"));
    time.advance(HOUR / 2 - Duration::from_micros(1));
    assert_eq!(both(), (2, 2));
    time.advance(Duration::from_micros(1));
    assert_eq!(both().0, 1, "alice was last seen an hour ago");
    time.advance(HOUR / 8);
    assert_eq!(both(), (1, 1));
    assert!(add("alice"));
    time.advance(2 * HOUR);
    assert_eq!(both(), (0, 0));
}

#[cfg(feature = "redis")]
mod on_servers {
    use redis::cmd;

    use super::*;
    use crate::shared::cluster::is_ring;
    use crate::shared::{Cluster, Layout, Server, client, client_of, eventually};

    /// All sub-keys. The record of a ring is none.
    fn keys(connection: &mut redis::Connection) -> Vec<Vec<u8>> {
        cmd("KEYS").arg("*{*").query(connection).unwrap()
    }

    fn all_end(connection: &mut redis::Connection) {
        for key in keys(connection) {
            let ttl: i64 = cmd("PTTL").arg(&key).query(connection).unwrap();
            // It may have ended since.
            assert!(ttl > 0 || ttl == -2, "{}: {ttl}", key.escape_ascii());
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_server_counts() {
        let server = Server::start(&[]);
        let limiter = client(&server).build().unwrap();
        let exact = limiter.distinct_counters("visitors", HOUR, 3).unwrap();
        let about = limiter.approximate_counters("visitors", HOUR).unwrap();
        counts(&exact).await;
        estimates(&about).await;
        let mut connection = server.connection();
        all_end(&mut connection);
        // Whoever made one live for ever has it end again with the next value, or the next look.
        about.add("k", "alice").await.unwrap();
        let persist = |connection: &mut redis::Connection| {
            for key in keys(connection) {
                cmd("PERSIST").arg(&key).exec(connection).unwrap();
            }
        };
        persist(&mut connection);
        assert_eq!((exact.get("k").await.unwrap(), about.get("k").await.unwrap()), (1, 1));
        all_end(&mut connection);
        persist(&mut connection);
        exact.add_many("k", (0..100).map(|value| value.to_string())).await.unwrap();
        about.add("k", "bob").await.unwrap();
        all_end(&mut connection);
    }

    /// A user who may not set an end makes nothing that has none.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn nothing_is_made_without_an_end() {
        let server = Server::start(&[]);
        let mut connection = server.connection();
        cmd("ACL").arg(&["SETUSER", "default", "-pexpire"]).exec(&mut connection).unwrap();
        let limiter = client(&server).build().unwrap();
        let exact = limiter.distinct_counters("visitors", HOUR, 1).unwrap().add("k", "alice").await;
        let about = limiter.approximate_counters("visitors", HOUR).unwrap().add("k", "alice").await;
        assert_eq!([exact.unwrap_err().kind(), about.unwrap_err().kind()], [ErrorKind::Refused; 2]);
        assert_eq!(keys(&mut connection).len(), 0);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn values_end() {
        let server = Server::start(&[]);
        let limiter = client(&server).build().unwrap();
        let exact = limiter.distinct_counters("visitors", Duration::from_secs(1), 2).unwrap();
        let about = limiter.approximate_counters("visitors", Duration::from_secs(1)).unwrap();
        exact.add_many("k", ["a", "b", "c"]).await.unwrap();
        about.add_many("k", ["a", "b", "c"]).await.unwrap();
        eventually("all are too old", async || {
            (exact.get("k").await.unwrap(), about.get("k").await.unwrap()) == (0, 0)
        })
        .await;
        assert!(exact.add("k", "a").await.unwrap());
        let mut connection = server.connection();
        eventually("they are gone", async || keys(&mut connection).is_empty()).await;
    }

    /// Values that were seen while a master's clock was a year ahead counted for a year, and so did its sorted set.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_clock_that_was_ahead_is_forgotten() {
        let server = Server::start(&[]);
        let exact = client(&server).build().unwrap().distinct_counters("visitors", Duration::from_secs(5), 1).unwrap();
        exact.add("k", "alice").await.unwrap();
        let mut connection = server.connection();
        let key = keys(&mut connection).remove(0);
        let (seconds, _): (u64, u64) = cmd("TIME").query(&mut connection).unwrap();
        let then = (seconds + 365 * 86_400) * 1_000_000;
        // More than one run moves.
        let seen = (0..3_000).flat_map(|value| [then + value, value]).collect::<Vec<u64>>();
        cmd("ZADD").arg(&key).arg(seen).exec(&mut connection).unwrap();
        cmd("PEXPIRE").arg(&key).arg(31_536_000_000_u64).exec(&mut connection).unwrap();
        assert!(exact.get("k").await.unwrap() >= 3_000, "they were seen, and count");
        let ttl: i64 = cmd("PTTL").arg(&key).query(&mut connection).unwrap();
        assert!(ttl <= 6_000, "{ttl} ms");
        let ahead = |connection: &mut redis::Connection| -> u64 {
            cmd("ZCOUNT").arg(&key).arg(then).arg("+inf").query(connection).unwrap()
        };
        assert_eq!(ahead(&mut connection), 3_000 - 1_024);
        assert!(!exact.add("k", "2999").await.unwrap(), "it was seen before");
        eventually("none is ahead", async || exact.get("k").await.is_ok() && ahead(&mut connection) == 0).await;
        eventually("all are too old", async || exact.get("k").await.unwrap() == 0).await;
    }

    /// 100,000 values, each five times, by four clients at once, over three masters.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn clients_of_a_cluster_count_each_value_once() {
        const VALUES: u64 = 100_000;
        let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
        let make = |node| {
            let limiter = client_of(&cluster, node).build().unwrap();
            let exact = limiter.distinct_counters("visitors", HOUR, 3).unwrap();
            (exact, limiter.approximate_counters("visitors", HOUR).unwrap())
        };
        let clients: Vec<_> = (0..4).map(|number| make(number % 3)).collect();
        let mut tasks = tokio::task::JoinSet::new();
        for (number, (exact, about)) in clients.iter().cloned().enumerate() {
            tasks.spawn(async move {
                let mut fresh = 0;
                for batch in (0..5 * VALUES).collect::<Vec<_>>().chunks(2_500) {
                    // Each value of a batch, by one client.
                    let mine = batch.iter().filter(|value| **value as usize % 4 == number);
                    let values: Vec<String> = mine.map(|value| format!("user:{}", value * 7 % VALUES)).collect();
                    fresh += exact.add_many("page", &values).await.unwrap();
                    about.add_many("page", &values).await.unwrap();
                }
                fresh
            });
        }
        let fresh: u64 = tasks.join_all().await.into_iter().sum();
        assert_eq!(fresh, VALUES, "each was new once");
        for (exact, about) in &clients {
            assert_eq!(exact.get("page").await.unwrap(), VALUES);
            let about = about.get("page").await.unwrap();
            assert!(about.abs_diff(VALUES) < 3_240, "{about}");
        }
        let mut shards = 0;
        for node in &cluster.nodes {
            let keys: Vec<Vec<u8>> = node.ask(cmd("KEYS").arg("*::distinct:*"));
            // On a ring they fall as by lot.
            assert!(is_ring() || keys.len() == 1, "each master has a shard");
            shards += keys.len();
            all_end(&mut node.connection());
        }
        assert_eq!(shards, 3);
    }
}
