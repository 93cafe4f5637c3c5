//! Throw-away servers on loopback: nothing is saved, and they are gone when they are dropped, also by a panic.

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
