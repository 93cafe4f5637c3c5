//! The cluster as a client sees it: from the first node that answers, and as it changes.

use std::net::TcpListener;
use std::time::Duration;

use crate::shared::{Cluster, Layout, candid, client_of, define, eventually, take_all, url};
use shardlimit::{
    BreakerForce, BreakerState, DecidedBy, ErrorKind, FailurePolicy, Limiter, Shards, Slot, TopologyWatch,
};

/// Waits until the watch tells that this port owns the slot.
async fn until_owned(watch: &mut TopologyWatch, slot: Slot, port: u16) {
    let told = async {
        let mut now = watch.current();
        while now.master_of(slot).is_none_or(|master| master.port != port) {
            now = watch.changed().await.expect("the limiter is there");
        }
    };
    tokio::time::timeout(Duration::from_secs(60), told).await.expect("it is told in the end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_tells_of_new_owners_and_masters() {
    let mut cluster = Cluster::start(2, 0, Layout::Contiguous, &[]);
    let limiter = client_of(&cluster, 1).build().unwrap();
    let limit = limiter.define("api", "10/day".parse().unwrap()).unwrap();
    let mut watch = limiter.watch_topology().unwrap().expect("it is on a cluster");
    let slot = Slot::of(b"api:hot");
    let from = cluster.owner_of(slot.number());
    until_owned(&mut watch, slot, cluster.nodes[from].server.port).await;
    let first = watch.current();
    assert_eq!((first.masters().len(), first.covered()), (2, 16_384));

    cluster.migrate(slot.number(), 1 - from);
    cluster.wait_until_ok();
    // A call on the slot finds out at once; without one it takes half a minute.
    assert!(limit.acquire("hot").await.unwrap().is_allowed());
    until_owned(&mut watch, slot, cluster.nodes[1 - from].server.port).await;

    let third = tokio::task::block_in_place(|| cluster.add_master());
    cluster.migrate(slot.number(), third);
    cluster.wait_until_ok();
    assert!(limit.acquire("hot").await.unwrap().is_allowed());
    until_owned(&mut watch, slot, cluster.nodes[third].server.port).await;
    eventually("the third master is known by its id", async || {
        let now = watch.current();
        now.masters().len() == 3 && now.masters().iter().any(|master| *master.id == *cluster.nodes[third].id)
    })
    .await;
    assert!(watch.current().epoch() >= first.epoch());
    assert_eq!((first.masters().len(), first.covered()), (2, 16_384), "a snapshot never changes");

    drop((limit, limiter));
    let end = async { while watch.changed().await.is_some() {} };
    tokio::time::timeout(Duration::from_secs(30), end).await.expect("it ends with the limiter");
    assert!(Limiter::local().watch_topology().unwrap().is_none());
}

/// An operator took a master out; when it had given its slots away and got some again, it was asked as if nobody had.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_breaker_is_forced_also_when_its_master_comes_back() {
    let mut cluster = Cluster::start(2, 0, Layout::Contiguous, &[]);
    let limiter = client_of(&cluster, 0).timeout(Duration::from_secs(1)).build().unwrap();
    let limit = limiter.define("api", "1000/day".parse().unwrap()).unwrap();
    let slot = Slot::of(b"api:hot").number();
    let (first, third) = (cluster.owner_of(slot), tokio::task::block_in_place(|| cluster.add_master()));
    let third_is_known = async |is_known: bool, port: u16| {
        let known = || limiter.watch_topology().unwrap().expect("a cluster").current();
        eventually("all know who has the slot", async || {
            // A call finds out, whatever becomes of it.
            let _ = limit.acquire("hot").await;
            known().masters().iter().any(|master| master.port == port) == is_known
        })
        .await;
    };
    let port = cluster.nodes[third].server.port;
    let address = format!("127.0.0.1:{port}");
    let state = || limiter.breakers().into_iter().find(|(master, _)| *master == address).map(|(_, state)| state);
    let move_to = |to: usize| {
        cluster.migrate(slot, to);
        cluster.wait_until_ok();
    };
    move_to(third);
    third_is_known(true, port).await;
    limiter.force_breaker(&address, BreakerForce::Open).unwrap();
    assert_eq!(state(), Some(BreakerState::Open));
    move_to(first);
    third_is_known(false, port).await;
    assert_eq!(state(), None);
    move_to(third);
    third_is_known(true, port).await;
    assert_eq!(state(), Some(BreakerState::Open), "it was never said otherwise");
    move_to(first);
    third_is_known(false, port).await;
    limiter.force_breaker(&address, BreakerForce::Off).expect("also while it is away");
    move_to(third);
    third_is_known(true, port).await;
    assert_eq!(state(), Some(BreakerState::Closed));
}

/// Any seed that answers will do: the first two refuse, and say nothing at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_seeds_are_passed_over() {
    let cluster = Cluster::start(2, 0, Layout::Contiguous, &[]);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let seeds = [
        format!("redis://{closed}"),
        format!("redis://{}", silent.local_addr().unwrap()),
        url(&cluster.nodes[1].server),
    ];
    let limit = define(candid(Limiter::builder().redis(seeds).timeout(Duration::from_secs(20))), "40/day");
    assert_eq!(take_all(&limit, "hot").await, 40);
    assert_eq!(limit.plan("hot").await.unwrap().shards.len(), 2);
}

