//! Whatever is told is short and harmless: the longest key, made of what terminals obey, with more shards than a line can name.
#![cfg(feature = "redis")]

#[path = "support/listener.rs"]
mod listener;
#[path = "support/shared.rs"]
mod shared;

use std::time::Duration;

use listener::Listener;
use shardlimit::BreakerSettings;
use shared::{Cluster, Layout, candid, client_of, exactly};
use tracing::Level;

/// Of a line with all of its fields.
const LONGEST: usize = 1_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_line_is_long_whatever_a_key_is() {
    let listener = Listener::default();
    tracing::subscriber::set_global_default(listener.clone()).unwrap();
    let mut cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    // 300 requests at once with 16 kB each are slow on a busy machine, and that is no reason to give up a master.
    let mut breaker = BreakerSettings::default();
    breaker.slow = Some(Duration::from_secs(60));
    let builder = candid(client_of(&cluster, 0)).shards(exactly(300)).breaker(breaker);
    let name = "n".repeat(128);
    let limit = builder.build().unwrap().define(&name, "fixed-window 600/day".parse().unwrap()).unwrap();
    // Clear the screen, a new line, a title, a control character of two bytes, text from right to left, no UTF-8 at all.
    let key: Vec<u8> =
        b"\x1b[2J\r\n\x1b]0;title\x07\xc2\x9b\xe2\x80\xae\xff\0".iter().copied().cycle().take(16_384).collect();

    assert_eq!(limit.plan(&key).await.unwrap().shards.len(), 300);
    let _ = limit.acquire_n(&key, 600).await.unwrap();
    assert!(!limit.acquire(&key).await.unwrap().is_allowed());
    cluster.nodes.iter_mut().for_each(|node| node.server.kill());
    limit.peek(&key).await.unwrap_err();

    for (level, told) in [(Level::INFO, "planned"), (Level::INFO, "moved"), (Level::ERROR, "fault")] {
        assert!(listener.has(level, told), "{told} was told");
    }
    assert!(listener.has(Level::INFO, "299 in all"), "all shares were lent at once");
    assert!(listener.has(Level::DEBUG, r"key=\x1b[2J\r\n\x1b]0;title\x07\xc2\x9b\xe2\x80\xae\xff\x00"));
    for line in listener.lines("shardlimit") {
        assert!(line.len() <= LONGEST, "{} bytes: {line}", line.len());
        assert!(!line.chars().any(|c| c.is_control() || c == '\u{202e}'), "{line:?}");
    }
}
