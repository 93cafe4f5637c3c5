//! A `ClusterConnection` that the user brought. With its retries off it passes redirects on, and they are followed here.
//! What it can't do is tell a request that never left from one whose answer was lost, so every broken connection is
//! *unknown*.

use std::sync::Weak;
use std::time::Duration;

use arc_swap::ArcSwap;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr};
use redis::{Cmd, Pipeline, Value, cmd};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::fault::{Address, Fault};
use super::node::clock_of;
use super::request::Request;
use super::rest::Rest;
use super::timers::Timers;
use crate::key::Slot;
use crate::observe;
use crate::said::said_without;
use crate::sync::Arc;
use crate::sync::atomic::Ordering;
use crate::topology::{Topology, parse};

/// How often it asks for the topology; only plans of new keys need it.
const PERIOD: Duration = Duration::from_secs(30);
/// How soon it asks again when there was no answer.
const PAUSE: Duration = Duration::from_millis(100);

/// As many redirects as a client may follow.
const REDIRECTS: usize = 5;
/// How long a slot on its way gets before the next try.
const TRY_AGAIN: Duration = Duration::from_millis(5);

pub(crate) struct OwnConnection {
    connection: ClusterConnection,
    timeout: Duration,
    pub(super) timers: Timers,
    topology: ArcSwap<Topology>,
    changes: watch::Sender<Arc<Topology>>,
    rest: Rest,
}

impl OwnConnection {
    pub(crate) fn new(connection: ClusterConnection, timeout: Duration) -> Self {
        let topology = Arc::new(Topology::new(0, []).expect("nothing contradicts itself"));
        let changes = watch::Sender::new(Arc::clone(&topology));
        let (topology, rest) = (ArcSwap::new(topology), Rest::new());
        Self { connection, timeout, timers: Timers::new(), topology, changes, rest }
    }

    pub(super) fn topology(&self) -> Arc<Topology> {
        self.topology.load_full()
    }

    pub(super) async fn look_again(&self) {
        if let Ok(topology) = self.look().await {
            self.adopt(topology);
        }
    }

    fn adopt(&self, topology: Topology) {
        let known = self.topology();
        if *known != topology && !topology.is_older_than(&known) {
            observe::topology_changed(&topology);
            let topology = Arc::new(topology);
            self.topology.store(Arc::clone(&topology));
            self.changes.send_replace(topology);
            self.rest.disturb();
        }
    }

    pub(super) fn settled(&self) -> Option<u64> {
        self.rest.settled()
    }

    pub(super) fn watch_topology(&self) -> watch::Receiver<Arc<Topology>> {
        self.changes.subscribe()
    }

    /// # Cancel safety
    /// The script may have run.
    pub(super) async fn run(&self, request: &Request<'_>) -> Result<Value, Fault> {
        let mut to = to_master(request.slot);
        let (mut asking, mut by_source, mut redirects) = (false, false, 0);
        loop {
            // It may have left as soon as it was handed over.
            request.sent.store(true, Ordering::Relaxed);
            let reply = self.send(request.command(by_source), to.clone(), asking).await;
            request.sent.store(false, Ordering::Relaxed);
            let fault = match reply {
                Ok(answer) => return Ok(answer),
                Err(fault) => fault,
            };
            match &fault {
                Fault::NoScript if !by_source => by_source = true,
                Fault::Moved { to: node, .. } => (to, asking) = (to_node(node), false),
                Fault::Ask { to: node } => (to, asking) = (to_node(node), true),
                Fault::TryAgain => sleep(TRY_AGAIN).await,
                Fault::NoScript
                | Fault::Left
                | Fault::Unavailable(_)
                | Fault::Refused(_)
                | Fault::NotSent(_)
                | Fault::Unknown(_) => {
                    return Err(fault);
                }
            }
            redirects += 1;
            if redirects > REDIRECTS {
                return Err(fault);
            }
        }
    }

    pub(super) async fn time_at(&self, slot: Slot) -> Result<u64, Fault> {
        let time = self.send(cmd("TIME"), to_master(slot), false).await?;
        clock_of(time)
    }

    async fn send(&self, command: Cmd, to: SingleNodeRoutingInfo, asking: bool) -> Result<Value, Fault> {
        let mut connection = self.connection.clone();
        let request = async {
            if !asking {
                return connection.route_command(command, RoutingInfo::SingleNode(to)).await;
            }
            let mut pipeline = Pipeline::with_capacity(2);
            pipeline.cmd("ASKING").add_command(command);
            let replies = connection.route_pipeline(pipeline, 0, 2, to).await;
            replies.map(|mut replies| replies.pop().unwrap_or(Value::Nil))
        };
        match self.timers.timeout_at(Instant::now() + self.timeout, request).await {
            Some(reply) => Fault::check(&cluster(), reply, &|words| said_without("", words)),
            None => Err(Fault::Unknown(format!("no answer from the cluster within {:?}", self.timeout))),
        }
    }

    async fn look(&self) -> Result<Topology, Fault> {
        let about = |what: &str| {
            let mut command = cmd("CLUSTER");
            command.arg(what);
            self.send(command, SingleNodeRoutingInfo::RandomPrimary, false)
        };
        let (slots, info) = (about("SLOTS").await?, about("INFO").await?);
        parse::topology(&cluster().host, &slots, &info).map_err(|bad| {
            observe::topology_refused(&cluster(), &bad);
            Fault::Refused(bad.to_string())
        })
    }
}

/// Which node spoke is not told.
fn cluster() -> Address {
    Address { host: "the cluster".into(), port: 0 }
}

fn to_master(slot: Slot) -> SingleNodeRoutingInfo {
    SingleNodeRoutingInfo::SpecificNode(Route::new(slot.number(), SlotAddr::Master))
}

fn to_node(node: &Address) -> SingleNodeRoutingInfo {
    SingleNodeRoutingInfo::ByAddress { host: node.host.to_string(), port: node.port }
}

/// Asks for the topology until the connection is gone.
pub(super) async fn watch(own: Weak<OwnConnection>) {
    loop {
        let Some(present) = own.upgrade() else { return };
        let seen = present.look().await;
        let wait = match seen {
            Ok(topology) => {
                present.adopt(topology);
                PERIOD
            }
            Err(fault) => {
                observe::topology_unknown(&fault.what());
                PAUSE
            }
        };
        drop(present);
        sleep(wait.mul_f64(rand::random_range(0.5..1.5))).await;
    }
}
