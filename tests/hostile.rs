//! Servers that are broken or mean: each call ends with an error, the connection ends, little memory is taken, and as soon as
//! the server behaves, all is well again.
#![cfg(feature = "redis")]
#![allow(unsafe_code)]

#[path = "support/heap.rs"]
#[allow(dead_code, unreachable_pub)]
mod heap;
#[path = "support/hostile.rs"]
mod hostile;
#[path = "support/server.rs"]
#[allow(dead_code, unreachable_pub)]
mod server;

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hostile::{Act, Hostile, Words, slots};
use shardlimit::{BreakerSettings, Builder, Error, ErrorKind, FailurePolicy, Limiter, NamedLimit};

#[global_allocator]
static HEAP: heap::Counting = heap::Counting;

const MIB: isize = 1 << 20;

fn client(server: &Hostile, timeout: Duration) -> NamedLimit {
    define(settings(server, timeout))
}

fn define(builder: Builder) -> NamedLimit {
    builder.build().unwrap().define("api", "1000000/day burst 1000000".parse().unwrap()).unwrap()
}

fn settings(server: &Hostile, timeout: Duration) -> Builder {
    // These servers are to be met as often as it takes.
    let mut breaker = BreakerSettings::default();
    breaker.least = u32::MAX;
    let builder = Limiter::builder().redis([server.url()]).timeout(timeout).breaker(breaker);
    builder.deadline(Duration::from_secs(60)).on_failure(FailurePolicy::Error)
}

/// Of a key that was never asked for: of one whose shard has just failed, calls do not ask again at once.
async fn failure(limit: &NamedLimit) -> Error {
    static KEYS: AtomicUsize = AtomicUsize::new(0);
    let key = format!("bob:{}", KEYS.fetch_add(1, Ordering::Relaxed));
    let error = limit.acquire(key).await.expect_err("a reply that can't be read");
    let text = format!("{error} {error:?}");
    assert!(text.len() < 2_000 && text.chars().all(|c| !c.is_control() && (c.is_ascii() || c == '…')), "{text:?}");
    error
}

async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let patience = Instant::now();
    while !holds().await {
        assert!(patience.elapsed() < Duration::from_secs(30), "waited 30 s until {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn is_script(words: &Words) -> bool {
    words[0].starts_with(b"EVAL")
}

/// Says this once, and that for ever.
fn endless(to: &mut TcpStream, once: &[u8], then: &[u8]) -> Act {
    let block = then.repeat(1 + 16_384 / then.len());
    Act::Done(to.write_all(once).and_then(|()| {
        loop {
            to.write_all(&block)?;
        }
    }))
}

/// What no reply ends with, each under the word for it.
const ENDLESS: [(&str, &[u8], &[u8]); 15] = [
    ("a string of 500 MB", b"$500000000\r\n", b"x"),
    ("a string that is longer than there are bytes", b"$9223372036854775807\r\n", b"x"),
    ("a string whose length has no end", b"$", b"1"),
    ("a line without end", b"+", b"x"),
    ("an error without end", b"-ERR ", b"x"),
    ("a number without end", b":", b"1"),
    ("a list of a thousand million", b"*1000000000\r\n", b":1\r\n"),
    ("a list of 64,000", b"*64000\r\n", b"_\r\n"),
    ("a list of 640,000", b"*640000\r\n", b"_\r\n"),
    ("a list of lists without end", b"*60000\r\n", b"*60000\r\n"),
    ("lists within lists", b"", b"*1\r\n"),
    ("a map of a thousand million", b"%1000000000\r\n", b"_\r\n"),
    ("attributes without end", b"", b"|1\r\n+a\r\n+b\r\n"),
    ("a text with a length below zero", b"=-5\r\n", b"x"),
    ("bytes that are no reply", b"", b"\x00\xff\x1b[2J"),
];

/// The budget of a reply is 4 MiB. Beside it stand what the buffer grows by, and the copy that is parsed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_replies_to_a_script_end_the_connection() {
    let server = Hostile::start();
    let limit = client(&server, Duration::from_secs(10));
    let mut most = 0;
    for (what, once, then) in ENDLESS {
        assert!(limit.acquire("alice").await.unwrap().is_allowed(), "before {what}");
        // Until nobody looks at the cluster any more: while somebody does, the next reply may be as large as what he asked for.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let (_, closed) = server.connections();
        let before = heap::most_of_all().min(heap::bytes_of_all());
        server.attack(move |words, to| if is_script(words) { endless(to, once, then) } else { Act::Honest });
        let error = failure(&limit).await;
        assert_eq!(error.kind(), ErrorKind::Unknown, "{what}: {error}");
        server.relent();
        eventually("the connection has ended", async || server.connections().1 > closed).await;
        let grown = heap::most_of_all() - before;
        println!("{what}: {} kB at the most; {error}", grown / 1_024);
        most = most.max(grown);
        assert!(grown < 16 * MIB, "{what}: {grown} bytes");
        eventually("it can be used again", async || limit.acquire("alice").await.is_ok()).await;
    }
    println!("at the most {} kB", most / 1_024);
}

