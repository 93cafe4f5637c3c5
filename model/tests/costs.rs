//! Faults that do cost something: where a bound is not 0, it can't be.

use shardlimit_model::model::{Fault, Law, Setup, breaks};

fn costs(name: &str, fault: &'static [Fault]) {
    let setup = Setup { faults: fault, most_faults: 1, strict: true, ..Setup::default() };
    breaks(name, Law::Permits, &setup);
}

/// It was installed, used and wiped, all before its `not_after`; somebody who has not heard of that installs it again. Absent
/// and not yet installed look the same.
#[test]
fn a_share_that_is_wiped_while_it_may_be_installed() {
    costs("a share that is wiped while it may be installed", &[Fault::WipeNewShare]);
}

#[test]
fn a_shard_that_forgets() {
    costs("a shard that forgets", &[Fault::FailShard]);
}

#[test]
fn a_home_that_forgets() {
    costs("a home that forgets", &[Fault::FailHome]);
}

#[test]
fn a_home_that_is_wiped() {
    costs("a home that is wiped", &[Fault::WipeHome]);
}
