//! Without faults: any order in which clients call, take steps and are heard.

use shardlimit_model::model::{Setup, holds};

#[test]
fn two_clients_split_a_key() {
    holds("two clients split a key", &Setup::default());
}

#[test]
fn three_clients_split_a_key() {
    holds("three clients split a key", &Setup { clients: 3, ticks: 1, ..Setup::default() });
}

#[test]
fn three_shards() {
    holds("three shards", &Setup { plans: &[&[1, 2]], ..Setup::default() });
}

/// A share must not gain by which server's clock it was granted, used and closed.
#[test]
fn servers_whose_clocks_differ() {
    let setup = Setup { plans: &[&[1, 2]], ahead: &[0, -2, 3], ..Setup::default() };
    holds("servers whose clocks differ", &setup);
}

#[test]
fn a_share_moves_to_another_slot() {
    holds("a share moves to another slot", &Setup { plans: &[&[1], &[2]], ticks: 1, ..Setup::default() });
}

#[test]
fn shards_come_and_go() {
    let setup = Setup { plans: &[&[], &[1], &[1, 2], &[]], ticks: 0, ..Setup::default() };
    holds("shards come and go", &setup);
}

#[test]
fn a_limit_is_lowered() {
    let limits = &["token-bucket 3/3ms burst 3", "token-bucket 2/3ms burst 2"];
    holds("a limit is lowered", &Setup { limits, ticks: 1, ..Setup::default() });
}

#[test]
fn a_limit_is_raised() {
    let limits = &["token-bucket 2/3ms burst 2", "token-bucket 4/3ms burst 4"];
    holds("a limit is raised", &Setup { limits, ticks: 1, ..Setup::default() });
}
