//! Masters that come and go while the cluster is in use. For clusters without replicas.

use std::ops::Range;
use std::time::Duration;

use redis::cmd;

use super::{Cluster, Node, Seat};
use crate::Failure;

/// So many slots are on their way at a time.
const TOGETHER: u16 = 64;
/// Between two such groups: what an operator's tool takes for them.
const PAUSE: Duration = Duration::from_millis(20);

impl Cluster {
    /// One more master, which has no slots yet.
    pub(crate) fn add_master(&mut self, seat: Seat) -> Result<(), Failure> {
        let node = Node::start(seat, &self.options, &[])?;
        self.meet(&node)?;
        self.nodes.push(node);
        self.masters += 1;
        self.wait_until_all_know_each_other()
    }

    /// Slots with all their keys go to another master, some at a time, while others call.
    pub(crate) fn migrate(&self, slots: Range<u16>, from: usize, to: usize) -> Result<(), Failure> {
        for begin in slots.clone().step_by(usize::from(TOGETHER)) {
            let migration = self.begin_migration(begin..slots.end.min(begin + TOGETHER), from, to)?;
            self.move_keys(&migration)?;
            self.finish_migration(&migration)?;
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// The last master goes. It must have no slots left.
    pub(crate) fn remove_master(&mut self) -> Result<(), Failure> {
        let Some(mut gone) = self.nodes.pop() else { return Ok(()) };
        self.masters -= 1;
        // Before the others forget it: it would tell them of itself.
        gone.kill();
        for node in &self.nodes {
            node.ask::<()>(cmd("CLUSTER").arg("FORGET").arg(&gone.id))?;
        }
        Ok(())
    }

    /// Slots that this master owns, if they lie side by side.
    pub(crate) fn slots_of(&self, master: usize) -> Range<u16> {
        let owners = self.owners_as_seen_by(&self.nodes[master]);
        let first = owners.iter().position(|owner| *owner == master).unwrap_or_default();
        let count = owners[first..].iter().take_while(|owner| **owner == master).count();
        first as u16..(first + count) as u16
    }
}