/// The same before anything could be asked: nothing was sent, and nothing charged. What describes the cluster may have 40 MiB.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_replies_before_the_first_call_are_not_sent() {
    let server = Hostile::start();
    for (to, most) in [("HELLO", 16 * MIB), ("SCRIPT", 16 * MIB), ("CLUSTER", 120 * MIB)] {
        for (what, once, then) in ENDLESS {
            let before = heap::most_of_all().min(heap::bytes_of_all());
            server.attack(
                move |words, stream| {
                    if words[0] == to.as_bytes() { endless(stream, once, then) } else { Act::Honest }
                },
            );
            let limit = client(&server, Duration::from_millis(300));
            let error = failure(&limit).await;
            assert_eq!(error.kind(), ErrorKind::NotSent, "{what} to {to}: {error}");
            let grown = heap::most_of_all() - before;
            println!("{what} to {to}: {} kB at the most; {error}", grown / 1_024);
            assert!(grown < most, "{what} to {to}: {grown} bytes");
        }
        server.relent();
        let limit = client(&server, Duration::from_secs(10));
        assert!(limit.acquire("alice").await.unwrap().is_allowed());
    }
}

/// A description with 16,384 ranges of three nodes each is as large as one can honestly be.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_largest_cluster_can_be_described() {
    let server = Hostile::start();
    let port = server.port();
    server.attack(move |words, to| match words.get(1).map(Vec::as_slice) {
        Some(b"SLOTS") => Act::Done(to.write_all(&slots(port, (0..16_384).map(|slot| (slot, slot))))),
        _ => Act::Honest,
    });
    let limit = client(&server, Duration::from_secs(10));
    assert!(limit.acquire("alice").await.unwrap().is_allowed());
    assert_eq!(limit.plan("alice").await.unwrap().shards.len(), 1);
}

/// Whole replies of the wrong kind, and lists of the wrong things.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_of_the_wrong_kind_are_unknown() {
    let server = Hostile::start();
    let limit = client(&server, Duration::from_secs(10));
    for wrong in [
        "+OK\r\n",
        ":5\r\n",
        "$-1\r\n",
        "_\r\n",
        "#t\r\n",
        ",1.5\r\n",
        "(99\r\n",
        "$3\r\nabc\r\n",
        "%1\r\n+a\r\n+b\r\n",
        "~1\r\n:1\r\n",
        "=7\r\ntxt:abc\r\n",
        "|1\r\n+a\r\n+b\r\n*0\r\n",
        "*0\r\n",
        "*-1\r\n",
        "*1\r\n:1\r\n",
        "*2\r\n:1\r\n:0\r\n",
        "*2\r\n:1\r\n:9\r\n",
        "*1\r\n:2\r\n",
        "*2\r\n+1\r\n+0\r\n",
        "*3\r\n:1\r\n:1\r\n$3\r\nabc\r\n",
        "*2\r\n:1\r\n-ERR inside\r\n",
        "*1\r\n*1\r\n*1\r\n:1\r\n",
    ] {
        eventually("it can be used", async || limit.acquire("alice").await.is_ok()).await;
        server.attack(
            move |words, to| if is_script(words) { Act::Done(to.write_all(wrong.as_bytes())) } else { Act::Honest },
        );
        let error = failure(&limit).await;
        assert_eq!(error.kind(), ErrorKind::Unknown, "{wrong:?}: {error}");
        server.relent();
    }
}

