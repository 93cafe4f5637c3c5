//! One rate limit across a whole Redis Cluster, for keys too hot for one node.
//!
//! This release has two stores. The embedded one keeps every algorithm in process, on a machine with nothing but Rust. With
//! the feature `redis`, a limit is split over the masters of a Redis Cluster and kept by all processes together.
//!
//! ```
//! use shardlimit::{Decision, Limiter};
//!
//! # pollster::block_on(async {
//! let limiter = Limiter::local();
//! let checkout = limiter.define("checkout", "token-bucket 500000/s burst 50000".parse()?)?;
//!
//! match checkout.acquire("item:42").await? {
//!     Decision::Allowed(_) => { /* serve the request */ }
//!     Decision::Denied(denied) => println!("429, retry after {:?}", denied.retry_after()),
//! }
//! # Ok::<(), shardlimit::Error>(())
//! # }).unwrap();
//! ```
//!
//! On a cluster only the first line differs:
//!
//! ```
//! # #[cfg(feature = "redis")]
//! let limiter = shardlimit::Limiter::builder().redis(["redis://10.0.0.1:6379"]).build()?;
//! # Ok::<(), shardlimit::Error>(())
//! ```
//!
//! Where to go from here:
//! * [`guide`]: limits, names, keys, receipts, waiting, testing and the cluster, each with an example.
//! * [`accuracy`]: what each algorithm promises, as a formula, and where it does not hold. [`performance`]: what each way of
//!   deciding costs, and when to use which. [`decisions`]: what was measured, and chosen.
//! * [`architecture`]: the way of a call on a cluster. [`agreement`]: how shares move and limits change. [`operations`]: servers,
//!   permissions, faults, events. [`configuration`]: all of it from a file. [`glossary`]: every word.
//! * [`Limiter`], [`NamedLimit`], [`Handle`]: the API. [`Limit`]: the text form and its ranges.
//! * [`counters`]: what else can be counted, exactly once: totals, events lately, distinct values. [`counter`]: their API.
//!
//! Features, none of them on by default: `redis` (the cluster store), `tls` (`rediss://` URLs), `cluster-async` (a
//! `ClusterConnection` of your own), `serde` (a limit as its text), `config` (a limiter and its limits from a TOML file).

#![forbid(unsafe_code)]

#[doc = include_str!("../docs/guide.md")]
pub mod guide {}

#[doc = include_str!("../docs/accuracy.md")]
pub mod accuracy {}

#[doc = include_str!("../docs/decisions.md")]
pub mod decisions {}

#[doc = include_str!("../docs/architecture.md")]
pub mod architecture {}

#[doc = include_str!("../docs/agreement.md")]
pub mod agreement {}

#[doc = include_str!("../docs/operations.md")]
pub mod operations {}

#[doc = include_str!("../docs/configuration.md")]
pub mod configuration {}

#[doc = include_str!("../docs/reliability.md")]
pub mod reliability {}

#[doc = include_str!("../docs/ring.md")]
pub mod ring {}

#[doc = include_str!("../docs/performance.md")]
pub mod performance {}

#[doc = include_str!("../docs/counters.md")]
pub mod counters {}

#[doc = include_str!("../docs/glossary.md")]
pub mod glossary {}

mod ask;
#[cfg(feature = "redis")]
mod breaker;
mod builder;
mod clock;
#[cfg(feature = "config")]
mod config;
pub mod counter;
mod decision;
mod error;
#[cfg(feature = "redis")]
mod escrow;
mod flow;
#[cfg(all(fuzzing, feature = "config", feature = "redis"))]
#[doc(hidden)]
pub mod fuzzing;
mod handle;
mod kernel;
mod key;
#[cfg(feature = "redis")]
mod leases;
mod limit;
mod limiter;
#[cfg(model)]
#[path = "../model/src/mod.rs"]
pub mod model;
mod named;
#[cfg(feature = "redis")]
mod observe;
#[cfg(feature = "redis")]
mod overshoot;
#[cfg(feature = "redis")]
mod plan;
#[cfg(feature = "redis")]
mod policy;
#[cfg(races)]
pub mod races {
    //! What threads share, in every order.
    pub use crate::flow::sharded::races::*;
}
#[cfg(feature = "redis")]
mod retries;
#[cfg(feature = "redis")]
mod said;
#[cfg(feature = "redis")]
mod selector;
mod store;
#[cfg(not(races))]
mod sync;
#[cfg(races)]
#[path = "../races/src/sync.rs"]
mod sync;
#[cfg(feature = "redis")]
mod topology;
#[cfg(feature = "redis")]
mod wire;

pub use ask::Ask;
#[cfg(feature = "redis")]
pub use breaker::{BreakerForce, BreakerSettings, BreakerState};
pub use builder::Builder;
pub use clock::{Clock, FakeClock};
#[cfg(feature = "config")]
pub use config::{Changes, Config};
pub use decision::{
    AllAllowed, AllDecision, AllDenied, AllReceipt, Allowed, DecidedBy, Decision, Denied, Peek, Receipt, Remaining,
};
pub use error::{Error, ErrorKind};
pub use handle::Handle;
pub use key::Slot;
#[cfg(feature = "redis")]
pub use leases::Leases;
pub use limit::{Algorithm, Carry, Limit};
pub use limiter::Limiter;
#[cfg(feature = "redis")]
pub use limiter::{Ring, RingNode};
pub use named::NamedLimit;
#[cfg(feature = "redis")]
pub use overshoot::Overshoot;
#[cfg(feature = "redis")]
pub use plan::{Plan, PlannedShard, ShardCounts, Shards};
#[cfg(feature = "redis")]
pub use policy::{FailurePolicy, Failures};
#[cfg(feature = "redis")]
pub use retries::{Backoff, Retries};
#[cfg(feature = "redis")]
pub use selector::{Candidates, LeastLoaded, PowerOfTwo, RoundRobin, Selector};
#[cfg(feature = "redis")]
pub use topology::{Master, Topology, TopologyWatch};

#[cfg(all(doctest, feature = "redis"))]
#[doc = include_str!("../README.md")]
mod readme {}
