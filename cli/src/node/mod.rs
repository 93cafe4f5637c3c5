//! Servers looked at one by one: the router of the library would hide which of them said what.
//!
//! * `connection`: one connection to one server, with a time-out on every step.
//! * `view`: what one node of a cluster says about all of them.

mod connection;
mod view;

pub(crate) use connection::{Node, field};
pub(crate) use view::{Seen, read_nodes};
