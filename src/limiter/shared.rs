//! What only a limiter on a shared store can do.

use std::time::Duration;

use futures_util::future::{join, join_all};

use super::{Limiter, Store};
use crate::breaker::{BreakerForce, BreakerState};
use crate::error::{Error, ErrorKind};
use crate::flow::sharded::{Lost, Shared, SharedLimit, moment};
use crate::leases::Leases;
use crate::limit::Limit;
use crate::named::NamedLimit;
use crate::plan::{Definition, SET};
use crate::policy::FailurePolicy;
use crate::store::cluster::Fault;
use crate::sync::{Arc, lock};

/// Needs the feature `redis`.
impl Shared {
    pub(super) fn define(&self, name: &str, limit: Limit, revision: u64, leases: Option<&Leases>) -> NamedLimit {
        NamedLimit::shared(SharedLimit::new(self, name, Definition::new(limit, revision, self.shards), leases))
    }
}

impl Limiter {
    /// As [`define`](Self::define), with a revision: where two processes define the same name differently, in limit or in
    /// number of shards, the higher revision counts for both, and the other one's [`mismatches`](NamedLimit::mismatches) say so.
    ///
    /// `define` has the moment of the call for a revision, in milliseconds since 1970: the last process to start is right. Give
    /// numbers of your own, for all definitions of the name, if a deployment that is rolled back must not bring its limit along.
    /// The embedded store has one definition and needs no revision.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), shardlimit::Error> {
    /// use shardlimit::Limiter;
    ///
    /// let limiter = Limiter::builder().redis(["redis://10.0.0.1:6379"]).build()?;
    /// let checkout = limiter.define_revision("checkout", "500/s burst 50".parse()?, 7)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`define`](Self::define), and if the revision is 2⁵¹ or more: those are of limits that were set while in use.
    pub fn define_revision(&self, name: &str, limit: Limit, revision: u64) -> Result<NamedLimit, Error> {
        if revision >= SET {
            let message = format!("must be below {SET}, got {revision}");
            return Err(Error::new(ErrorKind::InvalidSetting, "revision", message));
        }
        self.define_as(name, limit, None, || {
            Ok(match &self.0.store {
                local @ Store::Local { .. } => local.define(name, limit),
                Store::Shared(shared) => shared.define(name, limit, revision, None),
            })
        })
    }

    /// As [`define`](Limiter::define), for a limit whose permits are taken ahead and spent in process: no call waits for
    /// the store as long as it has some. [`Leases`] tells what that costs in accuracy.
    ///
    /// The embedded store is in process already: there it is the same as `define`. Pacing queues and composites can't be leased, and
    /// aren't.
    ///
    /// # Errors
    /// As [`define`](Limiter::define); [`ErrorKind::InvalidSetting`] for leases that do not fit the limit.
    ///
    /// ```
    /// # use shardlimit::{Leases, Limiter};
    /// let limiter = Limiter::builder().redis(["redis://10.0.0.1:6379"]).build()?;
    /// let checkout = limiter.define_leased("checkout", "500000/s burst 50000".parse()?, Leases::default())?;
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    pub fn define_leased(&self, name: &str, limit: Limit, leases: Leases) -> Result<NamedLimit, Error> {
        leases.check(limit)?;
        self.define_as(name, limit, Some(leases), || {
            Ok(match &self.0.store {
                local @ Store::Local { .. } => local.define(name, limit),
                Store::Shared(shared) => shared.define(name, limit, moment(), Some(&leases)),
            })
        })
    }

