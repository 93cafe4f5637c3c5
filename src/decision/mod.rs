//! The answer to a call.
//!
//! * `answer`: [`Decision`], allowed or denied.
//! * `facts`: what the reply said; figures are worked out when they are asked for.
//! * `receipt`: what a refund or a settlement needs.
//! * `all`: one decision over several asks.
//! * `peek`: a look that charges nothing.

mod all;
mod answer;
mod facts;
mod peek;
mod receipt;

pub use all::{AllAllowed, AllDecision, AllDenied, AllReceipt};
pub use answer::{Allowed, Decision, Denied};
#[cfg(feature = "redis")]
pub(crate) use facts::StoreFacts;
pub use facts::{DecidedBy, Remaining};
pub use peek::Peek;
#[cfg(feature = "redis")]
pub(crate) use receipt::Charge;
pub use receipt::Receipt;
