//! Two processes are told that the key has two shards, and two that it has six.

use std::collections::{BTreeMap, BTreeSet};
use std::thread::sleep;
use std::time::Duration;

use super::Verdict;
use super::scene::{Scene, above, exactly, settings};
use crate::Failure;
use crate::clock::{Nanos, SECOND, now};
use crate::fault::{Needs, Place};
use crate::judge::{Tally, admissions};
use crate::ledger::{Home, Ledger};
use crate::options::Suite;

pub(super) const NAME: &str = "disagree";
pub(super) const ABOUT: &str =
    "clients with 2 and with 6 shards on one key: the limit holds, each share moves once at most";

const LIMIT: &str = "token-bucket 10000/s burst 1000";
/// Three times the limit.
const DEMAND: u64 = 30_000;
const LENGTH: Nanos = 20 * SECOND;
/// Between two looks at who has what.
const LOOK: Nanos = 2 * SECOND;
/// How often it is seen whether anything moves.
const WATCH: Duration = Duration::from_millis(20);

pub(super) fn run(suite: &Suite) -> Result<Verdict, Failure> {
    let scene = Scene::build(suite, NAME, Needs::only(Place::Loopback))?;
    let (few, many) = (settings(suite, LIMIT, exactly(2))?, settings(suite, LIMIT, exactly(6))?);
    let mut fleets = [scene.launch("few", &few, 2, DEMAND / 2)?, scene.launch("many", &many, 2, DEMAND / 2)?];
    for fleet in &mut fleets {
        fleet.start()?;
    }
    let begin = now();
    let cluster = &scene.stage.cluster;
    let home = Home::find(cluster)?;
    let mut seen = Seen::default();
    while now() < begin + LENGTH {
        seen.see(&home.ledger(cluster)?, (now() - begin) / LOOK);
        sleep(WATCH);
    }
    let mut records = Vec::new();
    for fleet in fleets {
        records.extend(fleet.stop()?);
    }

    let mut verdict = Verdict::default();
    let tally = Tally::of(&records);
    let admitted = admissions(records.iter().flat_map(|record| &record.calls));
    verdict.tell(format!("{} admitted", admitted.len()));
    verdict.bound(above(&many, admitted), 0.0);
    verdict.calls(&tally, &scene.stage.cluster);
    seen.judge(&mut verdict);
    Ok(verdict)
}

/// Which grants there were.
#[derive(Default)]
struct Seen {
    /// Of each slot, all that it ever had.
    by_slot: BTreeMap<u16, BTreeSet<u128>>,
    /// At each look, the first one when the clients have been at it for a while.
    looks: Vec<BTreeSet<u128>>,
    settled: bool,
}

impl Seen {
    fn see(&mut self, ledger: &Ledger, looks: u64) {
        for grant in &ledger.grants {
            self.by_slot.entry(grant.slot).or_default().insert(grant.id);
        }
        if (self.looks.len() as u64) < looks {
            self.looks.push(ledger.ids());
        }
        self.settled = ledger.is_settled();
    }

    fn judge(&self, verdict: &mut Verdict) {
        let Self { by_slot, looks, settled } = self;
        let shards = looks.last().map_or(0, BTreeSet::len) + 1;
        let moves = by_slot.values().map(|ids| ids.len() - 1).max().unwrap_or_default();
        let is_same = looks.windows(2).all(|pair| pair[0] == pair[1]);
        let same = if is_same { "the same" } else { "other" };
        verdict.tell(format!("{shards} shards; {same} grants at {} looks; at most {moves} moves a share", looks.len()));
        verdict.must(looks.len() > 1 && is_same, "shares moved after the first look");
        verdict.must(moves <= 1, format!("a share moved {moves} times"));
        verdict.must(*settled && [2, 6].contains(&shards), format!("{shards} shards, which nobody asked for"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Grant;

    fn ledger(ids: &[u128]) -> Ledger {
        let grant = |(slot, id): (u16, &u128)| Grant { slot, id: *id, permits: 1, burst: 1, is_live: true };
        let grants: Vec<Grant> = (0..).zip(ids).map(grant).collect();
        let shards = grants.len() as u16 + 1;
        Ledger { stamp: 1, limit: "1/s".into(), shards, is_changing: false, grants }
    }

    fn is_well(ledgers: &[Ledger]) -> bool {
        let mut seen = Seen::default();
        for (look, ledger) in (0..).zip(ledgers) {
            seen.see(ledger, look);
        }
        let mut verdict = Verdict::default();
        seen.judge(&mut verdict);
        verdict.is_well()
    }

    #[test]
    fn shares_move_once_at_most() {
        let [first, second, third] = [ledger(&[1]), ledger(&[2]), ledger(&[3])];
        assert!(is_well(&[first.clone(), second.clone(), second.clone(), second.clone()]));
        assert!(!is_well(&[first.clone(), second.clone(), second.clone(), third.clone()]), "it moved later");
        assert!(!is_well(&[first, ledger(&[4]), third.clone(), third.clone(), third]), "it moved twice");
        assert!(!is_well(&[ledger(&[1, 2]), ledger(&[1, 2]), ledger(&[1, 2])]), "three shards");
    }
}
