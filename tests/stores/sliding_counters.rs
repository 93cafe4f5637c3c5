//! Events in sliding windows, on every store.

use std::time::Duration;

use pollster::block_on;
use shardlimit::counter::SlidingCounters;
use shardlimit::{ErrorKind, FakeClock, Limiter};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

/// What holds on every store.
async fn counts(logins: &SlidingCounters) {
    assert_eq!(logins.get("k").await.unwrap(), [0, 0]);
    assert_eq!(logins.add("k", 2).await.unwrap(), [2, 2]);
    assert_eq!(logins.add("k", 3).await.unwrap(), [5, 5]);
    assert_eq!(logins.get("k").await.unwrap(), [5, 5], "a look counts nothing");
    assert_eq!(logins.get("other").await.unwrap(), [0, 0]);
    assert_eq!(logins.add("k", (1 << 53) - 1).await.unwrap_err().kind(), ErrorKind::Refused);
    for bad in [0, 1 << 53] {
        assert_eq!(logins.add("k", bad).await.unwrap_err().kind(), ErrorKind::InvalidAmount);
    }
    assert_eq!(logins.add("", 1).await.unwrap_err().kind(), ErrorKind::InvalidKey);
    logins.clear("k").await.unwrap();
    assert_eq!(logins.get("k").await.unwrap(), [0, 0]);
    assert_eq!(logins.add("k", 1).await.unwrap(), [1, 1]);
}

#[test]
fn the_embedded_store_counts() {
    block_on(counts(&Limiter::local().sliding_counters("logins", [MINUTE, HOUR]).unwrap()));
}

#[test]
fn an_event_counts_for_its_window_and_a_part_of_it_at_the_most() {
    let time = FakeClock::new();
    let limiter = Limiter::builder().clock(&time).build().unwrap();
    let logins = limiter.sliding_counters("logins", [MINUTE, HOUR]).unwrap();
    assert_eq!(block_on(logins.add("k", 7)).unwrap(), [7, 7]);
    time.advance(MINUTE - Duration::from_micros(1));
    assert_eq!(block_on(logins.get("k")).unwrap(), [7, 7]);
    time.advance(MINUTE / 64 + Duration::from_micros(1));
    assert_eq!(block_on(logins.get("k")).unwrap(), [0, 7]);
    time.advance(HOUR);
    assert_eq!(block_on(logins.get("k")).unwrap(), [0, 0]);
}

#[test]
fn windows_have_bounds() {
    let limiter = Limiter::local();
    for windows in [vec![], vec![MINUTE; 9], vec![Duration::ZERO]] {
        assert_eq!(limiter.sliding_counters("a", windows).unwrap_err().field(), "windows");
    }
    limiter.sliding_counters("a", [MINUTE]).unwrap();
    assert_eq!(limiter.sliding_counters("a", [HOUR]).unwrap_err().kind(), ErrorKind::NameTaken);
}

#[cfg(feature = "redis")]
mod on_servers {
    use redis::cmd;

    use super::*;
    use crate::shared::{Cluster, Layout, Server, client, client_of, eventually};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_server_counts() {
        let server = Server::start(&[]);
        let logins = client(&server).build().unwrap().sliding_counters("logins", [MINUTE, HOUR]).unwrap();
        counts(&logins).await;
        let mut connection = server.connection();
        let keys: Vec<Vec<u8>> = cmd("KEYS").arg("*{*").query(&mut connection).unwrap();
        assert_eq!(keys.len(), 1);
        let ttl: i64 = cmd("PTTL").arg(&keys[0]).query(&mut connection).unwrap();
        assert!((3_600_000..=3_657_250 + 1_000).contains(&ttl), "{ttl} ms");
        // A process with other windows counts on in those that both have, and leaves the others alone.
        let other = client(&server).build().unwrap().sliding_counters("logins", [HOUR, 2 * HOUR]).unwrap();
        assert_eq!(other.add("k", 1).await.unwrap(), [2, 1]);
        assert_eq!(logins.get("k").await.unwrap(), [1, 2]);
    }

    /// While a deployment adds a window, each add of an old process took away what the new window had, and shortened its life.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn clients_with_other_windows_leave_each_other_alone() {
        let server = Server::start(&[]);
        let make = |windows: &[Duration]| {
            client(&server).build().unwrap().sliding_counters("logins", windows.iter().copied()).unwrap()
        };
        let (before, after) = (make(&[MINUTE]), make(&[MINUTE, HOUR]));
        for round in 1..=5 {
            assert_eq!(after.add("k", 1).await.unwrap(), [2 * round - 1, round]);
            assert_eq!(before.add("k", 1).await.unwrap(), [2 * round]);
            assert_eq!(after.get("k").await.unwrap(), [2 * round, round]);
        }
        let mut connection = server.connection();
        let keys: Vec<Vec<u8>> = cmd("KEYS").arg("*{*").query(&mut connection).unwrap();
        let ttl: i64 = cmd("PTTL").arg(&keys[0]).query(&mut connection).unwrap();
        assert!(ttl > 3_600_000, "{ttl} ms, by the longest window that counts");
        // Whoever made it live for ever has it end again with the next look.
        cmd("PERSIST").arg(&keys[0]).exec(&mut connection).unwrap();
        before.get("k").await.unwrap();
        let ttl: i64 = cmd("PTTL").arg(&keys[0]).query(&mut connection).unwrap();
        assert!(ttl > 3_600_000, "{ttl} ms");
        before.clear("k").await.unwrap();
        assert_eq!(after.get("k").await.unwrap(), [0, 0], "a clear forgets all");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn clients_of_a_cluster_count_together_and_events_end() {
        let cluster = Cluster::start(2, 0, Layout::Contiguous, &[]);
        let second = Duration::from_secs(1);
        let make =
            |node| client_of(&cluster, node).build().unwrap().sliding_counters("logins", [second, HOUR]).unwrap();
        let (one, other) = (make(0), make(1));
        for number in 0..20 {
            let key = format!("key:{number}");
            one.add(&key, 1).await.unwrap();
            assert_eq!(other.add(&key, 2).await.unwrap()[1], 3, "{key}");
        }
        eventually("the short window is over", async || one.get("key:0").await.unwrap() == [0, 3]).await;
    }
}
