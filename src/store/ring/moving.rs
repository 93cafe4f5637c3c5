//! How a sub-key comes along when its slot has another node: whoever asks for it first has it leave the one and arrive at the other.
//!
//! Both steps can be taken again by anybody. What leaves stays behind as a mark with all that it was, so that whoever finds it
//! knows to look elsewhere, and can finish what another began.

use redis::{Cmd, Value};

use super::{Record, Ring};
use crate::key::Slot;
use crate::store::cluster::{Address, Fault, Request, Router};
use crate::sync::Arc;
use crate::sync::atomic::AtomicBool;
use crate::topology::Topology;
use crate::wire::{MoveInReply, MoveOutReply, Script};

/// The mark lives for at least so long: ten minutes, as long as any client may need to hear of the change.
const MARK: u64 = 600_000;

impl Ring {
    /// Has a sub-key come along, if its slot has another node by this topology than before.
    ///
    /// # Cancel safety
    /// It may have left and not arrived: whoever asks for it next has it arrive.
    pub(crate) async fn bring(
        &self,
        router: &Arc<Router>,
        topology: &Topology,
        slot: Slot,
        key: &[u8],
    ) -> Result<(), Fault> {
        let Some(known) = self.known() else { return Ok(()) };
        let Some(before) = &known.before else { return Ok(()) };
        // One from before the change leads to the old place: if it has left that, the mark says so.
        if topology.epoch() != known.record.number || self.has_arrived(&known.record, key) {
            return Ok(());
        }
        let Some(to) = topology.master_of(slot) else { return Ok(()) };
        let from = match before.owner(&known.record, slot) {
            Some(from) if from.name == to.id || known.record.lost.contains(&from.name) => return Ok(()),
            Some(from) => from,
            None => return Ok(()),
        };
        let Some(address) = self.address_of(from) else {
            return Err(Fault::NotSent(format!("a key is on node {from}, which its Sentinels can't find")));
        };
        // One server by two names.
        if address != Address::from(to) {
            let carried = self.carry(router, (&address, &to.into()), (slot, key), &known.record).await;
            // None of the two steps is the request, so whatever becomes of them, that was not sent.
            carried.map_err(|fault| match fault {
                Fault::Left => Fault::Left,
                fault => Fault::NotSent(format!("a key could not be moved from {from} to {to}: {}", fault.what())),
            })?;
        }
        self.arrives(&known.record, key);
        Ok(())
    }

    async fn carry(
        &self,
        router: &Arc<Router>,
        (from, to): (&Address, &Address),
        (slot, key): (Slot, &[u8]),
        record: &Record,
    ) -> Result<(), Fault> {
        let leaves = |command: &mut Cmd| {
            command.arg(record.since.0).arg(record.since.1).arg(MARK).arg(self.key()).arg(record.number);
        };
        let left = self.step(router, from, Script::MoveOut, (slot, key), &leaves).await?;
        let left = MoveOutReply::parse(left).map_err(|bad| Fault::Unknown(bad.to_string()))?;
        let arrives = |command: &mut Cmd| {
            command.arg(record.since.0).arg(self.key()).arg(record.number);
            command.arg(left.kind).arg(left.expires).arg(&left.content);
        };
        self.arrive(router, to, (slot, key), &arrives).await
    }

    /// Clears away what an earlier change left at the node that has the slot now. What the present one left stays.
    ///
    /// # Cancel safety
    /// It can be done again.
    pub(crate) async fn clear(&self, router: &Arc<Router>, slot: Slot, key: &[u8]) -> Result<(), Fault> {
        let (Some(known), topology) = (self.known(), router.topology()) else { return Ok(()) };
        let Some(owner) = topology.master_of(slot) else { return Ok(()) };
        if !known.record.is_settled() || topology.epoch() != known.record.number {
            return Ok(());
        }
        let nothing = |command: &mut Cmd| {
            command.arg(known.record.number).arg(self.key()).arg(known.record.number).arg(0).arg(0).arg("");
        };
        self.arrive(router, &owner.into(), (slot, key), &nothing).await
    }

    async fn arrive(
        &self,
        router: &Arc<Router>,
        to: &Address,
        at: (Slot, &[u8]),
        arguments: &(dyn Fn(&mut Cmd) + Sync),
    ) -> Result<(), Fault> {
        let reply = self.step(router, to, Script::MoveIn, at, arguments).await?;
        MoveInReply::parse(reply).map(|_| ()).map_err(|bad| Fault::Unknown(bad.to_string()))
    }

    async fn step(
        &self,
        router: &Arc<Router>,
        node: &Address,
        script: Script,
        (slot, key): (Slot, &[u8]),
        arguments: &(dyn Fn(&mut Cmd) + Sync),
    ) -> Result<Value, Fault> {
        let request = Request { slot, script, key, arguments, sent: &AtomicBool::new(false) };
        router.run_at(&router.node_at(node), &request).await
    }
}
