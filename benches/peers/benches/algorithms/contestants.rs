//! The six algorithms, with limits under which no call is denied, and INCR.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use shardlimit::{Handle, Limiter};
use shardlimit_peers::cluster::{Server, url};
use shardlimit_peers::load::{Caller, Outcome};
use tokio::runtime::Runtime;

pub(crate) const CALLERS: usize = 1_000;

#[derive(Clone, Copy)]
pub(crate) struct Algorithm {
    pub name: &'static str,
    /// The limit of a key that all callers share.
    shared: &'static str,
    /// The limit of a key that one caller has for itself.
    own: &'static str,
}

/// A sliding log remembers up to 10,000 calls, whatever its window: a hot key has one of 1 ms, so that 10 million a second
/// pass; a caller's own has ten seconds, and so as many entries as the caller makes calls.
pub(crate) const ALGORITHMS: [Algorithm; 6] = [
    Algorithm::one("fixed window", "fixed-window 10000000000/day"),
    Algorithm::one("sliding window", "sliding-window 100000000/10s"),
    Algorithm { name: "sliding log", shared: "sliding-log 10000/1ms", own: "sliding-log 10000/10s" },
    Algorithm::one("token bucket", "token-bucket 100000000/s burst 10000000"),
    Algorithm::one("leaky bucket", "leaky-bucket 100000000/s capacity 10000000"),
    Algorithm::one("pacing queue", "pacing-queue 100000000/s capacity 10000000"),
];

impl Algorithm {
    const fn one(name: &'static str, limit: &'static str) -> Self {
        Self { name, shared: limit, own: limit }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keys {
    /// All callers ask for the same key.
    One,
    /// Each asks for its own.
    Each,
}

/// A handle of each key, by a limiter of its own. All keys exist, so that the first turn is like the others.
pub(crate) async fn handles(runtime: &Runtime, server: &Server, algorithm: &Algorithm, keys: Keys) -> Vec<Handle> {
    let (limit, keys) = match keys {
        Keys::One => (algorithm.shared, 1),
        Keys::Each => (algorithm.own, CALLERS),
    };
    // A key for each caller is as much as the server can do: calls that wait longer than a gateway would are still its work.
    let patience = Duration::from_secs(5);
    let builder = Limiter::builder().redis([url(server)]).runtime(runtime.handle().clone());
    let builder = builder.timeout(patience).deadline(patience);
    let limiter = builder.build().expect("valid settings");
    let name = format!("{}-{keys}", algorithm.name.replace(' ', "-"));
    let limit = limiter.define(&name, limit.parse().expect("a valid limit")).expect("a valid name");
    let handles: Vec<Handle> = (0..keys).map(|key| limit.handle(format!("user:{key}")).expect("a valid key")).collect();
    for handle in &handles {
        assert!(handle.acquire().await.expect("a server that answers").is_allowed());
    }
    handles
}

/// The cheapest count that a server can keep.
#[derive(Clone)]
pub(crate) struct Incr(MultiplexedConnection);

impl Incr {
    pub(crate) async fn new(server: &Server) -> Self {
        Self(server.client().get_multiplexed_async_connection().await.expect("a server"))
    }
}

impl Caller for Incr {
    async fn call(&mut self) -> Outcome {
        match redis::cmd("INCR").arg("plain").query_async::<u64>(&mut self.0).await {
            Ok(_) => Outcome::Allowed,
            Err(_) => Outcome::Failed,
        }
    }
}
