//! What holds on every store, and what the embedded one does: a file for each behaviour. One program, because each takes long to build.

mod calls;
mod counters;
mod distinct_counters;
mod limit_text;
mod receipts;
mod several;
#[cfg(feature = "redis")]
#[path = "../support/shared.rs"]
mod shared;
mod sliding_counters;
#[path = "../support/mod.rs"]
mod support;
mod waiting;
mod waiting_faults;
