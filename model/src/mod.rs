//! A model of the agreement between clients: escrow, with everything that can go wrong around it.
//!
//! A client of the model takes the steps that [`escrow`](crate::escrow) tells it, as a client of the library does; home
//! changes as [`rewrite`](crate::kernel::rewrite) says, which the scripts at home equal. What is written anew here is what
//! drives them (`src/flow/sharded/moves.rs`, `escrow.rs`) and the other scripts, line by line. A checker then takes every
//! order of steps, deliveries and faults that a [`Setup`] allows.
//!
//! * `setup`: what is explored. `world`: its states, and what can happen in them. `faults`: what can go wrong.
//! * `client`, `message`: what a client does and sends. `calls`: what its calls take, and what it hears late of them.
//! * `server`, `scripts`: what the servers hold and do. `mistakes`: what is done wrong on purpose.
//! * `account`: what was admitted, what there is to spend, and what there may be. `laws`: what must hold in every
//!   state. `forward`: whether a key comes to rest.
//! * `explore`: runs the checker. `story`: what it found, as text.
//!
//! A tick of the clock is a millisecond, so that ids, whose stamps are milliseconds, come about as they really do.

mod account;
mod calls;
mod client;
mod explore;
mod faults;
mod forward;
mod laws;
mod message;
mod mistakes;
mod scripts;
mod server;
mod setup;
mod story;
mod world;

pub use explore::{breaks, holds};
pub use laws::Law;
pub use setup::{Broken, Fault, Setup};
