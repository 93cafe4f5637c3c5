//! A limit: an algorithm with its rate and burst, or its window.
//!
//! * [`definition`](self): [`Limit`], its constructors and the ranges they accept.
//! * `text`: `token-bucket 500000/s burst 50000`, both ways.
//! * `composite`: several limits as one.
//! * `carry`: what becomes of what a key has when its limit changes.
//! * `share`: the whole numbers that a kernel computes with.

mod carry;
mod composite;
mod definition;
#[cfg(feature = "serde")]
mod serde;
mod share;
mod text;

pub use carry::Carry;
pub(crate) use composite::MOST_PARTS;
pub use definition::{Algorithm, Limit};
#[cfg(feature = "redis")]
pub(crate) use share::gcd;
pub(crate) use share::{BucketShare, Share, WindowShare};
#[cfg(all(feature = "config", feature = "redis"))]
pub(crate) use text::duration;