#[test]
fn a_malformed_url_is_found_when_the_limiter_is_built() {
    for url in
        ["", "http://127.0.0.1:6379", "redis://", "redis://127.0.0.1:port", "redis://127.0.0.1:99999", "unix:///tmp/x"]
    {
        let error = Limiter::builder().redis([url]).build().unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidSetting, "redis"), "{url:?}");
    }
    let second = Limiter::builder().redis(["redis://127.0.0.1:6379", "redis://a b"]).build().unwrap_err();
    assert_eq!(second.kind(), ErrorKind::InvalidSetting);
    let none: [&str; 0] = [];
    assert_eq!(Limiter::builder().redis(none).build().unwrap_err().kind(), ErrorKind::InvalidSetting);
    let at_once = Limiter::builder().redis(["redis://127.0.0.1:6379"]).timeout(Duration::ZERO).build().unwrap_err();
    assert_eq!((at_once.kind(), at_once.field()), (ErrorKind::InvalidSetting, "timeout"));
}

/// A process may build its limiters before it forks.
#[test]
fn building_opens_no_socket_and_starts_no_thread() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let limiter = Limiter::builder().redis([format!("redis://{}", listener.local_addr().unwrap())]).build().unwrap();
    let limit = limiter.define("api", "10/day".parse().unwrap()).unwrap();
    let hot = limit.handle("hot").unwrap();
    assert!(hot.try_acquire(1).unwrap().is_none(), "only the store can tell");
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

/// Nobody is there: a call says so by its time-out, and where it looked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_server_calls_end_with_its_address() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    for address in [closed, silent.local_addr().unwrap()] {
        let seeds = [format!("redis://{address}")];
        let limit = define(candid(Limiter::builder().redis(seeds).timeout(Duration::from_millis(1_500))), "300/day");
        let call = tokio::time::timeout(Duration::from_secs(30), limit.acquire("hot"));
        let error = call.await.expect("a call never hangs").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotSent, "{error}");
        assert!(error.to_string().contains(&address.to_string()), "{error}");
        assert_eq!(error.to_string().matches("nothing was charged").count(), 1, "said once is enough: {error}");
    }
}

/// Calls on fresh keys of a cluster that is down, or that nobody finds, waited out their deadlines for a look that could not help.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_for_what_lasts() {
    let mut cluster = Cluster::start(3, 0, Layout::Contiguous, &["--cluster-require-full-coverage", "yes"]);
    let away = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let limits = [client_of(&cluster, 0), Limiter::builder().redis([format!("redis://127.0.0.1:{away}")])]
        .map(|builder| define(builder.deadline(Duration::from_secs(2)).on_failure(FailurePolicy::Closed), "1000/day"));
    assert!(limits[0].acquire("hot").await.unwrap().is_allowed());
    cluster.nodes[2].server.kill();
    let is_down = || cluster.nodes[..2].iter().all(|node| node.info("state") == "fail");
    eventually("the others say so", async || is_down()).await;
    for limit in limits {
        let calls = async |keys: std::ops::Range<u32>| {
            for number in keys {
                let decision = limit.acquire(format!("key:{number}")).await.unwrap();
                assert_eq!((decision.is_allowed(), decision.decided_by()), (false, DecidedBy::Fallback));
            }
            limit.failures().late
        };
        // Some find out.
        let late = calls(0..5).await;
        assert_eq!(calls(5..200).await, late);
    }
}

/// As soon as it is over, they are asked again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_lasted_is_over_when_they_answer() {
    let mut cluster = Cluster::start(3, 0, Layout::Contiguous, &["--cluster-require-full-coverage", "yes"]);
    let limit =
        define(client_of(&cluster, 0).deadline(Duration::from_secs(2)).on_failure(FailurePolicy::Closed), "1000/day");
    let fresh = async |number: u32| limit.acquire(format!("key:{number}")).await.unwrap().is_allowed();
    assert!(fresh(0).await);
    cluster.nodes[2].server.kill();
    let is_down = || cluster.nodes[..2].iter().all(|node| node.info("state") == "fail");
    eventually("the others say so", async || is_down()).await;
    for number in 1..50 {
        assert!(!fresh(number).await, "{number}");
    }
    cluster.nodes[2].server.restart();
    tokio::task::block_in_place(|| cluster.wait_until_ok());
    for number in 1..50 {
        eventually("each is served again", async || fresh(number).await).await;
    }
}

/// Once nobody waited for it any more nobody looked either: a slot that had found an owner had none for half a minute.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_finds_an_owner_is_found() {
    let cluster = Cluster::start(2, 0, Layout::Contiguous, &["--cluster-require-full-coverage", "no"]);
    let builder = client_of(&cluster, 0).deadline(Duration::from_secs(2)).on_failure(FailurePolicy::Closed);
    let limit = define(builder.shards(Shards::Off), "1000/day");
    assert!(limit.acquire("hot").await.unwrap().is_allowed());
    let slot = Slot::of(b"api:hot").number();
    let tell = |node: usize, word: &str| {
        cluster.nodes[node].ask::<()>(redis::cmd("CLUSTER").arg(word).arg(slot));
    };
    let before = cluster.owner_of(slot);
    for node in 0..2 {
        tell(node, "DELSLOTS");
    }
    // Looks have come to nothing when it was asked for so long.
    for _ in 0..30 {
        assert!(!limit.acquire("hot").await.unwrap().is_allowed(), "nobody has it");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tell(1 - before, "ADDSLOTS");
    let served = eventually("it is served again", async || limit.acquire("hot").await.unwrap().is_allowed());
    // Whoever is not told looks after fifteen at the least.
    tokio::time::timeout(Duration::from_secs(12), served).await.expect("somebody looks");
}
