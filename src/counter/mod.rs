//! Counters on every store: totals, events in a sliding window, distinct values.
//!
//! They are made by a [`Limiter`](crate::Limiter) and live beside its limits, under names of their own. [`crate::counters`] tells
//! what each promises, with examples.
//!
//! * [`Counters`]: totals that are added to, each add exactly once.
//! * [`SlidingCounters`]: events in the last window, or in several.
//! * [`DistinctCounters`]: different values in the last window, exactly. [`ApproximateCounters`]: about how many, for large sets.

// * `kernel`, `windows`, `sketch`: the arithmetic, pure. `table`, `seen`: the embedded store.
// * `delivery`, `work`: adds on their way to a shared store. `parts`: an approximate count there.
// * `asking`, `calls`: all other calls there, their deadlines, and how many there may be.
// * `shards`: which slots a key has. `hot`: which keys use all of them. `clocks`: what is known of the servers' clocks.

mod added;
mod approximate;
#[cfg(feature = "redis")]
mod asking;
#[cfg(feature = "redis")]
mod calls;
#[cfg(feature = "redis")]
mod clocks;
mod counters;
#[cfg(feature = "redis")]
mod delivery;
mod distinct;
#[cfg(feature = "redis")]
mod hot;
pub(crate) mod kernel;
#[cfg(feature = "redis")]
mod lane;
#[cfg(all(test, feature = "redis"))]
mod oracle;
#[cfg(all(test, feature = "redis"))]
mod oracle_windows;
#[cfg(feature = "redis")]
mod parts;
mod patience;
mod place;
mod registry;
mod seen;
mod settings;
#[cfg(feature = "redis")]
mod shards;
mod sketch;
mod sliding;
mod table;
mod windows;
#[cfg(feature = "redis")]
mod work;

pub(crate) use place::Place;
#[cfg(feature = "redis")]
pub(crate) use place::SharedPlace;
pub(crate) use registry::Registry;
#[cfg(all(fuzzing, feature = "redis"))]
pub(crate) use sketch::Sketch;

pub use added::{Added, Dropped, Unanswered, Within};
pub use approximate::ApproximateCounters;
pub use counters::Counters;
pub use distinct::DistinctCounters;
pub use settings::CounterSettings;
pub use sliding::SlidingCounters;
