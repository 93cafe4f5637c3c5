//! What people write before they look for a library: a script on a `ClusterConnection`.

use std::sync::Arc;

use redis::Script;
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;

use crate::cluster::{Cluster, urls};
use crate::load::{Caller, Outcome};

/// A token bucket on one key, as good as one script run a call can be: one read, one write, the server's clock, a packed
/// state, a time to live.
pub const TOKEN_BUCKET: &str = "\
-- KEYS[1]  the bucket
-- ARGV     1 permits a second | 2 burst | 3 permits
-- reply    {allowed, remaining, wait in microseconds}
local rate, burst, permits = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local level, seen = burst, now
local stored = redis.call('GET', KEYS[1])
if stored then
  level, seen = struct.unpack('<dd', stored)
end
level = math.min(burst, level + math.max(now - seen, 0) * rate / 1000000)
local allowed, wait = 0, 0
if level >= permits then
  level, allowed = level - permits, 1
else
  wait = math.ceil((permits - level) * 1000000 / rate)
end
local ttl = math.ceil(burst / rate * 1000) + 1000
redis.call('SET', KEYS[1], struct.pack('<dd', level, math.max(now, seen)), 'PX', string.format('%.0f', ttl))
return {allowed, math.floor(level), wait}
";

/// One bucket, or several that share a limit by rote: call after call to the next one.
#[derive(Clone)]
pub struct ScriptCaller {
    connection: ClusterConnection,
    script: Arc<Script>,
    keys: Arc<[String]>,
    next: usize,
    rate: u64,
    burst: u64,
}

impl ScriptCaller {
    /// Splits the limit evenly over these keys; the script is loaded by the first call.
    ///
    /// # Panics
    /// If the cluster can't be reached.
    pub async fn new(cluster: &Cluster, keys: impl IntoIterator<Item = String>, rate: u64, burst: u64) -> Self {
        let client = ClusterClient::new(urls(cluster)).expect("addresses");
        let connection = client.get_async_connection().await.expect("a cluster that answers");
        let keys: Arc<[String]> = keys.into_iter().collect();
        let parts = keys.len() as u64;
        let script = Arc::new(Script::new(TOKEN_BUCKET));
        Self { connection, script, keys, next: 0, rate: rate / parts, burst: burst / parts }
    }

    /// Another caller on the same connection, who begins at another key.
    #[must_use]
    pub fn starting_at(&self, number: usize) -> Self {
        Self { next: number % self.keys.len(), ..self.clone() }
    }
}

impl Caller for ScriptCaller {
    async fn call(&mut self) -> Outcome {
        let key = &self.keys[self.next];
        self.next = (self.next + 1) % self.keys.len();
        let mut call = self.script.key(key);
        call.arg(self.rate).arg(self.burst).arg(1);
        match call.invoke_async::<(u8, i64, i64)>(&mut self.connection).await {
            Ok((1, ..)) => Outcome::Allowed,
            Ok(_) => Outcome::Denied,
            Err(_) => Outcome::Failed,
        }
    }
}
