//! The settings of a shared store.

use std::any::type_name;
use std::fmt;
use std::time::Duration;

#[cfg(feature = "cluster-async")]
use ::redis::cluster_async::ClusterConnection;
use tokio::runtime::Handle;

use super::Builder;
use crate::error::{Error, ErrorKind};
use crate::flow::sharded::{Crowd, MOST_ROUNDS, Shared};
use crate::observe::Sample;
use crate::plan::Shards;
use crate::policy::{FailurePolicy, PolicyCell};
use crate::selector::{RoundRobin, Selector};
#[cfg(feature = "tls")]
use crate::store::cluster::Certificates;
#[cfg(feature = "cluster-async")]
use crate::store::cluster::OwnConnection;
use crate::store::cluster::{Engine, Patience, Router, Settings, Transport};
use crate::store::ring::{Member, Ring};
use crate::sync::Arc;

const LONGEST_TIMEOUT: Duration = Duration::from_secs(3_600);
/// To one master. A server takes 10,000 of all clients unless it is told otherwise, and is worn out by its scripts long before.
const MOST_CONNECTIONS: usize = 16;

#[derive(Clone)]
pub(super) struct RedisSettings {
    pub(super) urls: Option<Vec<String>>,
    pub(super) ring: Option<Vec<String>>,
    pub(super) shards: Shards,
    pub(super) selector: Arc<dyn Selector>,
    /// Of which type that is.
    pub(super) selector_type: &'static str,
    pub(super) patience: Patience,
    pub(super) deadline: Duration,
    pub(super) policy: FailurePolicy,
    pub(super) gateways: u32,
    pub(super) ceiling: Duration,
    pub(super) hot: u64,
    pub(super) max_in_flight: usize,
    pub(super) watched: usize,
    pub(super) sample_allowed: f64,
    pub(super) runtime: Option<Handle>,
    #[cfg(feature = "tls")]
    pub(super) certificates: Certificates,
    #[cfg(feature = "cluster-async")]
    pub(super) connection: Option<ClusterConnection>,
}

impl Default for RedisSettings {
    fn default() -> Self {
        Self {
            urls: None,
            ring: None,
            shards: Shards::PerMaster,
            selector: Arc::new(RoundRobin),
            selector_type: type_name::<RoundRobin>(),
            patience: Patience::default(),
            // A round trip takes under a millisecond. Whoever asks a limiter has better things to do than to wait for it.
            deadline: Duration::from_millis(50),
            policy: FailurePolicy::default(),
            gateways: 0,
            // Long against a round trip, so that an overloaded key costs next to nothing; short for those who wait for what
            // another process gave back.
            ceiling: Duration::from_secs(1),
            // A script run takes a server 45 to 70 µs: so many are a fifth to a third of what a master can do.
            hot: 5_000,
            max_in_flight: MOST_ROUNDS,
            watched: 0,
            // Enough to see who comes; at a million calls a second, no more than a log can bear.
            sample_allowed: 0.01,
            runtime: None,
            #[cfg(feature = "tls")]
            certificates: Certificates::default(),
            #[cfg(feature = "cluster-async")]
            connection: None,
        }
    }
}

/// URLs may hold a password.
impl fmt::Debug for RedisSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSettings")
            .field("urls", &self.urls.as_ref().map_or(0, Vec::len))
            .field("shards", &self.shards)
            .field("selector", &self.selector_type)
            .field("timeout", &self.patience.timeout)
            .field("deadline", &self.deadline)
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

/// Needs the feature `redis`.
impl Builder {
    /// Keeps the limits on a Redis Cluster, or on a single server. One node of a cluster is enough to find the others;
    /// with several, any that answers will do. Default: none, the embedded store.
    ///
    /// A URL is `redis://[user:password@]host[:port]`, with `rediss` for TLS (feature `tls`), or just `host:port`. User,
    /// password and TLS of the first one go for every node.
    ///
    /// ```
    /// # use shardlimit::Limiter;
    /// let limiter = Limiter::builder().redis(["redis://10.0.0.1:6379", "redis://10.0.0.2:6379"]).build()?;
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    pub fn redis(mut self, urls: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.redis.urls = Some(urls.into_iter().map(Into::into).collect());
        self
    }