/// An error is an answer: what it says is shown, but not as it came.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_server_says_reaches_no_terminal_as_it_is() {
    let server = Hostile::start();
    let limit = client(&server, Duration::from_millis(300));
    assert!(limit.acquire("alice").await.unwrap().is_allowed());
    let long = format!("-ERR \x1b[31m{}\r\n", "x".repeat(60_000));
    for (said, kind) in [
        ("-ERR \x1b]0;title\x07 \u{202e}\r\n", ErrorKind::Refused),
        (&*Box::leak(long.into_boxed_str()), ErrorKind::Refused),
        ("-\x1b[2J\r\n", ErrorKind::Refused),
        ("-MOVED 1 \x1b[2J:1\r\n", ErrorKind::Refused),
        ("-ASK 1 \x1b[2J:1\r\n", ErrorKind::Refused),
        ("-CLUSTERDOWN \x1b[2J\r\n", ErrorKind::NotSent),
    ] {
        server.attack(
            move |words, to| if is_script(words) { Act::Done(to.write_all(said.as_bytes())) } else { Act::Honest },
        );
        let error = failure(&limit).await;
        assert_eq!(error.kind(), kind, "{error}");
    }
}

/// One byte now and then: calls end by their time-out, and the connection when its reply has taken too long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_that_drips_ends_the_connection() {
    let server = Hostile::start();
    let limit = client(&server, Duration::from_millis(200));
    assert!(limit.acquire("alice").await.unwrap().is_allowed());
    let (_, closed) = server.connections();
    server.attack(|words, to| {
        if !is_script(words) {
            return Act::Honest;
        }
        let drip = |to: &mut TcpStream| -> io::Result<()> {
            to.write_all(b"$1000000\r\n")?;
            loop {
                to.write_all(b"x")?;
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        Act::Done(drip(to))
    });
    assert_eq!(failure(&limit).await.kind(), ErrorKind::Unknown);
    eventually("the connection has ended", async || server.connections().1 > closed).await;
    server.relent();
    eventually("it can be used again", async || limit.acquire("alice").await.is_ok()).await;
}

/// Requests that nobody waits for any more leave something behind until they are answered: with too many the connection ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_swallows_everything_fills_no_memory() {
    let server = Hostile::start();
    // What is kept of keys whose shard does not answer is another matter.
    let limit = define(settings(&server, Duration::from_millis(50)).max_keys(1_000));
    eventually("it can be used", async || limit.acquire("alice").await.is_ok()).await;
    let (opened, closed) = server.connections();
    let before = heap::most_of_all().min(heap::bytes_of_all());
    server.attack(|words, _| if is_script(words) { Act::Done(Ok(())) } else { Act::Honest });
    let callers: Vec<_> = (0..2_000)
        .map(|number| {
            let limit = limit.clone();
            // Different keys do not wait for each other, and none is known to be sick.
            tokio::spawn(async move {
                for time in 0.. {
                    let _ = limit.acquire(format!("key {number} {time}")).await;
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    eventually("the connection has ended", async || server.connections().1 > closed).await;
    callers.iter().for_each(tokio::task::JoinHandle::abort);
    let grown = heap::most_of_all() - before;
    println!("{} connections, {} kB at the most", server.connections().0 - opened, grown / 1_024);
    assert!(grown < 64 * MIB, "{grown} bytes");
    server.relent();
    eventually("it can be used again", async || limit.acquire("alice").await.is_ok()).await;
}

/// A reply too many would be taken for the answer to the next request, and every one after it for another's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_that_nobody_asked_for_end_the_connection() {
    let server = Hostile::start();
    let limit = client(&server, Duration::from_secs(10));
    assert!(limit.acquire("alice").await.unwrap().is_allowed());
    let (_, closed) = server.connections();
    server.attack(
        |words, _| if is_script(words) { Act::Instead(Box::new(|reply| reply.repeat(2))) } else { Act::Honest },
    );
    // Its own answer is the first of the two, and counts if the other one comes later.
    if let Err(error) = limit.acquire("alice").await {
        assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
        // Or it was given another's.
        let text = error.to_string();
        assert!(text.contains("nobody asked for") || text.contains("malformed reply"), "{text}");
    }
    eventually("the connection has ended", async || server.connections().1 > closed).await;
    server.relent();
    eventually("it can be used again", async || limit.acquire("alice").await.is_ok()).await;
}

/// Redirects that lead everywhere and nowhere: no more nodes are remembered than a cluster can have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redirects_without_end_are_not_followed_without_end() {
    static SAID: AtomicUsize = AtomicUsize::new(0);
    let server = Hostile::start();
    let port = server.port();
    let limit = client(&server, Duration::from_millis(300));
    assert!(limit.acquire("alice").await.unwrap().is_allowed());
    for asking in [false, true] {
        let before = SAID.load(Ordering::SeqCst);
        server.attack(move |words, to| {
            if !is_script(words) {
                return Act::Honest;
            }
            let number = SAID.fetch_add(1, Ordering::SeqCst);
            let how = if asking { "ASK" } else { "MOVED" };
            // Another name for the same place each time.
            let host = format!("0x{}7f.0.0.1", "0".repeat(number % 200));
            Act::Done(to.write_all(format!("-{how} {} {host}:{port}\r\n", number % 16_384).as_bytes()))
        });
        // Each redirect proves that nothing ran; but the time of the call may end while one more request is out.
        let kind = failure(&limit).await.kind();
        assert!(matches!(kind, ErrorKind::NotSent | ErrorKind::Unknown), "{kind:?}");
        let said = SAID.load(Ordering::SeqCst) - before;
        println!("{said} redirects in one call");
        assert!(said <= 60, "{said} redirects in one call of 300 ms");
        server.relent();
        eventually("it can be used again", async || limit.acquire("alice").await.is_ok()).await;
    }
}

/// One of two connections whose bytes go nowhere: it is given up after a few calls, because the other has answers; alone it would be
/// suspected of nothing for 5 s, some fifty calls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_alone_is_silent_is_given_up_soon() {
    let server = Hostile::start();
    let mut breaker = BreakerSettings::default();
    breaker.least = u32::MAX;
    let builder = Limiter::builder().redis([server.url()]).timeout(Duration::from_millis(100)).breaker(breaker);
    let builder = builder.connections(2).deadline(Duration::from_secs(60)).on_failure(FailurePolicy::Error);
    let limiter = builder.build().unwrap();
    limiter.ready(Duration::from_secs(30)).await.unwrap();
    let limit = limiter.define("api", "1000000/day burst 1000000".parse().unwrap()).unwrap();
    let victim = std::sync::Mutex::new(None);
    server.attack(move |words, to| {
        let peer = to.peer_addr().ok();
        let swallow = is_script(words) && *victim.lock().unwrap().get_or_insert(peer) == peer;
        if swallow { Act::Done(Ok(())) } else { Act::Honest }
    });
    let (mut lost, mut calls) = (0, 0);
    eventually("it was replaced", async || {
        calls += 1;
        lost += usize::from(limit.acquire(format!("key{calls}")).await.is_err());
        server.connections() == (3, 1)
    })
    .await;
    assert!((1..20).contains(&lost), "{lost} of {calls}");
    for key in 0..20 {
        assert!(limit.acquire(format!("later{key}")).await.unwrap().is_allowed());
    }
}

/// Everybody who came by left a task that waited for a master which takes connections and says nothing, for as long as an attempt
/// may take, also when the limiter was long gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_at_a_silent_master_do_not_pile_up_and_end_with_the_limiter() {
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let time = Duration::from_millis(20);
    for is_shut_down in [true, false] {
        let (server, silent) = (Hostile::start(), TcpListener::bind("127.0.0.1:0").unwrap());
        silent.set_nonblocking(true).unwrap();
        let port = silent.local_addr().unwrap().port();
        server.attack(move |words, _| match words.get(1).map(Vec::as_slice) {
            Some(b"SLOTS") => Act::Instead(Box::new(move |_| slots(port, [(0, 16_383)]))),
            _ => Act::Honest,
        });
        let before = tasks();
        let mut breaker = BreakerSettings::default();
        breaker.least = u32::MAX;
        let builder = Limiter::builder().redis([server.url()]).breaker(breaker).on_failure(FailurePolicy::Error);
        let builder = builder.connect_timeout(Duration::from_secs(600)).timeout(time).deadline(time);
        let limiter = builder.build().unwrap();
        let limit = limiter.define("api", "1000/day".parse().unwrap()).unwrap();
        for _ in 0..100 {
            failure(&limit).await;
        }
        eventually("few tasks are left", async || tasks() < before + 20).await;
        let mut open: Vec<_> = silent.incoming().map_while(Result::ok).collect();
        assert_eq!(open.len(), 1, "one attempt at a time");
        open[0].set_nonblocking(true).unwrap();
        let kept = if is_shut_down {
            let _ = limiter.shutdown(time).await;
            Some((limiter, limit))
        } else {
            drop((limiter, limit));
            None
        };
        eventually("nothing is left", async || {
            let is_closed = |socket: &mut TcpStream| match socket.read(&mut [0; 4_096]) {
                Ok(read) => read == 0,
                Err(error) => error.kind() != io::ErrorKind::WouldBlock,
            };
            open.retain_mut(|socket| !is_closed(socket));
            open.is_empty() && tasks() <= before
        })
        .await;
        drop(kept);
    }
}
