//! The plan of a key, for people.

use super::SharedLimit;
use super::entry::Entry;
use super::job::{Miss, Work};
use super::moves;
use crate::error::Error;
use crate::plan::{Plan, PlannedShard};
use crate::sync::Arc;

impl SharedLimit {
    /// Takes the steps that are left of the key's plan.
    ///
    /// # Cancel safety
    /// It goes on, whether it is dropped or not.
    pub(super) async fn finish_moves(self: &Arc<Self>, entry: &Arc<Entry>) -> Result<(), Error> {
        let (limit, key) = (Arc::clone(self), Arc::clone(entry));
        let (done, settled) = tokio::sync::oneshot::channel();
        // On the limiter's runtime, because it has timers.
        self.engine.spawn(async move {
            let settled = moves::settle(&limit, &key, None, None).await;
            limit.let_go(key);
            let _ = done.send(settled);
        })?;
        match settled.await {
            Ok(settled) => settled.map_err(crate::store::cluster::Fault::into_error),
            Err(_) => Err(Miss::Ended { sent: true }.into_error()),
        }
    }

    /// The plan in force; it is made if there is none, and brought to its end if somebody left it half done.
    ///
    /// # Cancel safety
    /// A plan that was begun is finished by the next client that sees it.
    pub(crate) async fn plan(self: &Arc<Self>, entry: &Arc<Entry>) -> Result<Plan, Error> {
        let view = entry.view();
        match self.put(entry, view.home(), Work::Make).await {
            Ok(_) | Err(Miss::Stale) => {}
            Err(miss) => return Err(miss.into_error()),
        }
        self.finish_moves(entry).await?;
        let view = entry.view();
        let topology = self.engine.transport.topology();
        let shards = view.lanes.iter().map(|lane| PlannedShard {
            is_home: lane.is_home,
            sub_key: lane.sub_key.clone(),
            slot: lane.slot,
            master: topology.master_of(lane.slot).cloned(),
            grant: lane.id.to_string(),
            permits: lane.permits,
            burst: lane.burst,
        });
        Ok(Plan { limit: *view.ledger.limit(), shards: shards.collect() })
    }
}
