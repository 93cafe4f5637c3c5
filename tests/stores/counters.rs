//! Counters on every store: what is added is there, once, until it ends.

use std::time::Duration;

use pollster::block_on;
use shardlimit::counter::{Added, CounterSettings, Counters, Within};
use shardlimit::{ErrorKind, FakeClock, Limiter};

const DAY: Duration = Duration::from_secs(86_400);
const LARGEST: i64 = (1 << 53) - 1;

fn daily() -> CounterSettings {
    CounterSettings::new(DAY)
}

fn total(added: Added) -> i64 {
    match added {
        Added::Counted { total: Some(total) } => total,
        other => panic!("{other:?}"),
    }
}

/// What holds on every store with one shard.
async fn counts(counters: &Counters, key: &[u8]) {
    assert_eq!(counters.get(key).await.unwrap(), 0);
    assert_eq!(total(counters.add(key, 5).await.unwrap()), 5);
    assert_eq!(total(counters.add(key, -7).await.unwrap()), -2);
    assert_eq!(counters.get(key).await.unwrap(), -2);
    assert_eq!(counters.add_within(key, 12, 10).await.unwrap(), Within::Counted { total: 10 });
    assert_eq!(counters.add_within(key, 1, 10).await.unwrap(), Within::Above { total: 10 });
    assert_eq!(counters.add_within(key, -4, 10).await.unwrap(), Within::Counted { total: 6 });
    counters.reset(key).await.unwrap();
    assert_eq!(counters.get(key).await.unwrap(), 0);
    assert_eq!(total(counters.add(key, 3).await.unwrap()), 3, "a reset counter counts from zero");
    let error = counters.add(key, LARGEST).await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::Refused, "amount"), "{error}");
    assert_eq!(counters.get(key).await.unwrap(), 3, "nothing of it was counted");
    assert_eq!(counters.add(key, LARGEST + 1).await.unwrap_err().kind(), ErrorKind::InvalidAmount);
    assert_eq!(counters.add_within(key, 1, i64::MIN).await.unwrap_err().field(), "bound");

    let answers = counters.add_many([(key, 1), (b"", 1), (b"other", 4), (key, 2)]).await;
    let totals: Vec<Option<i64>> = answers.into_iter().map(|answer| answer.ok().map(total)).collect();
    assert_eq!(totals, [Some(4), None, Some(4), Some(6)]);
    let read = counters.get_many([key, b"", b"other", b"never"]).await;
    assert_eq!(read.into_iter().map(Result::ok).collect::<Vec<_>>(), [Some(6), None, Some(4), Some(0)]);
    counters.reset("other").await.unwrap();
    assert_eq!(counters.undelivered(), 0);
}

#[test]
fn the_embedded_store_counts() {
    block_on(counts(&Limiter::local().counters("clicks", daily()).unwrap(), b"a{b}\0"));
}

#[test]
fn counters_end_by_themselves() {
    let time = FakeClock::new();
    let limiter = Limiter::builder().clock(&time).build().unwrap();
    let first = limiter.counters("first", daily()).unwrap();
    let last = limiter.counters("last", daily().renew()).unwrap();
    let both =
        |amount| [block_on(first.add("k", amount)), block_on(last.add("k", amount))].map(|added| total(added.unwrap()));
    assert_eq!(both(1), [1, 1]);
    time.advance(DAY - Duration::from_secs(1));
    assert_eq!(both(1), [2, 2]);
    time.advance(Duration::from_secs(1));
    assert_eq!([block_on(first.get("k")).unwrap(), block_on(last.get("k")).unwrap()], [0, 2]);
    assert_eq!(both(1), [1, 3]);
}

