//! Three masters become six and three again, by live migration of half of all slots, while four processes call.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Duration;

use super::Verdict;
use super::scene::{Scene, above, exactly, settings};
use crate::Failure;
use crate::clock::{MILLI, SECOND, now};
use crate::cluster::Cluster;
use crate::fault::{Needs, Place};
use crate::judge::{Tally, admissions};
use crate::ledger::Home;
use crate::options::Suite;
use crate::stage::MASTERS;

pub(super) const NAME: &str = "grow";
pub(super) const ABOUT: &str =
    "3 masters become 6 and 3 again under load: the limit holds, no caller notices, shards are on all";

const LIMIT: &str = "token-bucket 20000/s burst 2000";
const DEMAND: u64 = 40_000;
const PROCESSES: usize = 4;
/// As many as there are masters at the most.
const SHARDS: u16 = 6;
/// Before and after each change.
const CALM: Duration = Duration::from_secs(3);
/// How long shards may take to follow: a client that meets no slot that moved looks at the cluster every 30 s, and follows after a
/// quiet time of a second, one share after the other.
const FOLLOW: u64 = 45 * SECOND;

pub(super) fn run(suite: &Suite) -> Result<Verdict, Failure> {
    let mut scene = Scene::build(suite, NAME, Needs::only(Place::Loopback))?;
    let settings = settings(suite, LIMIT, exactly(SHARDS))?;
    let mut fleet = scene.launch("all", &settings, PROCESSES, DEMAND)?;
    fleet.start()?;
    let home = Home::find(&scene.stage.cluster)?;
    let mut verdict = Verdict::default();
    sleep(CALM);
    for _ in 0..MASTERS {
        scene.stage.add_master()?;
    }
    let cluster = &scene.stage.cluster;
    let begin = now();
    for master in 0..MASTERS {
        let slots = cluster.slots_of(master);
        cluster.migrate(slots.start.midpoint(slots.end)..slots.end, master, master + MASTERS)?;
    }
    cluster.wait_until_sound()?;
    verdict.tell(format!("half of all slots to three more masters in {:.1} s", seconds_since(begin)));
    follow(cluster, &home, &mut verdict)?;
    sleep(CALM);
    let begin = now();
    for master in 0..MASTERS {
        cluster.migrate(cluster.slots_of(master + MASTERS), master + MASTERS, master)?;
    }
    cluster.wait_until_sound()?;
    verdict.tell(format!("and back in {:.1} s", seconds_since(begin)));
    for _ in 0..MASTERS {
        scene.stage.cluster.remove_master()?;
    }
    follow(&scene.stage.cluster, &home, &mut verdict)?;
    sleep(CALM);

    let records = fleet.stop()?;
    let tally = Tally::of(&records);
    let admitted = admissions(records.iter().flat_map(|record| &record.calls));
    verdict.tell(format!("{} admitted", admitted.len()));
    verdict.bound(above(&settings, admitted), 0.0);
    verdict.calls(&tally, &scene.stage.cluster);
    verdict.no_errors(&tally);
    Ok(verdict)
}

/// Waits until every master has its part of the shards.
fn follow(cluster: &Cluster, home: &Home, verdict: &mut Verdict) -> Result<(), Failure> {
    let begin = now();
    loop {
        let ledger = home.ledger(cluster)?;
        let slots = ledger.grants.iter().map(|grant| grant.slot).chain([home.slot]);
        let mut shards = BTreeMap::<usize, usize>::new();
        for slot in slots {
            *shards.entry(cluster.owner_of(slot)?).or_default() += 1;
        }
        let each = usize::from(SHARDS) / cluster.masters;
        let is_there = shards.len() == cluster.masters && shards.values().all(|count| *count == each);
        if (is_there && ledger.is_settled()) || now() > begin + FOLLOW {
            let by_master: Vec<usize> = shards.into_values().collect();
            verdict.tell(format!("{by_master:?} shards by master {:.1} s later", seconds_since(begin)));
            verdict.must(is_there, format!("{by_master:?} shards by master, of {}", cluster.masters));
            return Ok(());
        }
        sleep(Duration::from_millis(20));
    }
}

fn seconds_since(begin: u64) -> f64 {
    ((now() - begin) / MILLI) as f64 / 1e3
}
