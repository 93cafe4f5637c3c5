//! One hot key on three masters: how many decisions, how fast, at what price?
//!
//! `cargo bench -p shardlimit-peers --bench hot_key -- [--quick] [--only callers|idle|offered] [--no-peers] [--svg]`
//!
//! * `callers`: a closed loop of 1 to 10,000 callers, also against other crates. `idle`: one caller alone, against the same EVALSHA on a bare connection.
//!   `offered`: an open loop at a fixed rate.

mod callers;
mod contestants;
mod idle;
mod monitor;
mod offered;
mod peers;

use shardlimit_peers::load::runtime;
use shardlimit_peers::{Defaults, Options, cluster, machine};

use contestants::{BURST, Contestants, MASTERS, RATE};
use peers::Peers;

fn main() {
    let options = Options::from_args(Defaults { rounds: 5, seconds: 2.0 });
    let runtime = runtime(2);
    let cluster = cluster::start(MASTERS);
    let contestants = Contestants::new(&runtime, &cluster);
    println!("{}; {MASTERS} masters on loopback, {}", machine::describe(), contestants.server_version());
    println!(
        "one key, limit {RATE}/s burst {BURST}: every call is allowed; callers are tasks on a runtime of 2 workers"
    );
    println!("exact: {}", contestants.plan());
    println!("naive split: the keys {}", contestants.naive_keys());
    println!("{}\n", options.describe());

    // Until the end: servers that went away would give their clients work beside the sections that follow.
    let peers = (options.peers && options.wants("callers")).then(|| Peers::new(&runtime));
    if options.wants("callers") {
        callers::run(&options, &contestants, peers.as_ref());
    }
    if options.wants("idle") {
        idle::run(&options, &contestants);
    }
    if options.wants("offered") {
        offered::run(&options, &contestants);
    }
}
