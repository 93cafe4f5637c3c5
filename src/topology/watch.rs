//! The topology as it changes, for users.

use tokio::sync::watch;

use super::Topology;
use crate::sync::Arc;

/// Tells when the cluster looks different. See [`watch_topology`](crate::Limiter::watch_topology).
///
/// ```no_run
/// # async fn run(limiter: shardlimit::Limiter) -> Result<(), shardlimit::Error> {
/// if let Some(mut watch) = limiter.watch_topology()? {
///     while let Some(topology) = watch.changed().await {
///         println!("epoch {}", topology.epoch());
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct TopologyWatch(watch::Receiver<Arc<Topology>>);

impl TopologyWatch {
    pub(crate) fn new(receiver: watch::Receiver<Arc<Topology>>) -> Self {
        Self(receiver)
    }

    /// The topology now: without masters until the first node has answered.
    ///
    /// ```no_run
    /// # fn run(watch: shardlimit::TopologyWatch) {
    /// println!("{} masters", watch.current().masters().len());
    /// # }
    /// ```
    #[must_use]
    pub fn current(&self) -> Arc<Topology> {
        Arc::clone(&self.0.borrow())
    }

    /// Waits for the next change. `None` when the limiter is gone.
    ///
    /// # Cancel safety
    /// No change is lost: the next call tells of it.
    ///
    /// ```no_run
    /// # async fn run(mut watch: shardlimit::TopologyWatch) {
    /// if let Some(topology) = watch.changed().await {
    ///     println!("{} slots have a master", topology.covered());
    /// }
    /// # }
    /// ```
    pub async fn changed(&mut self) -> Option<Arc<Topology>> {
        self.0.changed().await.ok()?;
        Some(Arc::clone(&self.0.borrow_and_update()))
    }
}