    /// Keeps the limits on independent servers that form no cluster: a ring. Each key has its home on one of them, by consistent
    /// hashing, and hot ones have shards on the others; everything works as on a cluster. Default: none.
    ///
    /// A node is `redis://[user:password@]host[:port]`, as for [`redis`](Self::redis), or a master that Sentinels watch over,
    /// `sentinel://[user:password@]host[:port][+host[:port]…]/name`: they are asked where it is, and asked again when it fails. Behind a
    /// `*` may stand a weight from 1 to 100, default 1: its part of the keys. User, password and TLS of the first one go for every
    /// node; Sentinels are asked without.
    ///
    /// Which nodes form the ring is a record that each of them has. The first client makes it as it was told; from then on it counts
    /// for all, whatever their lists say, and is changed only by [`Limiter::ring`](crate::Limiter::ring). Who was told of other nodes
    /// learns it there, and by the event `ring differs`.
    ///
    /// ```
    /// # use shardlimit::Limiter;
    /// let limiter = Limiter::builder().ring(["redis://10.0.0.1:6379", "redis://10.0.0.2:6379*2"]).build()?;
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    pub fn ring(mut self, nodes: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.redis.ring = Some(nodes.into_iter().map(Into::into).collect());
        self
    }

    /// How many shards a key is split into. Default: [`Shards::PerMaster`].
    ///
    /// It is part of the definition: of clients that say different numbers, the one with the higher revision counts.
    ///
    /// ```
    /// # use shardlimit::{Limiter, Shards};
    /// let limiter = Limiter::builder().redis(["redis://10.0.0.1:6379"]).shards(Shards::Off).build()?;
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    pub fn shards(mut self, shards: Shards) -> Self {
        self.redis.shards = shards;
        self
    }

    /// Which shard a call asks first. Default: [`RoundRobin`].
    ///
    /// ```
    /// # use shardlimit::{LeastLoaded, Limiter};
    /// let limiter = Limiter::builder().redis(["redis://10.0.0.1:6379"]).selector(LeastLoaded).build()?;
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    pub fn selector<S: Selector>(mut self, selector: S) -> Self {
        self.redis.selector = Arc::new(selector);
        self.redis.selector_type = type_name::<S>();
        self
    }

    /// For how long a key may be denied in process, from the last answer of its shards, before the store is asked again: up
    /// to an hour, drawn anew between the half and the whole for each answer. Default: 1 s. Zero: the store decides every call.
    ///
    /// An answer tells what a shard can have at the most at any later moment, so calls above that are denied without asking. What
    /// it can't tell of are refunds and resets by other processes: they are noticed this much later at the most.
    ///
    /// ```
    /// # use shardlimit::Limiter; use std::time::Duration;
    /// let limiter = Limiter::builder().redis(["redis://10.0.0.1:6379"]).ceiling(Duration::from_millis(200)).build()?;
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    pub fn ceiling(mut self, ceiling: Duration) -> Self {
        self.redis.ceiling = ceiling;
        self
    }

    /// Script runs a second, of all clients together, from which a key under [`Shards::Auto`] is hot: it is split over the masters,
    /// and comes home when its shards have less than a quarter of this to do. A counter with several
    /// [`shards`](crate::counter::CounterSettings::shards) is hot by the same measure. Default: 5,000.
    ///
    /// ```
    /// # use shardlimit::{Limiter, Shards};
    /// let builder = Limiter::builder().redis(["redis://10.0.0.1:6379"]).shards(Shards::Auto).hot(2_000);
    /// # builder.build()?;
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    pub fn hot(mut self, runs_a_second: u64) -> Self {
        self.redis.hot = runs_a_second;
        self
    }

