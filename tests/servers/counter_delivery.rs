//! Adds that the store can't take when they come: delivered later, each once, or told.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::shared::{Server, client, eventually};
use redis::cmd;
use shardlimit::counter::{Added, CounterSettings, Counters, Within};
use shardlimit::{ErrorKind, Limiter};

const DAY: Duration = Duration::from_secs(86_400);
const LONG: Duration = Duration::from_secs(60);
const MILLION: u64 = 1_000_000;

fn limiter(server: &Server) -> Limiter {
    client(server).hot(10).timeout(Duration::from_millis(300)).deadline(Duration::from_millis(50)).build().unwrap()
}

/// However long a busy machine takes to read it.
async fn total(counters: &Counters) -> i64 {
    let mut total = None;
    eventually("it is read", async || {
        total = counters.deadline(LONG).get("k").await.ok();
        total.is_some()
    })
    .await;
    total.expect("it was read")
}

/// The first add opens a connection, and may take longer than its deadline.
async fn first(counters: &Counters) {
    let _ = counters.add("k", 1).await.unwrap();
    counters.flush(LONG).await.unwrap();
    assert_eq!(total(counters).await, 1);
}

fn counters(server: &Server, settings: CounterSettings) -> Counters {
    limiter(server).counters("clicks", settings).unwrap()
}

/// Looks at every key, again and again: none may be without an end. Says how many looks there were.
fn watch_ends(port: u16, is_over: &AtomicBool) -> u64 {
    let client = redis::Client::open(("127.0.0.1", port)).unwrap();
    let mut looks = 0;
    while !is_over.load(Ordering::Relaxed) {
        let Ok(mut connection) = client.get_connection() else { continue };
        let look = "local ends = {} for _, key in ipairs(redis.call('KEYS', '*{*')) do ends[#ends + 1] = redis.call('PTTL', key) end return ends";
        // The server comes and goes.
        while let Ok(ends) = cmd("EVAL").arg(look).arg(0).query::<Vec<i64>>(&mut connection) {
            assert!(ends.iter().all(|ttl| *ttl >= 0), "{ends:?}");
            looks += u64::from(!ends.is_empty());
            if is_over.load(Ordering::Relaxed) {
                break;
            }
            std::thread::sleep(Duration::from_millis(3));
        }
    }
    looks
}

/// Cuts every connection but its own, again and again, until all adds have begun. Says how many.
fn cut(port: u16, begun: &AtomicU64) -> u64 {
    let client = redis::Client::open(("127.0.0.1", port)).unwrap();
    let mut cuts = 0;
    while begun.load(Ordering::Relaxed) < MILLION {
        if let Ok(mut connection) = client.get_connection() {
            cuts += cmd("CLIENT").arg(&["KILL", "TYPE", "normal", "SKIPME", "yes"]).query(&mut connection).unwrap_or(0);
        }
        std::thread::sleep(Duration::from_millis(300));
    }
    cuts
}

