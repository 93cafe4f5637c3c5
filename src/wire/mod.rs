//! The wire: what travels between a client and a server, byte by byte, as `lua/README.md` has it.
//!
//! * `id`: grant ids, which order everything that ever happened to a sub-key.
//! * `packed`: a sub-key as it is stored.
//! * `ledger`: what home knows of the limit and of the shares it has lent.
//! * `run`, `escrow`: the arguments of a script, and its reply. `reply`: how replies are read.
//! * `moving`: what goes from one server of a ring to another.
//! * `tally`: what was admitted lately.
//! * `count`, `windows`, `distinct`: the same for counters.
//! * `scripts`: the scripts themselves.
//!
//! Whatever comes from a server is checked field by field: a reply that is not what we know is an error that says
//! what was wrong with it, never a guess and never a panic.

mod count;
mod distinct;
mod escrow;
mod id;
mod ledger;
mod moving;
mod packed;
mod reply;
mod run;
mod scripts;
mod tally;
#[cfg(test)]
pub(crate) mod tests;
mod windows;

pub(crate) use count::{CountReply, CountRun, Mode};
pub(crate) use distinct::{ApproximateReply, ApproximateRun, DistinctReply, DistinctRun};
pub(crate) use escrow::{CloseReply, CloseRun, HomeReply, HomeRun, InstallReply, InstallRun};
pub(crate) use id::GrantId;
pub(crate) use ledger::{Grant, Ledger, Status};
pub(crate) use moving::{MoveInReply, MoveOutReply, RingReply};
#[cfg(any(test, model))]
pub(crate) use packed::unpack;
pub(crate) use packed::{Kind, pack};
pub(crate) use run::{Reply, Run, Verdicts};
pub(crate) use scripts::Script;
pub(crate) use tally::{Cell, MOST_CELLS, TallyReply, TallyRun};
pub(crate) use windows::{WindowsReply, WindowsRun};
#[cfg(test)]
pub(crate) use {ledger::BadLedger, packed::Packed, packed::leased, reply::BadReply};
