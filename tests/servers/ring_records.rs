//! The record of a ring: of two changes at once one is made, whatever comes late, and whoever comes back hears of it.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::shared::{BURST, SPLIT, Server, candid, eventually, left, url};
use redis::cmd;
use shardlimit::counter::CounterSettings;
use shardlimit::{Limiter, NamedLimit, Ring, Shards};

fn client(nodes: &[String]) -> Limiter {
    candid(Limiter::builder().ring(nodes).shards(Shards::Off).timeout(Duration::from_secs(10))).build().unwrap()
}

fn define(limiter: &Limiter) -> NamedLimit {
    limiter.define("api", SPLIT[0].parse().unwrap()).unwrap()
}

fn ring(limiter: &Limiter) -> Ring {
    limiter.ring().unwrap().unwrap()
}

fn record(server: &Server) -> Option<String> {
    cmd("GET").arg("shardlimit:ring").query(&mut server.connection()).unwrap()
}

/// What holds up whoever writes a certain word, on its way to any server.
#[derive(Clone, Default)]
pub(crate) struct Toll {
    pub(crate) word: Arc<std::sync::OnceLock<String>>,
    pub(crate) held: Arc<AtomicUsize>,
    pub(crate) open: Arc<AtomicBool>,
}

impl Toll {
    /// A way to the server that all who use its address go. What is written comes in one piece: it is short.
    pub(crate) fn before(&self, server: &Server) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (toll, server) = (self.clone(), server.port);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, upstream) = (client.unwrap(), TcpStream::connect(("127.0.0.1", server)).unwrap());
                let back = (upstream.try_clone().unwrap(), client.try_clone().unwrap());
                let toll = toll.clone();
                std::thread::spawn(move || pass(client, upstream, |bytes| toll.pay(bytes)));
                std::thread::spawn(move || pass(back.0, back.1, |_| {}));
            }
        });
        format!("127.0.0.1:{port}")
    }

    fn pay(&self, bytes: &[u8]) {
        let Some(word) = self.word.get() else { return };
        if bytes.windows(word.len()).any(|part| part == word.as_bytes()) && !self.open.load(Ordering::SeqCst) {
            self.held.fetch_add(1, Ordering::SeqCst);
            while !self.open.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, look: impl Fn(&[u8])) {
    let mut bytes = vec![0; 64 * 1_024];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        look(&bytes[..count]);
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

/// A node of another ring has a record with a higher number: whoever took it in would follow that one, and leave its own nodes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_another_ring_is_not_taken_in() {
    let servers = Server::start_many(4, &[]);
    let [a, b, c, d] = [0, 1, 2, 3].map(|number: usize| url(&servers[number]));
    let (ours, theirs) = (client(&[a]), client(&[b.clone(), c]));
    for limiter in [&ours, &theirs] {
        assert!(define(limiter).acquire("hot").await.unwrap().is_allowed());
    }
    ring(&theirs).add(&d).await.unwrap();
    let before = record(&servers[0]).unwrap();
    let refused = ring(&ours).add(&b).await.unwrap_err();
    assert!(refused.to_string().contains("another ring"), "{refused}");
    assert_eq!(record(&servers[0]).unwrap(), before);
    // Once it is theirs no more, and empty, it is as good as any.
    ring(&theirs).remove(b.trim_start_matches("redis://")).await.unwrap();
    cmd("FLUSHALL").exec(&mut servers[1].connection()).unwrap();
    theirs.shutdown(Duration::from_secs(1)).await.unwrap();
    ring(&ours).add(&b).await.unwrap();
}

/// Some read the record, and are held up before they write the next one. Meanwhile another change is made, and keys move by it. What
/// comes late must not be taken: nobody would look for those keys where they are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_was_held_up_is_too_late() {
    let servers = Server::start_many(4, &[]);
    let toll = Toll::default();
    let ways: Vec<String> = servers.iter().map(|server| toll.before(server)).collect();
    let [a, b, new, late] = &ways[..] else { unreachable!() };
    let known = [a.clone(), b.clone()];
    let limiter = client(&known);
    let limit = define(&limiter);
    let clicks = limiter.counters("clicks", CounterSettings::new(Duration::from_secs(3_600))).unwrap();
    let keys = (0..40).map(|key| format!("key{key}"));
    for key in keys.clone() {
        assert!(limit.acquire_n(&key, 100).await.unwrap().is_allowed());
        clicks.add(&key, 3).await.unwrap();
    }
    toll.word.set(format!("node {late} ")).unwrap();
    // Each with another weight, so that each makes another record.
    let laggards: Vec<Limiter> = (0..6).map(|_| client(&known)).collect();
    let (mut waits, count) = (Vec::new(), laggards.len());
    for (weight, laggard) in (1..).zip(&laggards) {
        let (changing, node) = (ring(laggard), format!("{late}*{weight}"));
        waits.push(tokio::spawn(async move { changing.add(&node).await }));
    }
    for wait in waits {
        assert!(wait.await.unwrap().is_err(), "nobody was told of it");
    }
    assert!(toll.held.load(Ordering::SeqCst) >= count, "all have come to write");

    let changing = ring(&limiter);
    let change = {
        let new = new.clone();
        tokio::spawn(async move { changing.add(&new).await })
    };
    eventually("the change is in force", async || !ring(&limiter).is_settled()).await;
    for key in keys.clone() {
        assert!(limit.acquire_n(&key, 50).await.unwrap().is_allowed());
        clicks.add(&key, 1).await.unwrap();
    }
    toll.open.store(true, Ordering::SeqCst);
    change.await.unwrap().unwrap();
    assert_eq!(ring(&limiter).nodes().len(), 3);
    let stranger = client(&known);
    let (limit, clicks) =
        (define(&stranger), stranger.counters("clicks", CounterSettings::new(Duration::from_secs(3_600))).unwrap());
    for key in keys {
        assert_eq!(left(&limit, &key).await, BURST - 150, "{key}");
        assert_eq!(clicks.get(&key).await.unwrap(), 4, "{key}");
    }
    assert!(ring(&stranger).is_settled() && ring(&stranger).nodes() == ring(&limiter).nodes());
}