/// Eight clients add a million while the server is killed and comes back, and connections are cut all the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_million_adds_are_a_million() {
    const KEYS: u64 = 40;
    let mut server = Server::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    let settings = || CounterSettings::new(DAY).shards(2);
    let clients: Vec<Counters> = (0..8).map(|_| counters(&server, settings())).collect();
    let (begun, queued, is_over, port) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false), server.port);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| watch_ends(port, &is_over));
        let cutter = scope.spawn(|| cut(port, &begun));
        let killer = scope.spawn(|| {
            for part in 1..=3 {
                while begun.load(Ordering::Relaxed) < part * MILLION / 4 {
                    std::thread::sleep(Duration::from_millis(1));
                }
                server.kill();
                server.restart();
            }
        });
        let work = clients.iter().map(|counters| {
            let (begun, queued) = (&begun, &queued);
            async move {
                for round in 0..MILLION / 8 / 500 {
                    let adds = (0..500).map(|add| (format!("key:{}", (round + add) % KEYS), 1));
                    begun.fetch_add(500, Ordering::Relaxed);
                    for added in counters.add_many(adds).await {
                        queued.fetch_add(u64::from(added.unwrap() == Added::Queued), Ordering::Relaxed);
                    }
                }
                counters.flush(LONG).await.unwrap();
            }
        });
        let ended = tokio::task::block_in_place(|| {
            let all = work.map(|work| scope.spawn(|| pollster::block_on(work))).collect::<Vec<_>>();
            all.into_iter().map(std::thread::ScopedJoinHandle::join).collect::<Vec<_>>()
        });
        killer.join().unwrap();
        // Before anything can fail: the others wait for it.
        is_over.store(true, Ordering::Relaxed);
        for client in ended {
            client.unwrap();
        }
        let (looks, cuts) = (watcher.join().unwrap(), cutter.join().unwrap());
        println!("{looks} looks, {cuts} cuts, {} queued", queued.load(Ordering::Relaxed));
        assert!(looks > 0 && cuts > 0 && queued.load(Ordering::Relaxed) > 0);
    });
    for client in &clients {
        assert_eq!((client.undelivered(), client.dropped().refused, client.dropped().unknown), (0, 0, 0));
    }
    let reader = counters(&server, settings());
    let totals = reader.deadline(LONG).get_many((0..KEYS).map(|key| format!("key:{key}"))).await;
    assert_eq!(totals.into_iter().map(|total| total.unwrap() as u64).sum::<u64>(), MILLION);
    // They were hot: the other shards have a part of it.
    let sub_keys: Vec<Vec<u8>> = cmd("KEYS").arg("*::count:*").query(&mut server.connection()).unwrap();
    assert!(sub_keys.len() as u64 > KEYS, "{} sub-keys of {KEYS} keys", sub_keys.len());
}

/// An add that nobody answered is sent again under its number, and counted once, by whichever copy came first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_for_a_server_is_counted_once() {
    let server = Server::start(&[]);
    let counters = counters(&server, CounterSettings::new(DAY));
    first(&counters).await;
    server.pause();
    assert_eq!(counters.add("k", 10).await.unwrap(), Added::Queued);
    assert_eq!(counters.add("k", 100).await.unwrap(), Added::Queued);
    assert_eq!(counters.undelivered(), 2);
    assert_eq!(counters.flush(Duration::from_millis(10)).await.unwrap_err().field(), "counters");
    // Several copies lie in the server's buffers by now.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    server.resume();
    counters.flush(LONG).await.unwrap();
    assert_eq!(total(&counters).await, 111);
    assert_eq!(counters.dropped().unknown, 0);
}

/// The first to be late was told; those who came after him waited until his request was given up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_comes_while_a_request_hangs_is_told_by_his_deadline() {
    let server = Server::start(&[]);
    let builder = client(&server).timeout(Duration::from_secs(20)).deadline(Duration::from_millis(50));
    let counters = builder.build().unwrap().counters("clicks", CounterSettings::new(DAY)).unwrap();
    first(&counters).await;
    server.pause();
    for _ in 0..5 {
        let begun = Instant::now();
        assert_eq!(counters.add("k", 1).await.unwrap(), Added::Queued);
        assert!(begun.elapsed() < Duration::from_secs(5), "it took {:?}", begun.elapsed());
    }
    server.resume();
    counters.flush(LONG).await.unwrap();
    assert_eq!(total(&counters).await, 6);
}

/// A copy that runs when the shard may have forgotten its number could be the second: it does not count, and is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_older_than_the_horizon_is_told_and_never_sent_again() {
    let server = Server::start(&[]);
    let counters = counters(&server, CounterSettings::new(DAY).horizon(Duration::from_secs(1)));
    first(&counters).await;
    server.pause();
    assert_eq!(counters.add("k", 10).await.unwrap(), Added::Queued);
    eventually("it is given up", async || counters.dropped().unknown == 1).await;
    assert_eq!(counters.undelivered(), 0);
    tokio::time::sleep(Duration::from_millis(500)).await;
    server.resume();
    assert_eq!(counters.add("k", 100).await.map(|_| ()), Ok(()));
    counters.flush(LONG).await.unwrap();
    assert_eq!(total(&counters).await, 101, "no late copy counted");
}

