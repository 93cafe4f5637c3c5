//! Who owns which slot, and slots that are on their way.

use std::ops::Range;

use redis::{Pipeline, Value, cmd, pipe};

use super::{Cluster, Node};
use crate::Failure;

pub(super) const SLOTS: u16 = 16_384;

/// Slots that are on their way: the source answers ASK for keys that it no longer has.
#[must_use = "a migration that is not finished leaves the slots open"]
#[derive(Clone)]
pub(crate) struct Migration {
    pub slots: Range<u16>,
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

    /// Opens the slots at both ends.
    pub(crate) fn begin_migration(&self, slots: Range<u16>, from: usize, to: usize) -> Result<Migration, Failure> {
        let migration = Migration { slots, from, to };
        self.nodes[to].ask_all::<()>(&migration.set("IMPORTING", &self.nodes[from].id))?;
        self.nodes[from].ask_all::<()>(&migration.set("MIGRATING", &self.nodes[to].id))?;
        Ok(migration)
    }

    /// Moves every key of the slots.
    pub(crate) fn move_keys(&self, migration: &Migration) -> Result<(), Failure> {
        let Migration { slots, from, to } = migration;
        let source = &self.nodes[*from];
        let mut look = pipe();
        for slot in slots.clone() {
            look.cmd("CLUSTER").arg("GETKEYSINSLOT").arg(slot).arg(100);
        }
        loop {
            let keys: Vec<Vec<Vec<u8>>> = source.ask_all(&look)?;
            if keys.iter().all(Vec::is_empty) {
                return Ok(());
            }
            for keys in keys.into_iter().filter(|keys| !keys.is_empty()) {
                let seat = &self.nodes[*to].seat;
                let mut migrate = cmd("MIGRATE");
                migrate.arg(&seat.host).arg(seat.port).arg("").arg(0).arg(5_000).arg("KEYS").arg(keys);
                source.ask::<()>(&migrate)?;
            }
        }
    }

    /// Gives the slots to their new owner, which tells the others.
    pub(crate) fn finish_migration(&self, migration: &Migration) -> Result<(), Failure> {
        let owner = &self.nodes[migration.to].id;
        for node in [migration.to, migration.from] {
            self.nodes[node].ask_all::<()>(&migration.set("NODE", owner))?;
        }
        Ok(())
    }
}

impl Migration {
    fn set(&self, state: &str, other: &str) -> Pipeline {
        let mut commands = pipe();
        for slot in self.slots.clone() {
            commands.cmd("CLUSTER").arg("SETSLOT").arg(slot).arg(state).arg(other).ignore();
        }
        commands
    }
}
