//! One snapshot of the cluster, with the nodes that it leads to.

use super::fault::Fault;
use super::node::Node;
use crate::key::Slot;
use crate::sync::Arc;
use crate::topology::Topology;

/// A slot leads to its node by two look-ups in arrays.
pub(super) struct View {
    pub topology: Arc<Topology>,
    pub nodes: Box<[Arc<Node>]>,
}

impl View {
    pub(super) fn node_of(&self, slot: Slot) -> Result<Arc<Node>, Fault> {
        match self.topology.index_of(slot) {
            Some(index) => Ok(Arc::clone(&self.nodes[index])),
            None => Err(Fault::Unavailable(format!("no master owns slot {}", slot.number()))),
        }
    }
}
