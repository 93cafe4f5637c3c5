//! Another limit comes into force, and something goes wrong meanwhile. Two clients are explored without time, and from a key that is
//! split, so that there are not too many states; what time does to it, with one client.

use Fault::{Crash, Cut, FailHome, FailShard, Replace, WipeHome, WipeNewShare, WipeShare};
use shardlimit_model::model::{Fault, Setup, holds};

const LOWERED: &[&str] = &["token-bucket 3/3ms burst 3", "token-bucket 2/3ms burst 2"];
const RAISED: &[&str] = &["token-bucket 2/3ms burst 2", "token-bucket 4/3ms burst 4"];

/// Lowered and raised, by two clients: one of them is told, and either may be first at each step.
fn by_two_clients(name: &str, faults: &'static [Fault]) {
    for (what, limits) in [("lowered", LOWERED), ("raised", RAISED)] {
        let setup = Setup { limits, split: true, faults, most_faults: 1, ticks: 0, ..Setup::default() };
        holds(&format!("{what}, {name}"), &setup);
    }
}

/// Lowered and raised, by one client, while shares may be installed and after that.
fn in_time(name: &str, faults: &'static [Fault]) {
    for (what, limits) in [("lowered", LOWERED), ("raised", RAISED)] {
        for (within, ticks) in [(0, 1), (1, 2)] {
            let setup = Setup { clients: 1, limits, install_within: within, ticks, ..Setup::default() };
            holds(&format!("{what} in time, {name}, {within}"), &Setup { faults, most_faults: 1, ..setup });
        }
    }
}

/// Another takes over from whatever step, whether it was told of the new limit or finds it at home alone.
#[test]
fn a_client_ends() {
    by_two_clients("a client ends", &[Crash, Replace]);
    in_time("a client ends", &[Crash, Replace]);
}

#[test]
fn a_share_is_wiped() {
    by_two_clients("a share is wiped", &[WipeNewShare]);
    in_time("a share is wiped", &[WipeShare, WipeNewShare]);
}

/// It costs what shares that the write lent can hold, and what the limit before brings in more, if it was lowered.
#[test]
fn home_forgets_its_last_write() {
    by_two_clients("home forgets", &[FailHome]);
    in_time("home forgets", &[FailHome]);
}

#[test]
fn home_is_wiped() {
    in_time("home is wiped", &[WipeHome]);
}

#[test]
fn a_shard_forgets_its_last_write() {
    by_two_clients("a shard forgets", &[FailShard]);
    in_time("a shard forgets", &[FailShard]);
}

/// The new limit comes into force without its share, which counts against it for as long.
#[test]
fn a_shard_is_out_of_reach() {
    by_two_clients("a shard out of reach", &[Cut]);
    in_time("a shard out of reach", &[Cut]);
}

/// A share of the first limit may be out while the second one comes and goes.
#[test]
fn a_shard_is_out_of_reach_while_a_limit_is_lowered_and_raised_again() {
    let limits = &["token-bucket 4/3ms burst 4", "token-bucket 2/3ms burst 2", "token-bucket 4/3ms burst 4"];
    let setup = Setup { clients: 1, limits, faults: &[Cut], most_faults: 1, ticks: 1, ..Setup::default() };
    holds("there and back, a shard out of reach", &setup);
}

/// So many permits a period of the one are others of the other.
#[test]
fn a_shard_is_out_of_reach_while_a_limit_gets_another_period() {
    let limits = &["token-bucket 3/3ms burst 3", "token-bucket 2/2ms burst 2", "token-bucket 4/3ms burst 4"];
    let setup = Setup { clients: 1, limits, faults: &[Cut], most_faults: 1, ticks: 1, ..Setup::default() };
    holds("another period, a shard out of reach", &setup);
}

/// Home forgets that a share is still out, or that it has come back.
#[test]
fn a_shard_is_out_of_reach_and_home_forgets() {
    for (what, limits) in [("lowered", LOWERED), ("raised", RAISED)] {
        let setup = Setup { clients: 1, limits, faults: &[Cut, FailHome], most_faults: 2, ..Setup::default() };
        holds(&format!("{what}, a shard out of reach, home forgets"), &Setup { ticks: 1, ..setup });
    }
}

#[test]
fn three_shards() {
    for (name, faults) in [
        ("a client ends", &[Crash, Replace][..]),
        ("a share is wiped", &[WipeShare, WipeNewShare]),
        ("home forgets", &[FailHome]),
        ("a shard forgets", &[FailShard]),
        ("a shard out of reach", &[Cut]),
    ] {
        for (what, limits) in [("lowered", LOWERED), ("raised", RAISED)] {
            let setup = Setup { clients: 1, limits, plans: &[&[1, 2]], faults, most_faults: 1, ..Setup::default() };
            holds(&format!("{what}, three shards, {name}"), &Setup { ticks: 1, ..setup });
        }
    }
}

/// The one case with two clients and two shares: what is out of reach, and what is not, comes home at different times.
#[test]
fn one_of_three_shards_is_out_of_reach() {
    let setup = Setup { limits: LOWERED, split: true, faults: &[Cut], most_faults: 1, ticks: 0, ..Setup::default() };
    holds("one of three shards is out of reach", &Setup { plans: &[&[1, 2]], ..setup });
}

#[test]
fn three_clients() {
    let setup = Setup { clients: 3, limits: LOWERED, split: true, ticks: 0, ..Setup::default() };
    holds("lowered, three clients", &setup);
}