    /// Watches how far limits are exceeded: so many split keys of each limit have the admissions of all processes added up in the
    /// store, by a script run a second, process and key. [`NamedLimit::overshoot`](crate::NamedLimit::overshoot) tells the worst.
    /// Set it alike in all processes: what one does not tell is missing from the sum. Default: 0, none.
    ///
    /// ```
    /// # use shardlimit::Limiter;
    /// let limiter = Limiter::builder().redis(["redis://10.0.0.1:6379"]).watch_overshoot(8).build()?;
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    pub fn watch_overshoot(mut self, keys: usize) -> Self {
        self.redis.watched = keys;
        self
    }

    /// Of which part of the calls that a shard allowed the event `allowed` tells, at the level DEBUG: from 0 to 1. Default: 0.01. Calls that
    /// come together are told of together or not at all; those that a lease decided in process are never told of. Denied ones are told of
    /// once a second and limit, whatever this says.
    ///
    /// ```
    /// # use shardlimit::Limiter;
    /// let limiter = Limiter::builder().redis(["redis://10.0.0.1:6379"]).sample_allowed(0.001).build()?;
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    pub fn sample_allowed(mut self, part: f64) -> Self {
        self.redis.sample_allowed = part;
        self
    }

    /// The tokio runtime that the limiter's own tasks run on. Default: the multi-threaded one that the first call comes from,
    /// or a thread of its own. Callers may be on any runtime, or on none.
    ///
    /// A current-thread runtime works only while its thread drives it: give one only if every caller lives on it.
    ///
    /// ```
    /// # use shardlimit::Limiter;
    /// # let runtime = tokio::runtime::Runtime::new().unwrap();
    /// let limiter = Limiter::builder().redis(["redis://10.0.0.1:6379"]).runtime(runtime.handle().clone()).build()?;
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    pub fn runtime(mut self, runtime: Handle) -> Self {
        self.redis.runtime = Some(runtime);
        self
    }

    /// Sends everything over a `ClusterConnection` of your own, instead of opening connections.
    ///
    /// Turn its retries off (`ClusterClientBuilder::retries(0)`): it sends a request again when its fate is unknown, and
    /// then a call can be charged more than once. It also serves all masters by one task, so a sick master slows the
    /// others. Where neither matters it saves connections.
    ///
    /// ```no_run
    /// # #[cfg(feature = "cluster-async")]
    /// # async fn run(connection: redis::cluster_async::ClusterConnection) -> Result<(), shardlimit::Error> {
    /// let limiter = shardlimit::Limiter::builder().cluster_connection(connection).build()?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "cluster-async")]
    pub fn cluster_connection(mut self, connection: ClusterConnection) -> Self {
        self.redis.connection = Some(connection);
        self
    }

    /// The certificate, as PEM, of the authority that signed the servers'. Default: those that the system trusts.
    ///
    /// ```
    /// # use shardlimit::Limiter;
    /// # let authority = Vec::new();
    /// let builder = Limiter::builder().redis(["rediss://10.0.0.1:6379"]).tls_authority(authority);
    /// ```
    #[cfg(feature = "tls")]
    pub fn tls_authority(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.redis.certificates.authority = Some(pem.into());
        self
    }

    /// The certificate and the key, as PEM, that this client shows to the servers. Default: none.
    ///
    /// ```
    /// # use shardlimit::Limiter;
    /// # let (certificate, key) = (Vec::new(), Vec::new());
    /// let builder = Limiter::builder().redis(["rediss://10.0.0.1:6379"]).tls_client(certificate, key);
    /// ```
    #[cfg(feature = "tls")]
    pub fn tls_client(mut self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.redis.certificates.client = Some((certificate.into(), key.into()));
        self
    }

