//! What the shared store tells those who listen, and what it keeps to itself.
#![cfg(feature = "redis")]

#[path = "support/listener.rs"]
mod listener;
#[path = "support/server.rs"]
#[allow(dead_code, unreachable_pub)]
mod server;

use std::time::Duration;

use listener::Listener;
use server::Server;
use shardlimit::counter::{Added, CounterSettings};
use shardlimit::{Decision, FailurePolicy, Limiter};
use tracing::Level;

#[test]
fn topology_denials_and_faults_are_told_and_keys_can_do_no_harm() {
    let listener = Listener::default();
    tracing::subscriber::set_global_default(listener.clone()).unwrap();
    let mut server = Server::start(&[]);
    redis::cmd("CONFIG").arg("SET").arg("requirepass").arg("sesame").exec(&mut server.connection()).unwrap();
    let url = format!("redis://:sesame@127.0.0.1:{}", server.port);
    let quiet = Limiter::builder().redis([url.clone()]).deadline(Duration::from_secs(10)).sample_allowed(0.0);
    let quiet = quiet.build().unwrap().define("quiet", "90/day".parse().unwrap()).unwrap();
    let hasty = Limiter::builder().redis([url.clone()]).build().unwrap();
    let builder = Limiter::builder().redis([url]).deadline(Duration::from_secs(10)).on_failure(FailurePolicy::Error);
    let limiter = builder.sample_allowed(1.0).build().unwrap();
    let limit = limiter.define("api", "2/day".parse().unwrap()).unwrap();

    let key = b"alice\n\x1b[31m\0".repeat(40);
    let receipt = pollster::block_on(async {
        let Decision::Allowed(allowed) = limit.acquire(&key).await.unwrap() else { panic!("denied") };
        for _ in 0..2 {
            let _ = limit.acquire(&key).await.unwrap();
        }
        for _ in 0..90 {
            assert!(quiet.acquire("alice").await.unwrap().is_allowed());
        }
        allowed.into_receipt()
    });
    assert!(listener.has(Level::INFO, "topology changed"));
    assert!(listener.has(Level::INFO, "connected"));
    assert!(listener.has(Level::DEBUG, "span acquire limit=\"api\" key=alice\\n\\x1b[31m\\x00"));
    assert!(listener.has(Level::WARN, "denied"));
    let told_of = |limit: &str| {
        let lines = listener.lines("shardlimit");
        lines.iter().filter(|line| line.contains("=allowed") && line.contains(&format!("limit=\"{limit}\""))).count()
    };
    assert_eq!((told_of("api"), told_of("quiet")), (2, 0));

    server.kill();
    pollster::block_on(limit.acquire("alice")).unwrap_err();
    assert!(listener.has(Level::ERROR, "fault"));
    let counters = hasty.counters("clicks", CounterSettings::new(Duration::from_secs(60)).queue(1)).unwrap();
    assert_eq!(pollster::block_on(counters.add("alice", 1)), Ok(Added::Queued));
    pollster::block_on(counters.add("bob", 1)).unwrap_err();
    assert!(listener.has(Level::ERROR, "adds dropped"));
    // It waits for the server, and is lost with the limiter.
    pollster::block_on(limit.refund(&key, receipt)).unwrap();
    pollster::block_on(limiter.shutdown(Duration::ZERO)).unwrap_err();
    assert!(listener.has(Level::ERROR, "permits lost limit=\"api\""));
    for line in listener.lines("shardlimit") {
        assert!(!line.contains("sesame"), "{line}");
        assert!(!line.chars().any(char::is_control), "{line:?}");
        assert!(line.len() < 1_000, "{line}");
    }
}
