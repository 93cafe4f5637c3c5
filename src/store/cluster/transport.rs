//! What carries requests: our own router, or a connection that the user brought.

use std::pin::Pin;
use std::time::Duration;

use redis::Value;
use tokio::sync::watch;

use super::engine::end_of;
#[cfg(feature = "cluster-async")]
use super::own::OwnConnection;
use super::request::Request;
use super::router::Router;
use super::timers::Timers;
use super::{Fault, watcher};
use crate::breaker::{BreakerForce, BreakerState};
use crate::key::Slot;
use crate::store::ring;
use crate::sync::Arc;
use crate::topology::Topology;

#[derive(Clone)]
pub(crate) enum Transport {
    Direct(Arc<Router>),
    #[cfg(feature = "cluster-async")]
    Own(Arc<OwnConnection>),
}

impl Transport {
    /// Runs a script on the master that owns the slot.
    ///
    /// # Cancel safety
    /// The script may have run.
    pub(crate) async fn run(&self, request: &Request<'_>) -> Result<Value, Fault> {
        match self {
            Self::Direct(router) => router.run(request).await,
            #[cfg(feature = "cluster-async")]
            Self::Own(connection) => connection.run(request).await,
        }
    }

    /// The clock of the slot's master, in µs: what an install is bound to.
    pub(crate) async fn time_at(&self, slot: Slot) -> Result<u64, Fault> {
        match self {
            Self::Direct(router) => router.time_at(slot).await,
            #[cfg(feature = "cluster-async")]
            Self::Own(connection) => connection.time_at(slot).await,
        }
    }

    /// For whoever waits for what it carries.
    pub(crate) fn timers(&self) -> &Timers {
        match self {
            Self::Direct(router) => &router.timers,
            #[cfg(feature = "cluster-async")]
            Self::Own(connection) => &connection.timers,
        }
    }

    /// The breaker of each master.
    pub(crate) fn breakers(&self) -> Vec<(String, BreakerState)> {
        match self {
            Self::Direct(router) => {
                let nodes = router.nodes();
                nodes.iter().map(|node| (node.address.to_string(), node.breaker.state())).collect()
            }
            #[cfg(feature = "cluster-async")]
            Self::Own(_) => Vec::new(),
        }
    }

    /// Opens or closes one by hand. `false`: there is no such master.
    pub(crate) fn force_breaker(&self, master: &str, force: BreakerForce) -> bool {
        match self {
            Self::Direct(router) => router.force_breaker(master, force),
            #[cfg(feature = "cluster-async")]
            Self::Own(_) => false,
        }
    }

    /// A call on a shard of this slot has reached its deadline without an answer.
    pub(crate) fn is_overdue(&self, slot: Slot) {
        match self {
            Self::Direct(router) => router.is_overdue(slot),
            #[cfg(feature = "cluster-async")]
            Self::Own(_) => {}
        }
    }

    /// Why nothing can be sent, as far as that is known.
    pub(crate) fn trouble(&self) -> Option<String> {
        match self {
            Self::Direct(router) => router.failure(),
            #[cfg(feature = "cluster-async")]
            Self::Own(_) => None,
        }
    }

    /// What serves a ring, if it is one.
    pub(crate) fn ring(&self) -> Option<Arc<Router>> {
        match self {
            Self::Direct(router) => router.ring().map(|_| Arc::clone(router)),
            #[cfg(feature = "cluster-async")]
            Self::Own(_) => None,
        }
    }

    pub(crate) fn topology(&self) -> Arc<Topology> {
        match self {
            Self::Direct(router) => router.topology(),
            #[cfg(feature = "cluster-async")]
            Self::Own(connection) => connection.topology(),
        }
    }

    /// Has the watcher look at the cluster, and waits until it has; not for longer than this.
    ///
    /// # Cancel safety
    /// It looks all the same.
    pub(crate) async fn look_again(&self, within: Duration) {
        let look = async {
            match self {
                Self::Direct(router) => router.look_again().await,
                #[cfg(feature = "cluster-async")]
                Self::Own(connection) => connection.look_again().await,
            }
        };
        let _ = tokio::time::timeout(within, look).await;
    }

    /// The state of the cluster, once it has come to rest.
    pub(crate) fn settled(&self) -> Option<u64> {
        match self {
            Self::Direct(router) => router.settled(),
            #[cfg(feature = "cluster-async")]
            Self::Own(connection) => connection.settled(),
        }
    }

    /// The topology once there is one; without masters if that takes too long.
    ///
    /// # Cancel safety
    /// It changes nothing.
    pub(crate) async fn first_topology(&self, within: Duration) -> Arc<Topology> {
        let mut changes = self.watch_topology();
        let known = changes.wait_for(|topology| !topology.masters().is_empty());
        let _ = tokio::time::timeout(within, known).await;
        self.topology()
    }

    pub(crate) fn watch_topology(&self) -> watch::Receiver<Arc<Topology>> {
        match self {
            Self::Direct(router) => router.watch_topology(),
            #[cfg(feature = "cluster-async")]
            Self::Own(connection) => connection.watch_topology(),
        }
    }

    /// The task that keeps the topology up to date, until the transport is gone.
    pub(super) fn watcher(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        match self {
            Self::Direct(router) if router.ring.is_some() => Box::pin(ring::watch(Arc::downgrade(router))),
            Self::Direct(router) => Box::pin(watcher::watch(Arc::downgrade(router))),
            #[cfg(feature = "cluster-async")]
            Self::Own(connection) => Box::pin(super::own::watch(Arc::downgrade(connection))),
        }
    }

    /// Closes the connections that it opened.
    pub(super) fn close(&self) {
        match self {
            Self::Direct(router) => router.close(),
            // The user's own is his to close.
            #[cfg(feature = "cluster-async")]
            Self::Own(_) => {}
        }
    }

    /// Waits until every master of the topology is connected. Says why not, if `within` is over first.
    ///
    /// # Cancel safety
    /// Connections that were begun are opened.
    pub(crate) async fn ready(&self, within: Duration) -> Result<(), Fault> {
        let until = end_of(within);
        let mut why = None;
        let all = async {
            match self {
                Self::Direct(router) => {
                    router.is_wanted_now();
                    self.first_topology(within).await;
                    while let Err(fault) = router.connect().await {
                        why = Some(fault);
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                }
                #[cfg(feature = "cluster-async")]
                Self::Own(_) => drop(self.first_topology(within).await),
            }
        };
        let done = tokio::time::timeout_at(until, all).await.is_ok();
        match why {
            _ if done && !self.topology().masters().is_empty() => Ok(()),
            Some(fault) => Err(fault),
            None => Err(Fault::NotSent(format!("the cluster did not say how it looks within {within:?}"))),
        }
    }
}
