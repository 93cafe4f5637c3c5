//! The cluster store: scripts on the masters of a Redis Cluster, or on a single server.
//!
//! * `settings`: where the servers are. `node`: one server and the connections to it. `link`: one of them. `dial`: how it is opened.
//!   `breaker`: whether it is asked at all.
//! * `stream`, `scanner`: end a connection whose server sends too much, or too slowly.
//! * `router`: each `request` to the master that owns its slot, and what every reply means (`fault`). `budget`: how often it is
//!   sent again. `trouble`: for what nobody waits any more.
//! * `transport`: the router, or a `ClusterConnection` of the user's own (`own`).
//! * `tls`: certificates, with the feature of that name.
//! * `timers`: for how long a request may take.
//! * `watcher`: keeps the topology up to date. `rest`: whether it has come to rest. `engine`: the runtime that all of this runs on.

mod breaker;
mod budget;
mod dial;
mod engine;
mod fault;
mod link;
mod node;
#[cfg(feature = "cluster-async")]
mod own;
mod request;
mod rest;
mod router;
mod scanner;
mod settings;
mod stream;
mod timers;
#[cfg(feature = "tls")]
mod tls;
mod transport;
mod trouble;
mod view;
mod watcher;

#[cfg(test)]
mod tests;

pub(crate) use engine::Engine;
pub(crate) use fault::{Address, Fault};
pub(super) use node::Node;
#[cfg(feature = "cluster-async")]
pub(crate) use own::OwnConnection;
pub(crate) use request::Request;
pub(crate) use router::Router;
#[cfg(fuzzing)]
pub(crate) use scanner::Scanner;
pub(crate) use settings::{Patience, Settings, without_secret};
pub(crate) use timers::Timer;
#[cfg(feature = "tls")]
pub(crate) use tls::Certificates;
pub(crate) use transport::Transport;
pub(super) use watcher::connect_ahead;
