//! Who takes part: the library in its modes, one key with a script, and the usual way to split a key by hand.

use std::time::{Duration, Instant};

use shardlimit::{Handle, Leases, Limiter, NamedLimit, Plan, Shards};
use shardlimit_peers::baseline::ScriptCaller;
use shardlimit_peers::cluster::{Cluster, urls};
use tokio::runtime::Runtime;

pub(crate) const MASTERS: usize = 3;
/// So high that no call is denied: what is measured is the way of a call, not the limit.
pub(crate) const RATE: u64 = 100_000_000;
pub(crate) const BURST: u64 = 10_000_000;
const KEY: &str = "item:42";

pub(crate) struct Contestants<'a> {
    pub runtime: &'a Runtime,
    pub cluster: &'a Cluster,
    pub exact: Handle,
    /// As `exact`, but never split.
    pub whole: Handle,
    pub leased: Handle,
    pub one_key: ScriptCaller,
    pub naive_split: ScriptCaller,
    plan: Plan,
}

impl<'a> Contestants<'a> {
    /// All of them connected, with their scripts loaded and their key split.
    pub(crate) fn new(runtime: &'a Runtime, cluster: &'a Cluster) -> Self {
        runtime.block_on(async {
            let builder = Limiter::builder().redis(urls(cluster)).runtime(runtime.handle().clone());
            let limiter = builder.clone().build().expect("valid settings");
            let unsplit = builder.shards(Shards::Off).build().expect("valid settings");
            let limit = format!("token-bucket {RATE}/s burst {BURST}").parse().expect("a valid limit");
            let exact = limiter.define("exact", limit).expect("a valid name");
            let whole = unsplit.define("whole", limit).expect("a valid name");
            let plan = split(&exact).await;
            let leased = limiter.define_leased("leased", limit, Leases::default()).expect("a valid name");
            split(&leased).await;
            let handle = |limit: NamedLimit| limit.handle(KEY).expect("a valid key");
            Self {
                runtime,
                cluster,
                exact: handle(exact),
                whole: handle(whole),
                leased: handle(leased),
                one_key: ScriptCaller::new(cluster, [KEY.to_owned()], RATE, BURST).await,
                naive_split: ScriptCaller::new(cluster, naive_keys(), RATE, BURST).await,
                plan,
            }
        })
    }

    /// The library's modes that are there, by the name of their rows.
    pub(crate) fn handles(&self) -> impl Iterator<Item = (&'static str, &Handle)> {
        [("exact", &self.exact), ("leased", &self.leased)].into_iter()
    }

    pub(crate) fn plan(&self) -> String {
        let shards: Vec<String> = self.plan.shards.iter().map(|shard| shard.slot.number().to_string()).collect();
        format!("{} shards, in the slots {}", shards.len(), shards.join(", "))
    }

    /// Where the keys of the naive split happen to lie.
    pub(crate) fn naive_keys(&self) -> String {
        let place = |key: String| {
            let slot: u16 = self.cluster.nodes[0].ask(redis::cmd("CLUSTER").arg("KEYSLOT").arg(&key));
            format!("{key} on master {}", self.cluster.owner_of(slot))
        };
        naive_keys().map(place).collect::<Vec<_>>().join(", ")
    }

    pub(crate) fn server_version(&self) -> String {
        let info: String = self.cluster.nodes[0].ask(redis::cmd("INFO").arg("server"));
        let version = info.lines().find_map(|line| line.strip_prefix("redis_version:"));
        format!("Redis {}", version.unwrap_or("of an unknown version"))
    }
}

/// One a master, by number: what the usual sample code does.
fn naive_keys() -> impl Iterator<Item = String> {
    (0..MASTERS).map(|part| format!("hot:{part}"))
}

/// Uses the key until it lies on all masters.
async fn split(limit: &NamedLimit) -> Plan {
    let patience = Instant::now();
    loop {
        let _ = limit.acquire(KEY).await.expect("a cluster that answers");
        let plan = limit.plan(KEY).await.expect("a cluster that answers");
        if plan.shards.len() == MASTERS {
            return plan;
        }
        assert!(patience.elapsed() < Duration::from_secs(20), "the key was not split: {plan:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