/// Whoever asks whether there is room is told by his deadline, and what he was told stays true.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_with_a_bound_is_never_queued() {
    const ROOM: i64 = 1_000_000;
    let mut server = Server::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    let counters = counters(&server, CounterSettings::new(DAY));
    first(&counters).await;
    // A busy machine can make any of them late: what each was told is counted, and the sum has to fit.
    let (counted, unknown) = (AtomicI64::new(1), AtomicI64::new(0));
    let add = async || {
        let told = counters.add_within("k", 1, ROOM).await;
        match &told {
            Ok(within) => {
                assert!(matches!(within, Within::Counted { .. }), "{within:?}");
                counted.fetch_add(1, Ordering::Relaxed)
            }
            Err(error) if error.kind() == ErrorKind::Unknown => unknown.fetch_add(1, Ordering::Relaxed),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NotSent, "{error}");
                0
            }
        };
        told
    };
    eventually("there is no room", async || {
        counters.add_within("k", ROOM, ROOM).await.is_ok_and(|within| within == Within::Above { total: 1 })
    })
    .await;
    server.pause();
    // One that a busy machine did not get to send in time says so.
    eventually("one is sent", async || add().await.unwrap_err().kind() == ErrorKind::Unknown).await;
    server.resume();
    assert_eq!(counters.undelivered(), 0, "it is not kept for later");
    eventually("it answers", async || add().await.is_ok()).await;
    server.kill();
    eventually("the loss is noticed", async || add().await.is_err_and(|error| error.kind() == ErrorKind::NotSent))
        .await;
    assert_eq!(counters.undelivered(), 0);
    server.restart();
    eventually("it answers again", async || add().await.is_ok()).await;
    let (counted, unknown) = (counted.into_inner(), unknown.into_inner());
    let total = total(&counters).await;
    assert!((counted..=counted + unknown).contains(&total), "{counted} and {unknown} unknown: {total}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_refuses_and_says_so() {
    let mut server = Server::start(&[]);
    server.kill();
    let limiter = limiter(&server);
    let counters = limiter.counters("clicks", CounterSettings::new(DAY).queue(1)).unwrap();
    assert_eq!(counters.add("a", 1).await.unwrap(), Added::Queued);
    assert_eq!(counters.add("a", 1).await.unwrap(), Added::Queued, "they are summed up");
    let error = counters.add("b", 1).await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::NotSent, "queue"), "{error}");
    assert_eq!((counters.undelivered(), counters.dropped().refused), (2, 1));

    let error = limiter.shutdown(Duration::from_millis(50)).await.unwrap_err();
    assert!(error.to_string().contains("adds"), "{error}");
    eventually("nothing is left", async || counters.undelivered() == 0).await;
    assert_eq!(counters.dropped().unknown, 2, "what was left is told");
    assert_eq!(counters.add("a", 1).await.unwrap_err().kind(), ErrorKind::NotSent);
}

/// What is queued when a limiter is shut down is delivered first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_delivers_what_is_queued() {
    let server = Server::start(&[]);
    let limiter = limiter(&server);
    let clicks = limiter.counters("clicks", CounterSettings::new(DAY)).unwrap();
    first(&clicks).await;
    server.pause();
    assert_eq!(clicks.add("k", 10).await.unwrap(), Added::Queued);
    let ending = tokio::spawn(async move { limiter.shutdown(LONG).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    server.resume();
    ending.await.unwrap().unwrap();
    assert_eq!((clicks.undelivered(), clicks.dropped().unknown), (0, 0));
    assert_eq!(total(&counters(&server, CounterSettings::new(DAY))).await, 11);
}

/// Nobody is left who could ask: what is queued ends with its limiter, and so do its tasks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limiter_that_is_dropped_delivers_no_more() {
    let mut server = Server::start(&[]);
    server.kill();
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let clicks = counters(&server, CounterSettings::new(DAY));
    for key in ["a", "b", "c"] {
        assert_eq!(clicks.add(key, 1).await.unwrap(), Added::Queued);
    }
    assert!(tasks() >= before + 3, "each is tried again");
    drop(clicks);
    eventually("all of it is gone", async || tasks() <= before).await;
}
