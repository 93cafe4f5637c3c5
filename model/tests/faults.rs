//! What goes wrong, and what it may cost.

use shardlimit_model::model::{Fault, Setup, holds};

const NETWORK: &[Fault] = &[Fault::Lose, Fault::Late, Fault::Repeat, Fault::Crash];

#[test]
fn requests_are_lost_late_and_repeated_and_clients_crash() {
    holds(
        "two faults of network and clients",
        &Setup { faults: NETWORK, most_faults: 2, ticks: 1, ..Setup::default() },
    );
}
