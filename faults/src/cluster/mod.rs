//! Real Redis Clusters, on loopback or in network namespaces; gone when the program is.
//!
//! * `node`: one server, and what can be done to its process. `setup`: how a cluster is made. `slots`: who owns what, and
//!   slots on their way from one master to another. `growth`: masters that come and go.

mod growth;
mod node;
mod setup;
mod slots;

pub(crate) use node::{Node, Seat};
pub(crate) use setup::Setup;

/// A running cluster: masters first, then their replicas in the same order.
pub(crate) struct Cluster {
    pub nodes: Vec<Node>,
    pub masters: usize,
    /// What every server is started with.
    options: Vec<String>,
}
