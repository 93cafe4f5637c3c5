//! What goes wrong, and what it may cost: nothing, where nothing else is said.

use Fault::{Crash, FailHome, FailShard, Late, Lose, Repeat, WipeHome, WipeNewShare, WipeShare};
use shardlimit_model::model::{Fault, Setup, holds};

const LOWERED: &[&str] = &["token-bucket 3/3ms burst 3", "token-bucket 2/3ms burst 2"];
const RAISED: &[&str] = &["token-bucket 2/3ms burst 2", "token-bucket 4/3ms burst 4"];

#[test]
fn a_request_is_lost_late_or_repeated_or_a_client_crashes() {
    let setup = Setup { faults: &[Lose, Late, Repeat, Crash], most_faults: 1, ..Setup::default() };
    holds("one fault of network or client", &setup);
}

#[test]
fn two_faults_of_network_and_clients() {
    let setup = Setup { faults: &[Lose, Late, Repeat, Crash], most_faults: 2, ticks: 1, ..Setup::default() };
    holds("two faults of network and clients", &setup);
}

/// A share that can't be reached stays lent, also where nothing else is to be lent to its slot.
#[test]
fn shards_go_while_requests_are_lost_and_late() {
    let setup = Setup { plans: &[&[1], &[]], faults: &[Lose, Late], most_faults: 1, ticks: 0, ..Setup::default() };
    holds("shards go while requests are lost and late", &setup);
}

#[test]
fn a_limit_changes_while_requests_are_lost_and_late() {
    for (name, limits) in [("a limit is lowered, network", LOWERED), ("a limit is raised, network", RAISED)] {
        holds(name, &Setup { limits, faults: &[Lose, Late], most_faults: 1, ticks: 0, ..Setup::default() });
    }
}

/// What is out of reach goes on at its old rate, and counts against the new limit.
#[test]
fn a_limit_changes_while_shares_are_out_of_reach_for_some_time() {
    for (name, limits) in [("a limit is lowered, in time", LOWERED), ("a limit is raised, in time", RAISED)] {
        let setup = Setup { clients: 1, limits, faults: &[Lose, Late], most_faults: 2, ..Setup::default() };
        holds(name, &setup);
    }
}

#[test]
fn a_share_is_wiped() {
    holds("a share is wiped", &Setup { faults: &[WipeShare], most_faults: 1, ticks: 1, ..Setup::default() });
}

#[test]
fn a_share_is_wiped_and_a_request_repeated() {
    let setup = Setup { clients: 1, faults: &[WipeShare, Repeat], most_faults: 2, ..Setup::default() };
    holds("a share is wiped and a request repeated", &setup);
}

/// It costs the burst of the share, and its rate until everybody has heard from home.
#[test]
fn a_shard_forgets_its_last_write() {
    let setup = Setup { faults: &[FailShard, WipeNewShare], most_faults: 1, ticks: 1, ..Setup::default() };
    holds("a shard forgets its last write", &setup);
}

#[test]
fn a_shard_forgets_its_last_write_while_shards_go() {
    let setup = Setup { faults: &[FailShard], most_faults: 1, plans: &[&[1], &[]], ticks: 0, ..Setup::default() };
    holds("a shard forgets its last write while shards go", &setup);
}

/// It costs the burst of the shares that the write lent, or the permits that it charged, and the rate of those shares until
/// home is told of them again.
#[test]
fn home_forgets_its_last_write() {
    holds("home forgets its last write", &Setup { faults: &[FailHome], most_faults: 1, ticks: 1, ..Setup::default() });
}

#[test]
fn home_forgets_its_last_write_and_clients_crash() {
    let setup = Setup { faults: &[FailHome, Crash], most_faults: 2, ticks: 0, ..Setup::default() };
    holds("home forgets its last write and clients crash", &setup);
}

/// A home that forgot that a share was in use must not take it for one that never was when it is gone: whoever used it tells.
#[test]
fn home_forgets_its_last_write_and_a_share_is_wiped() {
    let setup = Setup { clients: 1, faults: &[FailHome, WipeShare], most_faults: 2, ..Setup::default() };
    holds("home forgets its last write and a share is wiped", &setup);
}

#[test]
fn home_forgets_its_last_write_while_shards_go() {
    let setup = Setup { faults: &[FailHome], most_faults: 1, plans: &[&[1], &[]], ticks: 0, ..Setup::default() };
    holds("home forgets its last write while shards go", &setup);
}

#[test]
fn home_forgets_its_last_write_while_a_limit_is_lowered() {
    let setup = Setup { faults: &[FailHome], most_faults: 1, limits: LOWERED, ticks: 0, ..Setup::default() };
    holds("home forgets its last write while a limit is lowered", &setup);
}

/// It costs the burst of the limit, as for any key that is wiped, and the rate of what was lent until home is told of it.
#[test]
fn home_is_wiped() {
    holds("home is wiped", &Setup { faults: &[WipeHome], most_faults: 1, ticks: 1, ..Setup::default() });
}

#[test]
fn home_is_wiped_and_its_client_crashes() {
    let setup = Setup { clients: 1, faults: &[WipeHome, Crash], most_faults: 2, ticks: 1, ..Setup::default() };
    holds("home is wiped and its client crashes", &setup);
}
