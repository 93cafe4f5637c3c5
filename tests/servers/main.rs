//! What the library does on real servers: a file for each behaviour. One program, because each takes as long to build as a small service.
#![cfg(feature = "redis")]

mod agreement;
mod auto_split;
mod ceilings;
mod composite;
#[cfg(feature = "config")]
mod configuration;
mod connections;
mod counter_crowds;
mod counter_deadlines;
mod counter_delivery;
mod counter_replies;
mod deadlines;
mod dropped_calls;
mod escrow;
mod exactness;
mod failures;
mod gathering;
mod harness;
mod home_losses;
mod idle_keys;
mod idle_plans;
mod lease_bounds;
mod lease_sizes;
mod leases;
mod limit_changes;
mod losses;
mod overshoot;
#[cfg(feature = "cluster-async")]
mod own_connection;
mod permissions;
mod policy_changes;
mod redirects;
mod ring;
mod ring_records;
mod runtimes;
mod selectors;
mod sentinels;
#[path = "../support/shared.rs"]
mod shared;
mod shared_keys;
mod shared_order;
mod shared_receipts;
mod shared_several;
mod shared_waiting;
mod sick_masters;
mod single_server;
mod splitting;
#[path = "../support/mod.rs"]
mod support;
mod topology_watch;
