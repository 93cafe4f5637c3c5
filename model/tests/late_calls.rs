//! The answer to a call is late: its client has heard of another plan or limit meanwhile, or the caller waits no more and what it was
//! granted comes back.

use Fault::{Cut, FailHome, FailShard, LateCall, WipeHome};
use shardlimit_model::model::{Broken, Fault, Setup, holds};

const LOWERED: &[&str] = &["token-bucket 3/3ms burst 3", "token-bucket 2/3ms burst 2"];
const RAISED: &[&str] = &["token-bucket 2/3ms burst 2", "token-bucket 4/3ms burst 4"];
const LATE: Setup = Setup {
    clients: 2,
    limits: &["token-bucket 3/3ms burst 3"],
    plans: &[&[1]],
    split: false,
    ticks: 1,
    install_within: 1,
    ahead: &[0, 0],
    faults: &[LateCall],
    most_faults: 1,
    strict: false,
    broken: None,
};

#[test]
fn a_key_is_split() {
    holds("a key is split, a late call", &LATE);
}

#[test]
fn shards_go() {
    holds("shards go, a late call", &Setup { plans: &[&[1], &[]], split: true, ticks: 0, ..LATE });
}

#[test]
fn a_limit_changes() {
    holds("lowered, a late call", &Setup { limits: LOWERED, split: true, ticks: 0, ..LATE });
    holds("raised, a late call", &Setup { limits: RAISED, split: true, ticks: 0, ..LATE });
}

/// A client that goes back to what it heard too late does no harm either: home compares what it is told to write.
#[test]
fn a_limit_changes_and_old_words_are_heeded() {
    let setup = Setup { limits: LOWERED, split: true, ticks: 0, broken: Some(Broken::HeedsOldWords), ..LATE };
    holds("lowered, old words", &setup);
    let setup = Setup { clients: 1, faults: &[LateCall, FailHome], most_faults: 2, ..setup };
    holds("lowered, old words, home forgets", &setup);
}

/// What one client hears is older than what the other has told home again.
#[test]
fn home_forgets() {
    let setup = Setup { faults: &[LateCall, FailHome], most_faults: 2, split: true, ticks: 0, ..LATE };
    holds("shards go, home forgets, late calls", &Setup { plans: &[&[1], &[]], ..setup });
}

#[test]
fn a_limit_changes_and_a_server_forgets() {
    for (name, limits) in [("lowered", LOWERED), ("raised", RAISED)] {
        for (what, faults) in [
            ("home forgets", &[LateCall, FailHome][..]),
            ("a shard forgets", &[LateCall, FailShard]),
            ("a shard out of reach", &[LateCall, Cut]),
        ] {
            let setup = Setup { clients: 1, limits, faults, most_faults: 2, ..LATE };
            holds(&format!("{name}, late calls, {what}"), &setup);
        }
    }
    let setup = Setup { clients: 1, limits: LOWERED, faults: &[LateCall, WipeHome], most_faults: 2, ..LATE };
    holds("lowered, late calls, home is wiped", &Setup { ticks: 0, ..setup });
}
