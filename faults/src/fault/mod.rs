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
use crate::judge::Tally;
use crate::limiter::Settings;
use crate::record::Record;
use crate::silence::longest;
use crate::stage::{Marks, Shard, Stage};

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

/// How far above the formula a fault may lead, as the documentation states it. Whatever the policy admits beside them, shards alone
/// stay within the formula, unless they forget something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extra {
    /// Not at all.
    None,
    /// A replica that takes over may lack the last charges: never more than the bursts of its shares. Nothing without
    /// replicas.
    LostCharges,
    /// Some calls reach the shard and others are decided by the policy beside it.
    Beside,
    /// The same of all shards, for a moment each. What the policy admits in it is charged when the shard is back.
    Moments,
    /// The same, and the run that is to charge it may be lost as well: then it never is. Nor is a call that was sent and not answered, and
    /// that the policy admits: nobody knows that it was not charged, so `Failures::uncharged` does not count it, and is no bound.
    MomentsLost,
    /// Clients on both sides of a cut, each beside shards that others reach; and the old master goes on in a minority, beside
    /// the one that was elected.
    Minority,
    /// What a clock that is stepped there and back refills twice: two bursts of its share.
    Clock,
}

/// The longest that a client goes on by an old plan while it reaches home: 1 s + 4 time-outs of 500 ms.
const BY_AN_OLD_PLAN: f64 = 3.0;

/// In permits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Permits {
    /// Of what shards admitted.
    pub by_shards: f64,
    /// Of all admissions.
    pub all: f64,
}

impl Extra {
    /// Of a fault that lasted as long as it did.
    pub(crate) fn permits(self, stage: &Stage, settings: &Settings, marks: &Marks, records: &[Record]) -> Permits {
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
        let of_all = |all: f64| Permits { by_shards: all, all };
        let beside = |all: f64| Permits { by_shards: 0.0, all };
        let by_policy = Tally::of(records).by_policy.0 as f64;
        match self {
            Self::None => of_all(0.0),
            Self::LostCharges => of_all(lost),
            Self::Beside => beside(ratio * rates * seconds),
            Self::Moments => {
                let rate = |shard: &Shard| shard.permits as f64 / period;
                let owed =
                    stage.shards.iter().map(|shard| ratio * rate(shard) * longest_without(shard, marks, records));
                beside(owed.sum::<f64>().min(by_policy))
            }
            Self::MomentsLost => beside(by_policy),
            Self::Minority => {
                let old_master = if stage.replicas { bursts + rates * BY_AN_OLD_PLAN } else { 0.0 };
                let policy = ratio * settings.limit.permits() as f64 / period * seconds;
                Permits { by_shards: old_master, all: old_master + policy }
            }
            Self::Clock => of_all(2.0 * bursts),
        }
    }
}

/// The longest that a process had no answer from this shard, in seconds.
fn longest_without(shard: &Shard, marks: &Marks, records: &[Record]) -> f64 {
    let silences = records.iter().flat_map(|record| &record.silences);
    longest(silences, shard.slot, marks.begin, marks.end) as f64 / SECOND as f64
}
