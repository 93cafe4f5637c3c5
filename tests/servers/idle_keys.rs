//! Keys that nobody holds a handle of fall idle between two calls: what they had, and what they owe, is kept all the same.

use std::time::Duration;

use crate::shared::{BURST, Server, client, eventually, left};
use shardlimit::{Builder, DecidedBy, FailurePolicy, NamedLimit, Shards};

const KEYS: usize = 40;

/// One server, no splitting, and a deadline that a call on a server that hangs comes to soon.
fn define(server: &Server, policy: FailurePolicy, text: &str) -> NamedLimit {
    let builder: Builder = client(server).shards(Shards::Off).deadline(Duration::from_millis(50));
    let limiter = builder.on_failure(policy).build().unwrap();
    limiter.define("api", text.parse().unwrap()).unwrap()
}

fn keys() -> Vec<String> {
    (0..KEYS).map(|number| format!("user:{number}")).collect()
}

/// Each of them went on as if nothing had ever been granted: denied, for as long as the server was away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_keys_go_on_at_what_they_had_lately() {
    let server = Server::start(&[]);
    let policy = FailurePolicy::Local { ratio: 0.5 };
    // Measured over a minute, which no test lasts: so what is remembered does not depend on how fast the machine is.
    let limit = define(&server, policy, "token-bucket 60000/min burst 60000");
    for _ in 0..3 {
        for key in keys() {
            assert!(limit.acquire_n(&key, 1_000).await.unwrap().is_allowed());
        }
    }
    server.pause();
    // 3,000 permits in 60 to 120 s, and half of that: 12.5 to 25 permits a second for each key.
    let mut allowed = [0; KEYS];
    let begun = std::time::Instant::now();
    eventually("every key is served without its shard", async || {
        for (key, allowed) in keys().iter().zip(&mut allowed) {
            let decision = limit.acquire(key).await.unwrap();
            if decision.is_allowed() && decision.decided_by() == DecidedBy::Fallback {
                *allowed += 1;
            }
        }
        allowed.iter().all(|allowed| *allowed >= 5)
    })
    .await;
    let most = 25.0 * begun.elapsed().as_secs_f64() + 2.5;
    assert!(allowed.iter().all(|allowed| f64::from(*allowed) <= most), "{allowed:?}, at most {most}");
    // One that had nothing has no claim.
    let stranger = limit.acquire("stranger").await.unwrap();
    assert_eq!((stranger.is_allowed(), stranger.decided_by()), (false, DecidedBy::Fallback));
    server.resume();
}

/// What the policy admitted was charged with a key's next call, and to keys that nobody called again never.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_idle_keys_owe_is_charged_though_nobody_calls_again() {
    let server = Server::start(&[]);
    let text = "token-bucket 300/day burst 300";
    let limit = define(&server, FailurePolicy::Open, text);
    for key in keys() {
        assert!(limit.acquire(&key).await.unwrap().is_allowed());
    }
    server.pause();
    for key in keys() {
        // The first may have been sent: then it is charged by itself.
        for _ in 0..4 {
            assert!(limit.acquire(&key).await.unwrap().is_allowed());
        }
    }
    server.resume();
    let other = define(&server, FailurePolicy::Error, text).deadline(Duration::from_secs(60));
    for key in keys() {
        eventually("everything is charged", async || left(&other, &key).await == BURST - 5).await;
    }
    assert_eq!(limit.failures().denied, 0);
}

/// A shard that refuses has charged nothing. What it was to be charged was taken for charged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_full_server_refuses_is_charged_when_it_has_room() {
    let server = Server::start(&[]);
    let text = "token-bucket 300/day burst 300";
    let limit = define(&server, FailurePolicy::Open, text);
    for key in keys() {
        assert!(limit.acquire(&key).await.unwrap().is_allowed());
    }
    let maxmemory = |bytes: &str| {
        let mut connection = server.connection();
        redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(bytes).exec(&mut connection).unwrap();
    };
    maxmemory("1");
    for key in keys() {
        for _ in 0..4 {
            let decision = limit.acquire(&key).await.unwrap();
            assert_eq!((decision.is_allowed(), decision.decided_by()), (true, DecidedBy::Fallback));
        }
    }
    // Long enough for what is owed to be tried some times.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    maxmemory("0");
    let other = define(&server, FailurePolicy::Error, text).deadline(Duration::from_secs(60));
    for key in keys() {
        eventually("everything is charged", async || left(&other, &key).await == BURST - 5).await;
    }
}
