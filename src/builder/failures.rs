//! The settings for servers that do not answer.

use std::time::Duration;

use super::Builder;
use crate::breaker::BreakerSettings;
use crate::policy::FailurePolicy;
use crate::retries::{Backoff, Retries};

/// Needs the feature `redis`.
impl Builder {
    /// The longest that a call to `acquire` may take: up to an hour. Default: 50 ms. Then it is decided by the
    /// [failure policy](Self::on_failure). What the store grants after that goes back to it. Calls on [counters](crate::counters)
    /// have it too; they end in an error, or are queued.
    ///
    /// [`NamedLimit::deadline`](crate::NamedLimit::deadline) and [`Counters::deadline`](crate::counter::Counters::deadline) give
    /// single calls another one. The limiter keeps them by its own tasks: callers need no timer, whatever they run on.
    ///
    /// ```
    /// # use shardlimit::Limiter; use std::time::Duration;
    /// let limiter = Limiter::builder().redis(["redis://10.0.0.1:6379"]).deadline(Duration::from_millis(10)).build()?;
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.redis.deadline = deadline;
        self
    }

    /// What decides the calls of a shard that can't be asked. Default: [`FailurePolicy::Local`] at half of what was granted
    /// here lately. [`Limiter::set_failure_policy`](crate::Limiter::set_failure_policy) and
    /// [`NamedLimit::set_failure_policy`](crate::NamedLimit::set_failure_policy) change it while it is in use.
    ///
    /// ```
    /// # use shardlimit::{FailurePolicy, Limiter};
    /// let limiter = Limiter::builder().redis(["redis://10.0.0.1:6379"]).on_failure(FailurePolicy::Open).build()?;
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    pub fn on_failure(mut self, policy: FailurePolicy) -> Self {
        self.redis.policy = policy;
        self
    }

    /// How many processes share these limits. Only [`FailurePolicy::Local`] asks, where a process was granted nothing lately:
    /// then its part of a shard is this part of it. Default: nobody knows, and such a process denies.
    ///
    /// ```
    /// # use shardlimit::Limiter;
    /// let limiter = Limiter::builder().redis(["redis://10.0.0.1:6379"]).gateways(12).build()?;
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    pub fn gateways(mut self, processes: u32) -> Self {
        self.redis.gateways = processes;
        self
    }

    /// When a master is not asked any more, and when it is again. A `ClusterConnection` of your own has no breakers.
    ///
    /// ```
    /// # use shardlimit::{BreakerSettings, Limiter}; use std::time::Duration;
    /// let mut breaker = BreakerSettings::default();
    /// breaker.slow = Some(Duration::from_millis(20));
    /// let limiter = Limiter::builder().redis(["redis://10.0.0.1:6379"]).breaker(breaker).build()?;
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    pub fn breaker(mut self, settings: BreakerSettings) -> Self {
        self.redis.patience.breaker = settings;
        self
    }

    /// How often a request is sent again that a server proved not to have run, and could not take. Over a `ClusterConnection` of
    /// your own that is its affair.
    ///
    /// ```
    /// # use shardlimit::{Limiter, Retries};
    /// let mut retries = Retries::default();
    /// retries.free = 0;
    /// let limiter = Limiter::builder().redis(["redis://10.0.0.1:6379"]).retries(retries).build()?;
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    pub fn retries(mut self, retries: Retries) -> Self {
        self.redis.patience.retries = retries;
        self
    }

    /// The time between two attempts to connect to the same server.
    ///
    /// ```
    /// # use shardlimit::{Backoff, Limiter};
    /// let mut backoff = Backoff::default();
    /// backoff.multiplier = 1.5;
    /// let limiter = Limiter::builder().redis(["redis://10.0.0.1:6379"]).reconnect(backoff).build()?;
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    pub fn reconnect(mut self, backoff: Backoff) -> Self {
        self.redis.patience.reconnect = backoff;
        self
    }

    /// How many requests may be on their way or wait to be sent, of all keys and limits together; up to 1,024 calls for the same
    /// shard share one. Above that a call is decided at once by the [policy](Self::on_failure), and
    /// [`crowded`](crate::Failures::crowded) counts it: so a store that does not answer, asked for ever new keys, fills no memory.
    /// [Counters](crate::counters) may have as many of their own. Default: 65,536.
    ///
    /// ```
    /// # use shardlimit::Limiter;
    /// let limiter = Limiter::builder().redis(["redis://10.0.0.1:6379"]).max_in_flight(10_000).build()?;
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    pub fn max_in_flight(mut self, requests: usize) -> Self {
        self.redis.max_in_flight = requests;
        self
    }

    /// The longest that one request to the store may take before it counts as lost: up to an hour. Default: 500 ms. A call does
    /// not wait that long: it has its [deadline](Self::deadline). Plans and changes of limits may, for each of their steps. Over a
    /// `ClusterConnection` each redirect counts anew.
    ///
    /// ```
    /// # use shardlimit::Limiter; use std::time::Duration;
    /// let limiter = Limiter::builder().redis(["redis://10.0.0.1:6379"]).timeout(Duration::from_millis(50)).build()?;
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.redis.patience.timeout = timeout;
        self
    }

    /// The longest that opening a connection may take, with the name, the handshake, the log-in and the scripts: up to an hour.
    /// Default: 2 s. A call does not wait that long: it has its [deadline](Self::deadline), and the attempt goes on without it. Then
    /// comes the wait of [`reconnect`](Self::reconnect). Over a `ClusterConnection` of your own that is its affair.
    ///
    /// ```
    /// # use shardlimit::Limiter; use std::time::Duration;
    /// let limiter =
    ///     Limiter::builder().redis(["redis://10.0.0.1:6379"]).connect_timeout(Duration::from_millis(500)).build()?;
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.redis.patience.connect_timeout = timeout;
        self
    }

    /// How many connections to each master, from 1 to 16. Default: 1.
    ///
    /// Requests take turns over them. A lost one is opened again while they go on by the others. One carries many times what a master
    /// can run, so more of them are for networks that slow or cut a single one now and then; each has its task here, and counts
    /// against the servers' `maxclients`. Over a `ClusterConnection` of your own that is its affair.
    ///
    /// ```
    /// # use shardlimit::Limiter;
    /// let limiter = Limiter::builder().redis(["redis://10.0.0.1:6379"]).connections(2).build()?;
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    pub fn connections(mut self, connections: usize) -> Self {
        self.redis.patience.connections = connections;
        self
    }
}
