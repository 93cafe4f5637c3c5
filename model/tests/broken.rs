//! Mistakes that the protocol exists to avoid: the model must find each of them.

use shardlimit_model::model::{Broken, Fault, Law, Setup, breaks, holds};

/// A request to install that comes twice fills a share again that was spent and wiped meanwhile.
#[test]
fn an_install_without_not_after() {
    let setup = Setup { clients: 1, faults: &[Fault::WipeShare, Fault::Repeat], most_faults: 2, ..Setup::default() };
    let broken = Some(Broken::InstallsLate);
    breaks("an install without not_after", Law::Permits, &Setup { broken, ..setup });
}

/// What is not there may have been spent.
#[test]
fn absent_counts_as_full() {
    let setup = Setup { faults: &[Fault::WipeShare], most_faults: 1, ..Setup::default() };
    let broken = Some(Broken::AbsentIsFull);
    breaks("absent counts as full", Law::Permits, &Setup { broken, ..setup });
}

/// Two clients close a share, and both bring it home.
#[test]
fn a_return_without_the_ledger_s_id() {
    let setup = Setup { plans: &[&[1], &[]], ticks: 0, ..Setup::default() };
    holds("a return with the ledger's id", &setup);
    let broken = Some(Broken::ReturnsUncompared);
    breaks("a return without the ledger's id", Law::Once, &Setup { broken, ..setup.clone() });
    breaks("a return without the ledger's id", Law::Permits, &Setup { broken, ..setup });
}

/// Whoever sees it in the ledger brings it home again.
#[test]
fn a_returned_share_stays_in_the_ledger() {
    let setup = Setup { plans: &[&[1], &[]], clients: 1, ticks: 0, ..Setup::default() };
    let broken = Some(Broken::KeepsReturned);
    breaks("a returned share stays in the ledger", Law::Once, &Setup { broken, ..setup.clone() });
    breaks("a returned share stays in the ledger", Law::Permits, &Setup { broken, ..setup });
}

const LOWERED: &[&str] = &["token-bucket 3/3ms burst 3", "token-bucket 2/3ms burst 2"];
const RAISED: &[&str] = &["token-bucket 2/3ms burst 2", "token-bucket 4/3ms burst 4"];

/// What is found while a limit changes, with one fault at the most.
fn breaks_a_change(name: &str, law: Law, limits: &'static [&'static str], faults: &'static [Fault], broken: Broken) {
    let setup = Setup { limits, faults, most_faults: 1, split: true, broken: Some(broken), ..Setup::default() };
    breaks(name, law, &Setup { ticks: u8::from(law == Law::Permits), ..setup });
}

/// The client that recalled it is gone, and whoever finishes what it began does not close it. The new limit is not split, so
/// nothing takes its place.
#[test]
fn a_change_that_another_finishes_without_closing_shares() {
    let limits = &["token-bucket 3/3ms burst 3", "token-bucket 1/3ms burst 1"];
    let name = "another limit before its shares are closed";
    breaks_a_change(name, Law::Rate, limits, &[Fault::Replace], Broken::TakesRecalledForClosed);
}

/// A share that was wiped may have spent all it had; one that its shard forgot was perhaps lent with nothing in it. Either counts
/// as full under the new limit.
#[test]
fn absent_counts_as_full_under_another_limit() {
    for limits in [LOWERED, RAISED] {
        for faults in [&[Fault::WipeShare], &[Fault::FailShard]] {
            breaks_a_change("absent counts as full", Law::Permits, limits, faults, Broken::AbsentIsFull);
        }
    }
}

/// More is lent then than the limit that home has come back with.
#[test]
fn a_home_that_forgot_a_raised_limit_is_told_of_its_shares_alone() {
    let name = "shares of a limit that home forgot";
    breaks_a_change(name, Law::Readable, RAISED, &[Fault::FailHome], Broken::AssertsOtherLimit);
}

/// Whoever has not heard of it goes on spending there, beside the whole new limit.
#[test]
fn a_share_out_of_reach_is_struck_off_for_another_limit() {
    let name = "out of reach is struck off";
    for law in [Law::Rate, Law::Permits] {
        for limits in [LOWERED, RAISED] {
            breaks_a_change(name, law, limits, &[Fault::Cut], Broken::DropsOutOfReach);
        }
    }
}

#[test]
fn home_has_a_raised_limit_before_shares_are_back() {
    breaks_a_change("raised before shares are back", Law::Rate, RAISED, &[], Broken::RaisesFirst);
}

#[test]
fn home_has_the_burst_of_the_limit_before() {
    breaks_a_change("the burst of the limit before", Law::Burst, LOWERED, &[Fault::Cut], Broken::KeepsBurst);
}

/// Its permits are another's by then.
#[test]
fn a_late_call_is_admitted_and_gives_back() {
    breaks_a_change("admitted and given back", Law::Permits, LOWERED, &[Fault::LateCall], Broken::AdmitsLate);
}
