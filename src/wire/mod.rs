//! The wire: what travels between a client and a server, byte by byte, as `lua/README.md` has it.
//!
//! * `id`: grant ids, which order everything that ever happened to a sub-key.
//! * `packed`: a sub-key as it is stored.
//! * `ledger`: what home knows of the limit and of the shares it has lent.
//! * `run`, `escrow`: the arguments of a script, and its reply. `reply`: how replies are read.
//! * `scripts`: the scripts themselves.
//!
//! Whatever comes from a server is checked field by field: a reply that is not what we know is an error that says
//! what was wrong with it, never a guess and never a panic.

mod escrow;
mod id;
mod ledger;
mod packed;
mod reply;
mod run;
mod scripts;
#[cfg(test)]
mod tests;

pub(crate) use escrow::{CloseReply, CloseRun, HomeReply, HomeRun, InstallReply, InstallRun};
pub(crate) use id::GrantId;
pub(crate) use ledger::{Grant, Ledger, Status};
#[cfg(any(test, model))]
pub(crate) use packed::unpack;
pub(crate) use packed::{Kind, pack};
pub(crate) use run::{Reply, Run, Verdicts};
pub(crate) use scripts::Script;
#[cfg(test)]
pub(crate) use {ledger::BadLedger, packed::Packed, reply::BadReply};
