//! The watcher: the one task that asks the cluster how it looks. No caller waits for it.

use std::time::Duration;

use rand::seq::SliceRandom;
use redis::Value;
use tokio::time::{sleep, timeout};
use tracing::Instrument;

use super::fault::{Address, Fault};
use super::node::Node;
use super::router::Router;
use crate::observe;
use crate::sync::Arc;
use crate::topology::{Topology, parse};

/// How often it looks without a reason.
const PERIOD: Duration = Duration::from_secs(30);
/// The least time between two looks, whatever the number of MOVED replies: ten a second are no load to a cluster, and
/// a failover takes longer.
const PAUSE: Duration = Duration::from_millis(100);
/// How long one node may take to answer before the next is asked.
const PATIENCE: Duration = Duration::from_secs(1);

/// Watches until the router is gone.
pub(super) async fn watch(router: std::sync::Weak<Router>) {
    loop {
        let Some(present) = router.upgrade() else { return };
        let doubt = Arc::clone(&present.doubt);
        let known = look(&present).instrument(observe::look()).await;
        drop(present);
        let pause = PAUSE.mul_f64(rand::random_range(0.5..1.5));
        sleep(pause).await;
        if known {
            let period = PERIOD.mul_f64(rand::random_range(0.5..1.5));
            // Either way it is time to look again.
            let _ = timeout(period, doubt.notified()).await;
        }
    }
}

/// Asks one node after the other until one says something that can be believed.
async fn look(router: &Arc<Router>) -> bool {
    let mut nodes = router.nodes();
    nodes.shuffle(&mut rand::rng());
    // Those that hang or are away would cost their patience first.
    nodes.sort_by_key(|node| !node.is_connected());
    let mut failure = String::from("no master is known");
    let seeds = router.settings.seeds().iter().map(|seed| router.node_at(seed));
    for node in nodes.into_iter().chain(seeds) {
        match timeout(PATIENCE, describe_by(&node)).await {
            Ok(Ok(topology)) => {
                if router.adopt(topology) {
                    connect_ahead(router);
                    router.has_looked(None);
                    return true;
                }
                failure = format!("{} knows only an older epoch", node.address);
            }
            Ok(Err(fault)) => failure = fault,
            Err(_) => failure = format!("{} did not answer within {PATIENCE:?}", node.address),
        }
    }
    observe::topology_unknown(&failure);
    router.has_looked(Some(failure));
    false
}

async fn describe_by(node: &Arc<Node>) -> Result<Topology, String> {
    let replies = node.describe().await.map_err(Fault::what)?;
    let [slots, info] = replies.as_slice() else { return Err(format!("{} answered in part", node.address)) };
    if let Value::ServerError(error) = slots {
        if error.details().is_some_and(|detail| detail.contains("cluster support disabled")) {
            let Address { host, port } = &node.address;
            return Ok(parse::single_server(host, *port));
        }
        return Err(format!("{} says {}", node.address, node.dial.said(error)));
    }
    parse::topology(&node.address.host, slots, info).map_err(|bad| {
        observe::topology_refused(&node.address, &bad);
        format!("{} describes a cluster that can't be: {bad}", node.address)
    })
}

/// Opens connections and loads scripts before the first call needs them.
pub(in crate::store) fn connect_ahead(router: &Router) {
    for node in router.nodes() {
        node.connect_ahead();
    }
}
