//! Judges what was admitted against the formulas of limits. `shardlimit bench`, `shardlimit check` and the fault suite all
//! judge by it.

mod history;
mod overshoot;

pub use history::{Change, History, reached};
pub use overshoot::{Admission, Worst, allowance, worst};
