//! x
use shardlimit_model::model::{Setup, explore, Fault};
fn run(name: &str, setup: &Setup) {
    let found = explore(setup);
    println!("{name}: {} {:?}", found.states, found.took);
    for (law, story) in &found.broken { println!("{law}\n{story}"); }
    assert!(found.broken.is_empty());
}
#[test]
fn two() { run("two", &Setup::default()); }
#[test]
fn three_shards() { run("three shards", &Setup { plans: &[&[1,2]], ticks: 1, ..Setup::default() }); }
#[test]
fn replans() { run("replans", &Setup { plans: &[&[1],&[2]], ticks: 1, ..Setup::default() }); }
#[test]
fn redefine() { run("redefine", &Setup { limits: &["token-bucket 3/3ms burst 3", "token-bucket 2/3ms burst 2"], ticks: 1, ..Setup::default() }); }
#[test]
fn raise() { run("raise", &Setup { limits: &["token-bucket 2/3ms burst 2", "token-bucket 4/3ms burst 4"], ticks: 1, ..Setup::default() }); }
#[test]
fn network() { run("network", &Setup { faults: &[Fault::Lose, Fault::Late, Fault::Repeat, Fault::Crash], most_faults: 1, ticks: 2, ..Setup::default() }); }
#[test]
fn wiped() { run("wiped", &Setup { faults: &[Fault::WipeShare], most_faults: 1, ticks: 2, ..Setup::default() }); }
#[test]
fn home_wiped() { run("home wiped", &Setup { faults: &[Fault::WipeHome], most_faults: 1, ticks: 2, ..Setup::default() }); }
#[test]
fn home_fails() { run("home fails", &Setup { faults: &[Fault::FailHome], most_faults: 1, ticks: 2, ..Setup::default() }); }
#[test]
fn shard_fails() { run("shard fails", &Setup { faults: &[Fault::FailShard, Fault::WipeNewShare], most_faults: 1, ticks: 2, ..Setup::default() }); }
