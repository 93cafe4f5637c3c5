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
