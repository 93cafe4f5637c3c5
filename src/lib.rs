//! One rate limit across a whole Redis Cluster, for keys too hot for one node.
//!
//! This release has the whole limiter on its embedded store: every algorithm, with the semantics that the
//! shared stores will have, on a machine with nothing but Rust.
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
//! Where to go from here:
//! * [`guide`]: limits, names, keys, receipts, waiting and testing, each with an example that runs.
//! * [`accuracy`]: what each algorithm promises, as a formula. [`decisions`]: what was measured, and chosen.
//! * [`Limiter`], [`NamedLimit`], [`Handle`]: the API. [`Limit`]: the text form and its ranges.

#![forbid(unsafe_code)]

#[doc = include_str!("../docs/guide.md")]
pub mod guide {}

#[doc = include_str!("../docs/accuracy.md")]
pub mod accuracy {}

#[doc = include_str!("../docs/decisions.md")]
pub mod decisions {}

mod builder;
mod clock;
mod decision;
mod error;
mod flow;
mod handle;
mod kernel;
mod key;
mod limit;
mod limiter;
mod named;
#[cfg(feature = "redis")]
mod observe;
#[cfg(feature = "redis")]
mod plan;
#[cfg(feature = "redis")]
mod selector;
mod store;
mod sync;
#[cfg(feature = "redis")]
mod topology;
#[cfg(feature = "redis")]
mod wire;

pub use builder::Builder;
pub use clock::{Clock, FakeClock};
pub use decision::{Allowed, DecidedBy, Decision, Denied, Peek, Receipt, Remaining};
pub use error::{Error, ErrorKind};
pub use handle::Handle;
pub use key::Slot;
pub use limit::{Algorithm, Limit};
pub use limiter::Limiter;
pub use named::NamedLimit;
#[cfg(feature = "redis")]
pub use plan::{Plan, PlannedShard, ShardCounts, Shards};
#[cfg(feature = "redis")]
pub use selector::{Candidates, LeastLoaded, PowerOfTwo, RoundRobin, Selector};
#[cfg(feature = "redis")]
pub use topology::{Master, Topology, TopologyWatch};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
