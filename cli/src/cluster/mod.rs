//! `shardlimit cluster`: a throw-away Redis Cluster on this machine, for people who want to try things.
//!
//! * `folder`: where it lives, and the record of its servers, which also says that the folder is taken.
//! * `identity`: whether what answers on a port is the server of the record.
//! * `program`: the server program, and ports for it.
//! * `server`: one server that was started here; it is stopped again unless it is kept.
//! * `join`: makes one cluster of the servers.
//! * `up`, `down`: the commands.

mod down;
mod folder;
mod identity;
mod join;
mod program;
mod server;
mod up;

pub(crate) use down::down;
pub(crate) use up::up;
