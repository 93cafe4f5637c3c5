//! A cluster with a key that is split over all of its masters.

use std::time::{Duration, Instant};

use redis::cmd;
use shardlimit::{Candidates, Handle, Limiter, RoundRobin, Selector, Shards};
use shardlimit_peers::cluster::{self, Cluster};
use shardlimit_peers::load::{Caller, Outcome};
use tokio::runtime::Runtime;

/// More than any load here asks for: nobody is denied.
const LIMIT: &str = "token-bucket 100000000/s burst 10000000";

tokio::task_local! {
    /// The shard that a caller keeps to.
    static OWN: usize;
}

/// The shard that the caller keeps to.
struct KeepTo;

impl Selector for KeepTo {
    fn select(&self, candidates: &Candidates<'_>) -> usize {
        OWN.try_with(|own| *own).unwrap_or_else(|_| RoundRobin.select(candidates))
    }
}

/// How callers spread over the shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spreading {
    /// As many callers keep to each shard: batches are as large on any number of them.
    Kept,
    /// By the library's default: callers share a turn, and batches grow with their number.
    RoundRobin,
}

/// One cluster, and its hot key under a limit for each way to spread callers.
pub(crate) struct Field {
    pub(crate) processes: Vec<u32>,
    kept: Handle,
    round_robin: Handle,
    cluster: Cluster,
}

impl Field {
    /// Returns when the key is split: the measured turns only spend.
    pub(crate) fn new(runtime: &Runtime, masters: usize) -> Self {
        let cluster = cluster::start(masters);
        let kept = split(runtime, &cluster, "kept", KeepTo);
        let round_robin = split(runtime, &cluster, "round-robin", RoundRobin);
        let processes = cluster.nodes.iter().map(process_of).collect();
        Self { processes, kept, round_robin, cluster }
    }

    pub(crate) fn masters(&self) -> usize {
        self.cluster.nodes.len()
    }

    pub(crate) fn caller(&self, spreading: Spreading, number: usize) -> Client {
        let handle = self.handle(spreading).clone();
        let shard = (spreading == Spreading::Kept).then_some(number % self.masters());
        Client { handle, shard }
    }

    /// Script runs so far, on all shards.
    pub(crate) fn runs(&self, spreading: Spreading) -> u64 {
        self.handle(spreading).counts().iter().map(|shard| shard.runs).sum()
    }

    fn handle(&self, spreading: Spreading) -> &Handle {
        match spreading {
            Spreading::Kept => &self.kept,
            Spreading::RoundRobin => &self.round_robin,
        }
    }
}

/// One caller.
pub(crate) struct Client {
    handle: Handle,
    shard: Option<usize>,
}

impl Caller for Client {
    async fn call(&mut self) -> Outcome {
        match self.shard {
            Some(shard) => OWN.scope(shard, self.handle.acquire()).await.into(),
            None => self.handle.acquire().await.into(),
        }
    }
}

/// The key under a limit of this name, split over all masters.
fn split(runtime: &Runtime, cluster: &Cluster, name: &str, selector: impl Selector) -> Handle {
    let builder = Limiter::builder().redis(cluster::urls(cluster)).shards(Shards::PerMaster).selector(selector);
    // A capped server stands still for most of the time; that is no fault here.
    let patient = builder.timeout(Duration::from_secs(30)).deadline(Duration::from_secs(30));
    let limiter = patient.build().expect("valid settings");
    let limit = limiter.define(name, LIMIT.parse().expect("a limit")).expect("a name");
    let handle = limit.handle("item:42").expect("a key");
    let patience = Instant::now();
    while handle.counts().len() < cluster.nodes.len() {
        assert!(patience.elapsed() < Duration::from_secs(30), "waited 30 s for a shard on every master");
        assert!(runtime.block_on(handle.acquire()).expect("the cluster answers").is_allowed());
    }
    handle
}

fn process_of(node: &cluster::Node) -> u32 {
    let info: String = node.ask(cmd("INFO").arg("server"));
    let process = info.lines().find_map(|line| line.strip_prefix("process_id:"));
    process.and_then(|process| process.trim().parse().ok()).expect("a server knows its process")
}

pub(crate) fn processes(fields: &[Field]) -> Vec<u32> {
    fields.iter().flat_map(|field| field.processes.iter().copied()).collect()
}