#[test]
fn a_name_stands_for_one_thing() {
    let limiter = Limiter::local();
    let clicks = limiter.counters("clicks", daily()).unwrap();
    block_on(clicks.add("k", 1)).unwrap();
    assert_eq!(block_on(limiter.counters("clicks", daily()).unwrap().get("k")).unwrap(), 1);
    assert_eq!(limiter.counters("clicks", daily().renew()).unwrap_err().kind(), ErrorKind::NameTaken);
    assert_eq!(limiter.counters("a:b", daily()).unwrap_err().kind(), ErrorKind::InvalidName);
    assert_eq!(limiter.counters("b", daily().shards(0)).unwrap_err().field(), "shards");
}

#[test]
fn a_full_embedded_store_forgets_nobody() {
    let limiter = Limiter::builder().max_keys(64).build().unwrap();
    let counters = limiter.counters("clicks", daily()).unwrap();
    let taken = (0..1_000).filter(|key| block_on(counters.add(key.to_string(), 1)).is_ok()).collect::<Vec<i32>>();
    assert!(taken.len() <= 64, "{}", taken.len());
    assert!(taken.iter().all(|key| block_on(counters.get(key.to_string())).unwrap() == 1));
}

#[cfg(feature = "redis")]
mod on_servers {
    use redis::cmd;
    use shardlimit::Slot;

    use super::*;
    use crate::shared::cluster::is_ring;
    use crate::shared::{Cluster, Layout, Server, client, client_of};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_server_counts() {
        let server = Server::start(&[]);
        let limiter = client(&server).build().unwrap();
        counts(&limiter.counters("clicks", daily()).unwrap(), b"a{b}\0").await;
        // A limit of the same name and key has nothing to do with it.
        let limit = limiter.define("clicks", "2/day".parse().unwrap()).unwrap();
        assert!(limit.acquire(b"a{b}\0").await.unwrap().is_allowed());
        assert_eq!(limiter.counters("clicks", daily()).unwrap().get(b"a{b}\0").await.unwrap(), 6);
    }

