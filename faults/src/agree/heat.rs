//! A key that splits by itself while it is hot, and comes home afterwards.

use std::time::Duration;

use shardlimit::Shards;

use super::Verdict;
use super::scene::{Scene, above, settings};
use crate::Failure;
use crate::clock::{Nanos, SECOND, now, sleep_until};
use crate::fault::{Needs, Place};
use crate::judge::{Tally, admissions};
use crate::ledger::{Home, Ledger};
use crate::options::Suite;

pub(super) const NAME: &str = "heat";
pub(super) const ABOUT: &str =
    "200,000 calls a second by 10 processes: the key splits within 2 s, and comes home when it is quiet";

const LIMIT: &str = "token-bucket 150000/s burst 15000";
const DEMAND: u64 = 200_000;
const PROCESSES: usize = 10;
const LENGTH: Nanos = 8 * SECOND;
/// As promised.
const SPLIT_WITHIN: Nanos = 2 * SECOND;
/// A key that nobody calls does not move.
const QUIET: u64 = 20;
/// Longer than any client leaves a key split that it has brought home for the first time.
const PATIENCE: Nanos = 30 * SECOND;
/// So much of the demand is all of it: the rest is what a schedule of whole milliseconds leaves at its end.
const ALL: f64 = 0.99;

pub(super) fn run(suite: &Suite) -> Result<Verdict, Failure> {
    let scene = Scene::build(suite, NAME, Needs::only(Place::Loopback))?;
    let settings = settings(suite, LIMIT, Shards::Auto)?;
    let mut fleet = scene.launch("hot", &settings, PROCESSES, DEMAND)?;
    let mut quiet = scene.launch("quiet", &settings, 1, QUIET)?;
    let begin = now();
    fleet.start()?;
    let home = Home::find(&scene.stage.cluster)?;
    let split = wait_until(&scene, &home, begin + LENGTH, |ledger| !ledger.grants.is_empty() && !ledger.is_moving())?;
    sleep_until(begin + LENGTH);
    let offered_for = now() - begin;
    let mut records = fleet.stop()?;
    quiet.start()?;
    let fell_quiet = now();
    let back = wait_until(&scene, &home, fell_quiet + PATIENCE, |ledger| ledger.grants.is_empty())?;
    let calls: usize = records.iter().map(|record| record.calls.len()).sum();
    records.extend(quiet.stop()?);

    let mut verdict = Verdict::default();
    let offered = calls as f64 * SECOND as f64 / offered_for as f64;
    let less = if offered < DEMAND as f64 * ALL { ": this machine can't make all of it" } else { "" };
    verdict.tell(format!("{offered:.0} of {DEMAND} calls a second offered{less}"));
    let admitted = admissions(records.iter().flat_map(|record| &record.calls));
    verdict.tell(format!("{} admitted", admitted.len()));
    verdict.bound(above(&settings, admitted), 0.0);
    verdict.calls(&Tally::of(&records), &scene.stage.cluster);
    let after = |moment: Option<Nanos>, since: Nanos| {
        moment.map_or_else(|| "never".into(), |at| format!("after {:.1} s", (at - since) as f64 / SECOND as f64))
    };
    verdict.tell(format!("split {}; home again {} of quiet", after(split, begin), after(back, fell_quiet)));
    verdict.must(split.is_some_and(|at| at <= begin + SPLIT_WITHIN), "it was not split within 2 s");
    verdict.must(back.is_some(), "it did not come home");
    Ok(verdict)
}

/// When home's ledger was first seen like that.
fn wait_until(
    scene: &Scene,
    home: &Home,
    until: Nanos,
    is_it: impl Fn(&Ledger) -> bool,
) -> Result<Option<Nanos>, Failure> {
    while now() < until {
        if is_it(&home.ledger(&scene.stage.cluster)?) {
            return Ok(Some(now()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(None)
}
