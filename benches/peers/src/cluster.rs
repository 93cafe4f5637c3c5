//! Throw-away servers on loopback: nothing is saved, and they are gone when they are dropped, also by a panic.

use std::time::Duration;

// The tests' own, as they are.
#[allow(missing_docs, dead_code, unreachable_pub, clippy::pedantic)]
#[path = "../../../tests/support/cluster.rs"]
mod nodes;
#[allow(missing_docs, dead_code, unreachable_pub, clippy::pedantic)]
#[path = "../../../tests/support/server.rs"]
mod server;

pub use nodes::{Cluster, Layout, Migration, Node};
pub use server::Server;

/// A cluster of so many masters, without replicas, each with a run of slots.
#[must_use]
pub fn start(masters: usize) -> Cluster {
    // A node that waits for a busy core is not dead.
    Cluster::start(masters, 0, Layout::Contiguous, &["--cluster-node-timeout", "15000"])
}

/// How many scripts a server has run since it began.
///
/// # Panics
/// If the server is gone.
#[must_use]
pub fn script_runs(server: &Server) -> u64 {
    let stats = info(server, "commandstats");
    let calls = |line: &str| {
        let line = line.strip_prefix("cmdstat_evalsha:calls=").or_else(|| line.strip_prefix("cmdstat_eval:calls="))?;
        line.split(',').next()?.parse::<u64>().ok()
    };
    stats.lines().filter_map(calls).sum()
}

/// The same, of all nodes together.
#[must_use]
pub fn cluster_runs(cluster: &Cluster) -> u64 {
    cluster.nodes.iter().map(|node| script_runs(&node.server)).sum()
}

/// The processor time that all nodes have used since they began, by their own count.
///
/// # Panics
/// If one of them is gone.
#[must_use]
pub fn cluster_processor_time(cluster: &Cluster) -> Duration {
    let seconds = |line: &str| {
        let line = line.strip_prefix("used_cpu_user:").or_else(|| line.strip_prefix("used_cpu_sys:"))?;
        line.trim().parse::<f64>().ok()
    };
    let of = |server: &Server| info(server, "cpu").lines().filter_map(seconds).sum::<f64>();
    Duration::from_secs_f64(cluster.nodes.iter().map(|node| of(&node.server)).sum())
}

fn info(server: &Server, section: &str) -> String {
    redis::cmd("INFO").arg(section).query(&mut server.connection()).expect("statistics")
}

/// The address of a server, as a limiter's builder wants it.
#[must_use]
pub fn url(server: &Server) -> String {
    format!("redis://127.0.0.1:{}", server.port)
}

/// The addresses of all nodes.
#[must_use]
pub fn urls(cluster: &Cluster) -> Vec<String> {
    cluster.nodes.iter().map(|node| url(&node.server)).collect()
}
