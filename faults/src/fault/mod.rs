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

pub(crate) use list::ALL;

use crate::Failure;
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
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Needs {
    pub network: bool,
    pub replicas: bool,
    pub proxies: bool,
    /// Clocks that can be stepped.
    pub clock: bool,
    /// Silence between the calls.
    pub silence: bool,
}

/// How far above the formula the documentation says that this may lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extra {
    /// Not at all.
    None,
    /// A replica that takes over may lack the last charges: never more than the bursts of its shares. Nothing without
    /// replicas.
    LostCharges,
    /// The old master goes on in a minority, beside the one that was elected.
    Minority,
    /// What a clock that is stepped there and back refills twice: two bursts of its share.
    Clock,
}

/// The longest that a client goes on by an old plan while it reaches home: 1 s + 4 time-outs, in seconds.
fn by_an_old_plan(deadline: f64) -> f64 {
    1.0 + 4.0 * deadline
}

impl Extra {
    pub(crate) fn permits(self, stage: &Stage, sick: &[usize], deadline: f64, period: f64) -> f64 {
        let shares = stage.shards.iter().filter(|shard| sick.contains(&shard.node));
        let bursts: f64 = shares.clone().map(|shard| shard.burst as f64).sum();
        let rates: f64 = shares.map(|shard| shard.permits as f64 / period).sum();
        match self {
            Self::None => 0.0,
            Self::LostCharges | Self::Minority if !stage.replicas => 0.0,
            Self::LostCharges => bursts,
            Self::Minority => bursts + rates * by_an_old_plan(deadline),
            Self::Clock => 2.0 * bursts,
        }
    }
}
