//! What is done to a cluster: a function a fault, which injects it, takes it away, and says when and to whom.
//!
//! * `process`: servers that die, stop and start. `failover`: replicas that take over. `net`: partitions and loss.
//! * `slots`: slots on their way. `server`: commands that disturb. `proxied`: connections that a proxy cuts or slows down.

mod failover;
mod list;
mod net;
mod process;
mod proxied;
mod server;
mod slots;

pub(crate) use failover::let_lag;
pub(crate) use list::ALL;

use shardlimit::FailurePolicy;

use crate::Failure;
use crate::clock::SECOND;
use crate::limiter::Settings;
use crate::stage::{Marks, Stage};

/// One fault of the suite.
pub(crate) struct Fault {
    pub name: &'static str,
    /// What is done, in words.
    pub about: &'static str,
    pub needs: Needs,
    pub extra: Extra,
    pub inject: fn(&mut Stage) -> Result<Marks, Failure>,
}

/// What has to be around the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Needs {
    pub place: Place,
    pub replicas: bool,
    /// Silence between the calls.
    pub silence: bool,
    /// Servers that forget nothing they have confirmed.
    pub durable: bool,
}

/// Where the servers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// On loopback.
    Loopback,
    /// On loopback, each behind a proxy of ours.
    Proxied,
    /// On loopback, with clocks that can be stepped.
    Lied,
    /// In a network of our own.
    Network,
}

impl Needs {
    /// Nothing but a place.
    pub(crate) const fn only(place: Place) -> Self {
        Self { place, replicas: false, silence: false, durable: false }
    }
}

/// How far above the formula a fault may lead, as the documentation states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extra {
    /// Not at all.
    None,
    /// A replica that takes over may lack the last charges: never more than the bursts of its shares. Nothing without
    /// replicas.
    LostCharges,
    /// Some calls reach the shard and others are decided by the policy beside it.
    Beside,
    /// Clients on both sides of a cut, each beside shards that others reach; and the old master goes on in a minority, beside
    /// the one that was elected.
    Minority,
    /// What a clock that is stepped there and back refills twice: two bursts of its share.
    Clock,
}

/// The longest that a client goes on by an old plan while it reaches home: 1 s + 4 time-outs of 500 ms.
const BY_AN_OLD_PLAN: f64 = 3.0;

impl Extra {
    /// In permits, of a fault that lasted so many seconds.
    pub(crate) fn permits(self, stage: &Stage, settings: &Settings, marks: &Marks) -> f64 {
        let period = settings.limit.period().as_secs_f64();
        let sick = stage.shards.iter().filter(|shard| marks.sick.contains(&shard.node));
        let bursts: f64 = sick.clone().map(|shard| shard.burst as f64).sum();
        let rates: f64 = sick.map(|shard| shard.permits as f64 / period).sum();
        let seconds = (marks.end - marks.begin) as f64 / SECOND as f64;
        let ratio = match settings.policy {
            FailurePolicy::Local { ratio } => ratio,
            FailurePolicy::Open => f64::INFINITY,
            _ => 0.0,
        };
        let lost = if stage.replicas { bursts } else { 0.0 };
        match self {
            Self::None => 0.0,
            Self::LostCharges => lost,
            Self::Beside => ratio * rates * seconds,
            Self::Minority => {
                let old_master = if stage.replicas { bursts + rates * BY_AN_OLD_PLAN } else { 0.0 };
                old_master + ratio * settings.limit.permits() as f64 / period * seconds
            }
            Self::Clock => 2.0 * bursts,
        }
    }
}
