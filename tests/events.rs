//! What the shared store tells those who listen, and what it keeps to itself.
#![cfg(feature = "redis")]

#[path = "support/server.rs"]
#[allow(dead_code, unreachable_pub)]
mod server;

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use server::Server;
use shardlimit::{FailurePolicy, Limiter};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Every span and event, one line each.
#[derive(Clone, Default)]
struct Listener(Arc<Mutex<Vec<(Level, String)>>>);

#[derive(Default)]
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("shardlimit")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut line = Line::default();
        span.record(&mut line);
        self.0.lock().unwrap().push((*span.metadata().level(), format!("span {}{}", span.metadata().name(), line.0)));
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        self.0.lock().unwrap().push((*event.metadata().level(), line.0));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Listener {
    fn has(&self, level: Level, text: &str) -> bool {
        self.0.lock().unwrap().iter().any(|(at, line)| *at == level && line.contains(text))
    }
}

#[test]
fn topology_denials_and_faults_are_told_and_keys_can_do_no_harm() {
    let listener = Listener::default();
    tracing::subscriber::set_global_default(listener.clone()).unwrap();
    let mut server = Server::start(&[]);
    redis::cmd("CONFIG").arg("SET").arg("requirepass").arg("sesame").exec(&mut server.connection()).unwrap();
    let url = format!("redis://:sesame@127.0.0.1:{}", server.port);
    let builder = Limiter::builder().redis([url]).deadline(Duration::from_secs(10)).on_failure(FailurePolicy::Error);
    let limit = builder.build().unwrap().define("api", "2/day".parse().unwrap()).unwrap();

    let key = b"alice\n\x1b[31m\0".repeat(40);
    pollster::block_on(async {
        for _ in 0..3 {
            let _ = limit.acquire(&key).await.unwrap();
        }
    });
    assert!(listener.has(Level::INFO, "topology changed"));
    assert!(listener.has(Level::INFO, "connected"));
    assert!(listener.has(Level::DEBUG, "span acquire limit=\"api\" key=alice\\n\\x1b[31m\\x00"));
    assert!(listener.has(Level::WARN, "denied"));

    server.kill();
    pollster::block_on(limit.acquire("alice")).unwrap_err();
    assert!(listener.has(Level::ERROR, "fault"));
    for (_, line) in listener.0.lock().unwrap().iter() {
        assert!(!line.contains("sesame"), "{line}");
        assert!(!line.chars().any(char::is_control), "{line:?}");
        assert!(line.len() < 1_000, "{line}");
    }
}
