//! Who owns which slot, and slots that are on their way.

use redis::{Value, cmd};

use super::{Cluster, Node};
use crate::Failure;

pub(super) const SLOTS: u16 = 16_384;

/// A slot that is on its way: the source answers ASK for keys that it no longer has.
#[must_use = "a migration that is not finished leaves the slot open"]
#[derive(Clone, Copy)]
pub(crate) struct Migration {
    pub slot: u16,
    pub from: usize,
    pub to: usize,
}

impl Cluster {
    /// For each slot the index of the node that owns it; `usize::MAX` where nobody does.
    pub(super) fn owners_as_seen_by(&self, node: &Node) -> Vec<usize> {
        let mut owners = vec![usize::MAX; usize::from(SLOTS)];
        let ranges: Vec<(u16, u16, Vec<Value>)> = node
            .ask::<Vec<Vec<Value>>>(cmd("CLUSTER").arg("SLOTS"))
            .unwrap_or_default()
            .iter()
            .filter_map(|range| {
                let number = |at: usize| redis::from_redis_value_ref::<u16>(range.get(at)?).ok();
                Some((number(0)?, number(1)?, redis::from_redis_value_ref(range.get(2)?).ok()?))
            })
            .collect();
        for (from, to, master) in ranges {
            let id = master.get(2).and_then(|id| redis::from_redis_value_ref::<String>(id).ok());
            let index = self.nodes.iter().position(|node| Some(&node.id) == id.as_ref()).unwrap_or(usize::MAX);
            owners[usize::from(from)..=usize::from(to)].fill(index);
        }
        owners
    }

    pub(crate) fn owner_of(&self, slot: u16) -> Result<usize, Failure> {
        let witness = self.nodes.iter().find(|node| node.is_running());
        let witness = witness.ok_or_else(|| Failure::new("no node runs"))?;
        Ok(self.owners_as_seen_by(witness)[usize::from(slot)])
    }

    /// Opens the slot at both ends.
    pub(crate) fn begin_migration(&self, slot: u16, from: usize, to: usize) -> Result<Migration, Failure> {
        let set = |node: usize, state: &str, other: usize| {
            let other = &self.nodes[other].id;
            self.nodes[node].ask::<()>(cmd("CLUSTER").arg("SETSLOT").arg(slot).arg(state).arg(other))
        };
        set(to, "IMPORTING", from)?;
        set(from, "MIGRATING", to)?;
        Ok(Migration { slot, from, to })
    }

    /// Moves every key of the slot.
    pub(crate) fn move_keys(&self, migration: Migration) -> Result<(), Failure> {
        let Migration { slot, from, to } = migration;
        loop {
            let keys: Vec<Vec<u8>> = self.nodes[from].ask(cmd("CLUSTER").arg("GETKEYSINSLOT").arg(slot).arg(100))?;
            if keys.is_empty() {
                return Ok(());
            }
            let seat = &self.nodes[to].seat;
            let mut migrate = cmd("MIGRATE");
            migrate.arg(&seat.host).arg(seat.port).arg("").arg(0).arg(5_000).arg("KEYS").arg(keys);
            self.nodes[from].ask::<()>(&migrate)?;
        }
    }

    /// Gives the slot to its new owner, which tells the others.
    pub(crate) fn finish_migration(&self, migration: Migration) -> Result<(), Failure> {
        let Migration { slot, from, to } = migration;
        for node in [to, from] {
            let owner = &self.nodes[to].id;
            self.nodes[node].ask::<()>(cmd("CLUSTER").arg("SETSLOT").arg(slot).arg("NODE").arg(owner))?;
        }
        Ok(())
    }
}