/// The first clients of a ring have different lists, and some are held up before they write what they made of theirs. Meanwhile the ring is
/// there, and in use: it is theirs too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_record_that_was_held_up_is_too_late() {
    let servers = Server::start_many(4, &[]);
    let toll = Toll::default();
    let ways: Vec<String> = servers.iter().map(|server| toll.before(server)).collect();
    let late = &ways[3];
    toll.word.set(format!("node {late} ")).unwrap();
    let laggards: Vec<Limiter> = (1..=6)
        .map(|weight| client(&[ways[0].clone(), ways[1].clone(), ways[2].clone(), format!("{late}*{weight}")]))
        .collect();
    let mut waits = Vec::new();
    for limit in laggards.iter().map(define) {
        waits.push(tokio::spawn(async move { limit.acquire_n("key0", 1).await }));
    }
    eventually("all have come to write", async || toll.held.load(Ordering::SeqCst) >= laggards.len()).await;
    let limiter = client(&ways[..3]);
    let limit = define(&limiter);
    for key in 1..40 {
        assert!(limit.acquire_n(format!("key{key}"), 100).await.unwrap().is_allowed());
    }
    toll.open.store(true, Ordering::SeqCst);
    for wait in waits {
        // Those that wrote it may not have heard what became of it in time.
        let _ = wait.await.unwrap();
    }
    for laggard in laggards.iter().chain([&limiter]) {
        let limit = define(laggard);
        for key in 1..40 {
            assert_eq!(left(&limit, &format!("key{key}")).await, BURST - 100, "key{key}");
        }
        assert_eq!(ring(laggard).nodes(), ring(&limiter).nodes());
    }
    assert_eq!(ring(&limiter).nodes().len(), 3);
}

/// Two who change the ring at once: one of them does, or both one after the other, and who did not is told so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_changes_at_once_one_is_made() {
    let servers = Server::start_many(5, &[]);
    let urls: Vec<String> = servers.iter().map(url).collect();
    let limiters: Vec<Limiter> = (0..3).map(|_| client(&urls[..2])).collect();
    let limit = define(&limiters[0]);
    for key in 0..40 {
        assert!(limit.acquire_n(format!("key{key}"), 100).await.unwrap().is_allowed());
    }
    let mut changes = Vec::new();
    for (limiter, node) in limiters.iter().zip(&urls[2..]) {
        let (changing, node) = (ring(limiter), node.clone());
        changes.push(tokio::spawn(async move { changing.add(&node).await }));
    }
    let mut made = 0;
    for change in changes {
        match change.await.unwrap() {
            Ok(()) => made += 1,
            Err(error) => {
                let why = error.to_string();
                assert!(why.contains("changed by somebody else") || why.contains("settle it first"), "{error}");
            }
        }
    }
    assert_eq!(made, 1);
    let stranger = client(&urls[..2]);
    let limit = define(&stranger);
    for key in 0..40 {
        assert_eq!(left(&limit, &format!("key{key}")).await, BURST - 100, "key{key}");
    }
    assert!(ring(&stranger).is_settled() && ring(&stranger).nodes().len() == 3);
}

/// One that was away while it was removed, and comes back with nothing or with what was then, leads nobody to a ring of the past.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_comes_back_is_told_what_counts_now() {
    let mut servers = Server::start_many(3, &[]);
    let urls: Vec<String> = servers.iter().map(url).collect();
    let limiter = client(&urls);
    assert!(define(&limiter).acquire("key").await.unwrap().is_allowed());
    let past = record(&servers[2]).unwrap();
    servers[2].kill();
    ring(&limiter).remove_lost(&format!("127.0.0.1:{}", servers[2].port)).await.unwrap();
    servers[2].restart();
    eventually("it is told", async || record(&servers[2]) == record(&servers[0])).await;
    cmd("SET").arg("shardlimit:ring").arg(past).exec(&mut servers[2].connection()).unwrap();
    eventually("it is told again", async || record(&servers[2]) == record(&servers[0])).await;
    let misled = client(&urls[2..]);
    assert!(define(&misled).acquire("key").await.unwrap().is_allowed());
    assert_eq!(ring(&misled).nodes(), ring(&limiter).nodes());
}
