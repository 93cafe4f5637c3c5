//! Ways to measure contestants side by side.
//!
//! The machine is shared and noisy, so a figure alone says little. Each round runs all contestants one after
//! another; the ratio is taken within a round, and the median over rounds is what counts.
//!
//! * [`contest`] and [`lap`]: synchronous loops on a few threads, in nanoseconds a decision.
//! * [`Rounds`]: anything else that returns [`Figures`], one turn after another.
//! * [`baseline`]: what they are compared with on a cluster.
//! * [`load`]: callers on a runtime, in a closed loop or on a schedule. [`cluster`]: throw-away servers to call.
//! * [`Options`]: what a bench is told on its command line. [`Table`] and [`chart`]: what it has to say.
//! * [`machine`] and [`usage`]: what it ran on, and what it used.

pub mod baseline;
pub mod chart;
pub mod cluster;
mod contest;
pub mod load;
pub mod machine;
mod options;
mod rounds;
mod table;
pub mod usage;

pub use contest::{CONTEST_ROUNDS, Contestant, Lap, Work, allowed_of, contest, lap};
pub use options::{Defaults, Options};
pub use rounds::{Figures, Results, Rounds, Spread};
pub use table::{Table, count, micros, number};