    /// What limits on a shared store have in common; none if no URL was given.
    pub(super) fn shared(&self) -> Result<Option<Shared>, Error> {
        let RedisSettings { shards, selector, patience, deadline, ceiling, hot, runtime, .. } = &self.redis;
        let Patience { connections, connect_timeout, timeout, .. } = *patience;
        if *hot == 0 {
            let message = "must be at least 1 script run a second, got 0";
            return Err(Error::new(ErrorKind::InvalidSetting, "hot", message));
        }
        if self.redis.max_in_flight == 0 {
            let message = "must be at least 1, or no call could be made; got 0";
            return Err(Error::new(ErrorKind::InvalidSetting, "max_in_flight", message));
        }
        if !(0.0..=1.0).contains(&self.redis.sample_allowed) {
            let message = format!("must be from 0 to 1, got {}", self.redis.sample_allowed);
            return Err(Error::new(ErrorKind::InvalidSetting, "sample_allowed", message));
        }
        if !(1..=MOST_CONNECTIONS).contains(&connections) {
            let message = format!("must be from 1 to {MOST_CONNECTIONS} to each master, got {connections}");
            return Err(Error::new(ErrorKind::InvalidSetting, "connections", message));
        }
        if *ceiling > LONGEST_TIMEOUT {
            let message = format!("must be at most {LONGEST_TIMEOUT:?}, got {ceiling:?}");
            return Err(Error::new(ErrorKind::InvalidSetting, "ceiling", message));
        }
        for (field, time) in [("timeout", timeout), ("connect_timeout", connect_timeout), ("deadline", *deadline)] {
            check_time(field, time)?;
        }
        let policy = self.redis.policy.check()?;
        let Some(transport) = self.transport()? else { return Ok(None) };
        Ok(Some(Shared {
            engine: Arc::new(Engine::new(transport, runtime.clone())),
            prefix: self.prefix.as_str().into(),
            shards: *shards,
            selector: Arc::clone(selector),
            clock: self.clock.clone().unwrap_or_default(),
            timeout,
            deadline: *deadline,
            policy: Arc::new(PolicyCell::new(Some(policy))),
            gateways: self.redis.gateways,
            ceiling: *ceiling,
            max_keys: self.max_keys,
            crowd: Arc::new(Crowd::new(self.redis.max_in_flight)),
            hot: *hot,
            shadow: self.shadow,
            watched: self.redis.watched,
            sample: Sample::new(self.redis.sample_allowed),
        }))
    }

    fn transport(&self) -> Result<Option<Transport>, Error> {
        let given = self.redis.patience;
        let patience = Patience {
            breaker: given.breaker.by(self.redis.deadline).check()?,
            retries: given.retries.check()?,
            reconnect: given.reconnect.check("reconnect")?,
            ..given
        };
        #[cfg(feature = "cluster-async")]
        if let Some(connection) = &self.redis.connection {
            return Ok(Some(Transport::Own(Arc::new(OwnConnection::new(connection.clone(), patience.timeout)))));
        }
        let members = self.redis.ring.as_ref();
        let members = members.map(|ring| ring.iter().map(|text| Member::read(text)).collect::<Result<Vec<_>, _>>());
        let (members, urls) = match (members.transpose()?, &self.redis.urls) {
            (Some(_), Some(_)) => {
                let message = "is one store and `redis` another: give one of them";
                return Err(Error::new(ErrorKind::InvalidSetting, "ring", message));
            }
            (Some(members), None) => {
                let (members, urls): (Vec<Member>, Vec<String>) = members.into_iter().unzip();
                (Some(members), urls)
            }
            (None, Some(urls)) => (None, urls.clone()),
            (None, None) => return Ok(None),
        };
        let settings = Settings::new(
            &urls,
            patience,
            #[cfg(feature = "tls")]
            &self.redis.certificates,
        )?;
        let ring = members.map(|members| Ring::new(members, &self.prefix, &settings)).transpose()?;
        Ok(Some(Transport::Direct(Arc::new(Router::new(settings, ring)))))
    }
}

/// A time to wait for something.
pub(crate) fn check_time(field: &'static str, time: Duration) -> Result<(), Error> {
    if time.is_zero() || time > LONGEST_TIMEOUT {
        let message = format!("must be longer than 0 and at most {LONGEST_TIMEOUT:?}, got {time:?}");
        return Err(Error::new(ErrorKind::InvalidSetting, field, message));
    }
    Ok(())
}