    /// Gives back the permits that this process holds, and waits for up to `within` until the store has them. Calls
    /// after this work, and may take permits ahead again. Nothing to do on the embedded store.
    ///
    /// Without it they come back when they expire, as long as the runtime lives; if it ends first they are lost, and
    /// the limit is that much stricter for a moment.
    ///
    /// # Errors
    /// [`ErrorKind::Unknown`] if the store did not confirm all of them in time, or if permits of a leased limit were lost on
    /// their way back since this was last called: those of leases that expired while the store was away, and refunds.
    /// [`ErrorKind::NotSent`] after a [`shutdown`](Self::shutdown), which has given everything back.
    ///
    /// # Cancel safety
    /// What was begun goes on.
    ///
    /// ```no_run
    /// # async fn run(limiter: shardlimit::Limiter) -> Result<(), shardlimit::Error> {
    /// limiter.return_leases(std::time::Duration::from_millis(100)).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn return_leases(&self, within: Duration) -> Result<(), Error> {
        let Store::Shared(shared) = &self.0.store else { return Ok(()) };
        let limits = self.on_shared();
        let all = async move {
            let mut all = true;
            for limit in limits {
                all &= limit.return_leases().await;
            }
            all
        };
        let (done, returned) = tokio::sync::oneshot::channel();
        shared.engine.spawn(async move {
            let _ = done.send(tokio::time::timeout(within, all).await);
        })?;
        if let Ok(Ok(true)) = returned.await {
            return Ok(());
        }
        let message = format!(
            "some leases were not confirmed within {within:?}, or lost before that; the others are given back; see `unreturned` of failures"
        );
        Err(Error::new(ErrorKind::Unknown, "leases", message))
    }

    fn on_shared(&self) -> Vec<Arc<SharedLimit>> {
        lock(&self.0.definitions).values().filter_map(|known| known.named.on_shared()).collect()
    }

    /// Ends the limiter, and all its clones: leases go back, shards are charged for what was admitted without them and get the refunds
    /// that wait for them, counters deliver what they kept, calls on their way have up to `within` to be answered, then those who still
    /// wait learn that it is over. When this returns, connections are closed and tasks are gone, or at their last step. Calls after it
    /// end in [`ErrorKind::NotSent`], or are denied where that is known in process. The embedded store has nothing to end, and goes on.
    ///
    /// A shard that is away is tried again for as long as there is time. One that was shut down has nothing left to end: to do it once
    /// more is `Ok`, whatever the first one said.
    ///
    /// Dropping the limiter and everything that was defined on it ends it too, without waiting for anything.
    ///
    /// # Errors
    /// [`ErrorKind::Unknown`] if the store did not confirm all of that in time, or leases were lost before that and
    /// [`return_leases`](Self::return_leases) did not say so. It says how many permits are lost, and so do
    /// [`failures`](crate::NamedLimit::failures) of each limit. The limiter has ended all the same.
    ///
    /// # Cancel safety
    /// It goes on, whether it is dropped or not.
    ///
    /// ```no_run
    /// # async fn run(limiter: shardlimit::Limiter) -> Result<(), shardlimit::Error> {
    /// limiter.shutdown(std::time::Duration::from_millis(500)).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn shutdown(&self, within: Duration) -> Result<(), Error> {
        let Store::Shared(shared) = &self.0.store else { return Ok(()) };
        let (limits, counted) = (self.on_shared(), self.0.counting.empty());
        let before: Vec<_> = limits.iter().map(|limit| (Arc::clone(limit), limit.lost_before_the_end())).collect();
        let caught_up = limits.into_iter().map(|limit| async move {
            // Whatever it says: what it could not give back is tried again with the rest.
            limit.return_leases().await;
            limit.catch_up().await;
        });
        let caught_up = join_all(caught_up);
        let left = async move {
            join(caught_up, counted).await;
        };
        let write_off = move || {
            let mut lost = Lost::default();
            for (limit, before) in before {
                lost += limit.write_off(before);
            }
            lost
        };
        match shared.engine.shut_down(within, left, write_off).await {
            Some((true, lost)) if lost.is_nothing() => Ok(()),
            said => Err(not_confirmed(within, said.map(|(_, lost)| lost).unwrap_or_default())),
        }
    }

    /// Finds the cluster and opens a connection to each master, so that the first calls need not wait for that. Nothing to do on
    /// the embedded store.
    ///
    /// # Errors
    /// [`ErrorKind::NotSent`] if that is not done `within` the time, with what stands in the way.
    ///
    /// # Cancel safety
    /// Connections that were begun are opened.
    ///
    /// ```no_run
    /// # async fn run() -> Result<(), shardlimit::Error> {
    /// let limiter = shardlimit::Limiter::builder().redis(["redis://10.0.0.1:6379"]).build()?;
    /// limiter.ready(std::time::Duration::from_secs(5)).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn ready(&self, within: Duration) -> Result<(), Error> {
        let Store::Shared(shared) = &self.0.store else { return Ok(()) };
        shared.engine.start()?;
        let transport = shared.engine.transport.clone();
        let (done, is_ready) = tokio::sync::oneshot::channel();
        shared.engine.spawn(async move {
            let _ = done.send(transport.ready(within).await);
        })?;
        let ended = || Err(Error::new(ErrorKind::NotSent, "runtime", "it has ended, or the limiter was shut down"));
        is_ready.await.map_or_else(|_| ended(), |ready| ready.map_err(Fault::into_error))
    }

    /// Changes what decides the calls of shards that can't, for all limits that have no policy of their own.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidSetting`] for a ratio that is none.
    ///
    /// ```
    /// # use shardlimit::{FailurePolicy, Limiter};
    /// let limiter = Limiter::builder().redis(["redis://10.0.0.1:6379"]).build()?;
    /// limiter.set_failure_policy(FailurePolicy::Open)?;
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    pub fn set_failure_policy(&self, policy: FailurePolicy) -> Result<(), Error> {
        let policy = policy.check()?;
        if let Store::Shared(shared) = &self.0.store {
            shared.policy.set(Some(policy));
        }
        Ok(())
    }

    /// The breaker of each master that is known, by its address. None on the embedded store, nor over a `ClusterConnection`.
    ///
    /// ```no_run
    /// # fn run(limiter: shardlimit::Limiter) {
    /// for (master, state) in limiter.breakers() {
    ///     println!("{master} {}", state.name());
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn breakers(&self) -> Vec<(String, BreakerState)> {
        match &self.0.store {
            Store::Local { .. } => Vec::new(),
            Store::Shared(shared) => shared.engine.transport.breakers(),
        }
    }

    /// Opens or closes the breaker of a master by hand, for as long as nothing else is said; also when it has left the cluster
    /// meanwhile, and come back.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidSetting`] if no master has this address: it is one of [`breakers`](Self::breakers), or one that was forced
    /// when it was.
    ///
    /// ```no_run
    /// # fn run(limiter: shardlimit::Limiter) -> Result<(), shardlimit::Error> {
    /// limiter.force_breaker("10.0.0.3:6379", shardlimit::BreakerForce::Open)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn force_breaker(&self, master: &str, force: BreakerForce) -> Result<(), Error> {
        let known = match &self.0.store {
            Store::Local { .. } => false,
            Store::Shared(shared) => shared.engine.transport.force_breaker(master, force),
        };
        if known {
            return Ok(());
        }
        let message = format!("no master is known by the address {master:?}");
        Err(Error::new(ErrorKind::InvalidSetting, "breaker", message))
    }

    /// The topology of the cluster, as it changes. `None` on the embedded store.
    ///
    /// ```no_run
    /// # async fn run() -> Result<(), shardlimit::Error> {
    /// let limiter = shardlimit::Limiter::builder().redis(["redis://127.0.0.1:6379"]).build()?;
    /// let mut topology = limiter.watch_topology()?.expect("it is on a cluster");
    /// while let Some(now) = topology.changed().await {
    ///     println!("{} masters own {} slots", now.masters().len(), now.covered());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the limiter has no runtime yet and none can be started.
    pub fn watch_topology(&self) -> Result<Option<crate::TopologyWatch>, Error> {
        match &self.0.store {
            Store::Local { .. } => Ok(None),
            Store::Shared(shared) => {
                shared.engine.start()?;
                Ok(Some(crate::TopologyWatch::new(shared.engine.transport.watch_topology())))
            }
        }
    }
}

fn not_confirmed(within: Duration, Lost { unreturned, uncharged }: Lost) -> Error {
    let message = format!(
        "not all was confirmed within {within:?}: {unreturned} permits may not be back at their shards, {uncharged} that were \
         admitted without them may not be charged, and adds may not be counted (see `dropped` of counters)"
    );
    Error::new(ErrorKind::Unknown, "limiter", message)
}
