//! A limit is set to another and back while four processes call.

use std::thread::sleep;
use std::time::Duration;

use shardlimit::{Carry, Limit};
use shardlimit_check::{Change, History, reached};

use super::Verdict;
use super::scene::{Scene, settings};
use crate::Failure;
use crate::clock::real_time;
use crate::fault::{Needs, Place};
use crate::judge::{Tally, admissions};
use crate::limiter::KEY;
use crate::options::Suite;

pub(super) const NAME: &str = "change";
pub(super) const ABOUT: &str =
    "a limit is set to a quarter and back under load: both hold, each is reached within 200 ms";

const HIGH: &str = "token-bucket 20000/s burst 2000";
const LOW: &str = "token-bucket 5000/s burst 500";
const DEMAND: u64 = 40_000;
const PROCESSES: usize = 4;
/// There and back.
const TIMES: usize = 5;
/// Between two changes.
const CALM: Duration = Duration::from_secs(2);
/// As promised, in microseconds.
const WITHIN: u64 = 200_000;

pub(super) fn run(suite: &Suite) -> Result<Verdict, Failure> {
    let scene = Scene::build(suite, NAME, Needs::only(Place::Loopback))?;
    let settings = settings(suite, HIGH, suite.settings.shards)?;
    let mut fleet = scene.launch("all", &settings, PROCESSES, DEMAND)?;
    fleet.start()?;
    sleep(CALM);
    let client = scene.client(&settings)?;
    let limits: [Limit; 2] = [LOW.parse()?, HIGH.parse()?];
    let mut changes = Vec::new();
    for limit in limits.into_iter().cycle().take(2 * TIMES) {
        let begin = real_time();
        let in_force = scene.wait_for(client.set_limit_of(KEY, limit, Carry::Keep))?;
        if in_force != limit {
            return Err(Failure::new(format!("{in_force} is in force, and {limit} was set")));
        }
        changes.push(Change { begin, end: real_time(), limit });
        sleep(CALM);
    }
    let end = real_time();
    let records = fleet.stop()?;

    let mut verdict = Verdict::default();
    let tally = Tally::of(&records);
    let mut admitted = admissions(records.iter().flat_map(|record| &record.calls));
    admitted.sort_unstable();
    verdict.tell(format!("{} admitted", admitted.len()));
    let history = History::new(&settings.limit, &changes).map_err(Failure::new)?;
    verdict.bound(history.worst(&admitted).map_or(f64::NAN, |worst| worst.permits), 0.0);
    verdict.calls(&tally, &scene.stage.cluster);
    let took: Vec<u64> = changes.iter().map(|change| (change.end - change.begin) / 1_000).collect();
    verdict.tell(format!("to set it took {took:?} ms"));
    let ends = changes.iter().skip(1).map(|change| change.begin).chain([end]);
    let reached: Vec<Option<u64>> =
        changes.iter().zip(ends).map(|(change, until)| reached(&admitted, change, until)).collect();
    let millis: Vec<String> = reached
        .iter()
        .map(|reached| reached.map_or_else(|| "never".into(), |micros| (micros / 1_000).to_string()))
        .collect();
    verdict.tell(format!("the new rate is reached after [{}] ms", millis.join(", ")));
    let late = reached.iter().filter(|reached| reached.is_none_or(|micros| micros > WITHIN)).count();
    verdict.must(late == 0, format!("{late} of {} changes took more than {} ms", changes.len(), WITHIN / 1_000));
    Ok(verdict)
}
