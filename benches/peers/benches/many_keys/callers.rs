//! Callers that ask for one of very many keys: of the library, or of the masters themselves.

use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use rand_distr::{Distribution as _, Zipf};
use redis::aio::MultiplexedConnection;
use redis::cmd;
use shardlimit::{Limiter, NamedLimit, Slot};
use shardlimit_peers::baseline::TOKEN_BUCKET;
use shardlimit_peers::cluster::Cluster;
use shardlimit_peers::load::{Caller, Outcome};

/// Permits a second and burst of each key.
pub(crate) const RATE: u64 = 100;
pub(crate) const BURST: u64 = 20;
/// How much fewer calls the next key gets: of a million keys the first has 9 % of all calls, the first thousand 61 %.
const EXPONENT: f64 = 1.05;

/// A client that remembers so many keys of each limit.
pub(crate) fn client(urls: &[String], max_keys: usize) -> Limiter {
    let builder = Limiter::builder().redis(urls.iter().map(String::as_str)).max_keys(max_keys);
    // What waits behind a crowd on a slow machine is measured, not given up.
    let patience = Duration::from_secs(10);
    builder.timeout(patience).deadline(patience).build().expect("valid settings")
}

/// The limit that all keys are under: too small to be split.
pub(crate) fn whole() -> String {
    format!("token-bucket {RATE}/s burst {BURST}")
}

/// One that has a share on each of three masters.
pub(crate) const SPLIT: &str = "token-bucket 1000/s burst 100";

/// A limit by another name.
pub(crate) fn limit(client: &Limiter, name: &str, text: &str) -> NamedLimit {
    client.define(name, text.parse().expect("a valid limit")).expect("a valid name")
}

/// Keys drawn at random, some of them far more often than others, as users come.
#[derive(Clone)]
pub(crate) struct Draw {
    random: SmallRng,
    zipf: Zipf<f64>,
    key: String,
}

impl Draw {
    pub(crate) fn new(keys: u64, seed: usize) -> Self {
        let zipf = Zipf::new(keys as f64, EXPONENT).expect("at least one key");
        Self { random: SmallRng::seed_from_u64(seed as u64), zipf, key: String::new() }
    }

    fn next(&mut self) -> &str {
        name(self.zipf.sample(&mut self.random) as u64, &mut self.key)
    }
}

/// The key of this number.
pub(crate) fn name(number: u64, key: &mut String) -> &str {
    use std::fmt::Write as _;
    key.clear();
    let _ = write!(key, "user:{number}");
    key
}

/// Through the library.
pub(crate) struct Ours {
    pub(crate) limit: NamedLimit,
    pub(crate) draw: Draw,
}

impl Caller for Ours {
    async fn call(&mut self) -> Outcome {
        self.limit.acquire(self.draw.next()).await.into()
    }
}

/// One multiplexed connection a master, and the master of each slot: no more than a call needs.
pub(crate) struct Bare {
    connections: Vec<MultiplexedConnection>,
    owners: Vec<usize>,
    script: String,
}

impl Bare {
    pub(crate) async fn new(cluster: &Cluster) -> Arc<Self> {
        let mut connections = Vec::new();
        let mut script = String::new();
        for node in &cluster.nodes {
            let client = node.server.client();
            let mut connection = client.get_multiplexed_async_connection().await.expect("a server that answers");
            let mut load = cmd("SCRIPT");
            load.arg("LOAD").arg(TOKEN_BUCKET);
            script = load.query_async(&mut connection).await.expect("a script that compiles");
            connections.push(connection);
        }
        Arc::new(Self { connections, owners: cluster.owners_as_seen_by(&cluster.nodes[0]), script })
    }
}

/// Straight to the masters, one EVALSHA a call.
pub(crate) struct BareCaller {
    bare: Arc<Bare>,
    connections: Vec<MultiplexedConnection>,
    draw: Draw,
}

impl BareCaller {
    pub(crate) fn new(bare: &Arc<Bare>, draw: Draw) -> Self {
        Self { bare: Arc::clone(bare), connections: bare.connections.clone(), draw }
    }
}

impl Caller for BareCaller {
    async fn call(&mut self) -> Outcome {
        let key = self.draw.next();
        let owner = self.bare.owners[usize::from(Slot::of(key.as_bytes()).number())];
        let mut call = cmd("EVALSHA");
        call.arg(&self.bare.script).arg(1).arg(key).arg(RATE).arg(BURST).arg(1);
        match call.query_async::<(u8, i64, i64)>(&mut self.connections[owner]).await {
            Ok((1, ..)) => Outcome::Allowed,
            Ok(_) => Outcome::Denied,
            Err(_) => Outcome::Failed,
        }
    }
}