    /// Every master has a part of a counter that is split, and every client reads the same sum.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_hot_counter_lies_on_all_masters() {
        let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
        let client =
            |node| client_of(&cluster, node).hot(200).build().unwrap().counters("clicks", daily().shards(3)).unwrap();
        let (counters, other) = (client(0), client(1));
        let error = counters.add_within("hot", 1, 1).await.unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidSetting, "shards"));

        // One after the other, all go to the first shard.
        for _ in 0..5 {
            assert_eq!(counters.add("hot", 1).await.unwrap(), Added::Counted { total: None });
        }
        let holders = |cluster: &Cluster| {
            let keys = cluster.nodes.iter().map(|node| node.ask::<Vec<Vec<u8>>>(cmd("KEYS").arg("*::count:*")).len());
            keys.collect::<Vec<_>>()
        };
        assert_eq!(holders(&cluster).iter().sum::<usize>(), 1);
        // Together they are summed up, and need no other.
        for answer in counters.add_many((0..3_000).map(|_| ("hot", 1))).await {
            answer.unwrap();
        }
        assert_eq!(holders(&cluster).iter().sum::<usize>(), 1);
        // Many processes, each of which adds at most 100 times a second, are too much for it in sum.
        let fleet: Vec<_> = (0..10).map(|number| client(number % 3)).collect();
        let mut added = 3_005;
        while holders(&cluster).iter().sum::<usize>() < 3 {
            let mut tasks = tokio::task::JoinSet::new();
            for counters in fleet.clone() {
                tasks.spawn(async move {
                    for _ in 0..20 {
                        counters.add("hot", 1).await.unwrap();
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                });
            }
            tasks.join_all().await;
            added += 200;
            assert!(added < 50_000, "{:?}", holders(&cluster));
        }
        // On a ring they fall as by lot.
        assert!(is_ring() || holders(&cluster) == [1, 1, 1], "{:?}", holders(&cluster));
        for counters in &fleet {
            counters.flush(Duration::from_secs(10)).await.unwrap();
        }
        assert_eq!(other.get("hot").await.unwrap(), added);
        assert_eq!(counters.get("hot").await.unwrap(), added);
        other.reset("hot").await.unwrap();
        assert_eq!(counters.get("hot").await.unwrap(), 0);
    }

    /// However much later the others began, all shards end together, and what comes after begins at zero.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_hot_counter_ends_as_one() {
        let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
        let settings = CounterSettings::new(Duration::from_secs(5)).shards(3);
        let counters = client_of(&cluster, 0).hot(1).build().unwrap().counters("clicks", settings).unwrap();
        let held = |cluster: &Cluster| {
            let keys = cluster.nodes.iter().map(|node| node.ask::<Vec<Vec<u8>>>(cmd("KEYS").arg("*::count:*")).len());
            keys.sum::<usize>()
        };
        for round in 0..2 {
            let mut added = 0;
            // Hot after half a second: then the others begin.
            while added < 50 || held(&cluster) < 3 {
                counters.add("hot", 1).await.unwrap();
                added += 1;
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            assert_eq!(counters.get("hot").await.unwrap(), added, "{round}");
            while counters.get("hot").await.unwrap() == added {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            assert_eq!(counters.get("hot").await.unwrap(), 0, "{round}");
        }
        // A reset in between leaves nothing behind either.
        counters.add("hot", 5).await.unwrap();
        counters.reset("hot").await.unwrap();
        for _ in 0..50 {
            counters.add("hot", 1).await.unwrap();
        }
        assert_eq!(counters.get("hot").await.unwrap(), 50);
    }

    /// A deployment lowers the ttl: every shard cut the end off by its own clock, and a read had the first one only.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_hot_counter_is_whole_when_its_ttl_is_lowered() {
        let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
        let client = |ttl| {
            let settings = CounterSettings::new(ttl).shards(3);
            client_of(&cluster, 0).hot(1).build().unwrap().counters("clicks", settings).unwrap()
        };
        let (before, after) = (client(DAY), client(DAY / 24));
        let held = |cluster: &Cluster| {
            let keys = cluster.nodes.iter().map(|node| node.ask::<Vec<Vec<u8>>>(cmd("KEYS").arg("*::count:*")).len());
            keys.sum::<usize>()
        };
        let mut added = 0;
        while added < 100 || held(&cluster) < 3 {
            before.add("hot", 1).await.unwrap();
            added += 1;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!([before.get("hot").await, after.get("hot").await], [Ok(added), Ok(added)]);
        // Both add while the deployment goes on.
        for _ in 0..100 {
            before.add("hot", 1).await.unwrap();
            after.add("hot", 1).await.unwrap();
            added += 2;
        }
        assert_eq!([before.get("hot").await, after.get("hot").await], [Ok(added), Ok(added)]);
        for node in &cluster.nodes {
            for key in node.ask::<Vec<Vec<u8>>>(cmd("KEYS").arg("*::count:*")) {
                assert!(node.ask::<i64>(cmd("PTTL").arg(key)) > 3_500_000, "it is kept until the first one ends");
            }
        }
    }

    /// A slot that moves while a counter is added to takes its count along, and the numbers that were counted.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_counter_moves_with_its_slot() {
        let cluster = Cluster::start(2, 0, Layout::Contiguous, &[]);
        let counters = client_of(&cluster, 0).build().unwrap().counters("clicks", daily()).unwrap();
        counters.add("k", 1).await.unwrap();
        let key: Vec<u8> = cluster
            .nodes
            .iter()
            .find_map(|node| node.ask::<Vec<Vec<u8>>>(cmd("KEYS").arg("*")).pop())
            .expect("it is somewhere");
        let slot = Slot::of(&key).number();
        let migration = cluster.begin_migration(slot, 1 - cluster.owner_of(slot));
        assert_eq!(total(counters.add("k", 1).await.unwrap()), 2);
        cluster.move_keys(&migration);
        assert_eq!(total(counters.add("k", 1).await.unwrap()), 3);
        cluster.finish_migration(migration);
        assert_eq!(total(counters.add("k", 1).await.unwrap()), 4);
        assert_eq!(counters.get("k").await.unwrap(), 4);
    }
}
