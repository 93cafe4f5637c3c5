//! Home's master dies twelve times, and each time its replica has not seen the last ledger: home comes back without the shares that it lent.
//!
//! In each round a client has the key split otherwise, or sets its limit, while nothing that the master writes reaches its replica. Then the
//! master is killed.
//! What the two had of home's ledger says which grants were lost; the records say how much was admitted above the formula.

mod round;

use std::thread::sleep;
use std::time::Duration;

use shardlimit::{Carry, Limit, NamedLimit};

use super::Verdict;
use super::scene::{Scene, exactly, settings};
use crate::Failure;
use crate::clock::{Nanos, SECOND, now, real_time};
use crate::fault::{Needs, Place, let_lag};
use crate::fleet::Fleet;
use crate::judge::Tally;
use crate::ledger::{Home, Ledger};
use crate::limiter::{KEY, Settings};
use crate::network;
use crate::options::Suite;
use round::Round;

pub(super) const NAME: &str = "failovers";
pub(super) const ABOUT: &str =
    "home's master is killed 12 times, and its replica lacks the last ledger: at most what is stated";

const LIMIT: &str = "token-bucket 9000/s burst 900";
const DEMAND: u64 = 18_000;
const PROCESSES: usize = 4;
/// Half of it, for limits that are set.
const LESS: &str = "token-bucket 4500/s burst 450";

/// What happens to home's ledger within the lag.
#[derive(Clone, Copy)]
enum Deed {
    /// The key has so many shards, and gets so many.
    Split(u16, u16),
    /// Another limit is set. It outranks definitions, so this comes last.
    Set(&'static str),
}

/// What is done, and whether calls are held up until the replica is master, and then come all at once: so home has the most to give out
/// before anybody has told it what it lent.
///
/// From two shards to six home keeps the least of what it had. A key with one shard has nothing to tell again, so its home comes to its
/// end before the replica is elected: then it is made again.
const ROUNDS: [(Deed, bool); 12] = [
    (Deed::Split(2, 3), false),
    (Deed::Split(2, 6), true),
    (Deed::Split(1, 3), false),
    (Deed::Split(2, 6), true),
    (Deed::Split(3, 2), false),
    (Deed::Split(2, 6), true),
    (Deed::Split(2, 3), true),
    (Deed::Split(1, 3), true),
    (Deed::Split(3, 2), true),
    (Deed::Split(2, 6), true),
    (Deed::Set(LESS), false),
    (Deed::Set(LIMIT), true),
];
/// At the least; it lasts until the new shares are in use.
const LAG: Duration = Duration::from_millis(300);
/// A client that began less than a second ago moves nothing that is split. Also what a round begins with: calls as usual.
const CALM: Duration = Duration::from_millis(1_500);
/// A call that was made has ended by then.
const ENDED: Duration = Duration::from_millis(100);
/// Clients have found the new master by then. Longer than three seconds after the last call they would ask home before they spend.
const HELD_UP: Duration = Duration::from_millis(200);
const PATIENCE: Nanos = 20 * SECOND;

pub(super) fn run(suite: &Suite) -> Result<Verdict, Failure> {
    let suite = Suite { replicas: 1, processes: PROCESSES, ..suite.clone() };
    let needs = Needs { replicas: true, ..Needs::only(Place::Network) };
    let mut scene = Scene::build(&suite, NAME, needs)?;
    let settings = Settings { revision: Some(1), ..settings(&suite, LIMIT, exactly(2))? };
    let mut fleet = scene.launch("all", &settings, PROCESSES, DEMAND)?;
    fleet.start()?;
    let home = Home::find(&scene.stage.cluster)?;
    let mut rounds = Vec::new();
    for (number, (deed, held_up)) in (1..).zip(ROUNDS) {
        let told =
            |shards, revision| Settings { shards: exactly(shards), revision: Some(revision), ..settings.clone() };
        let client = match deed {
            Deed::Split(from, to) => {
                let before = scene.client(&told(from, 2 * number))?;
                bring_about(&scene, &home, &before, Deed::Split(to, from))?;
                scene.client(&told(to, 2 * number + 1))?
            }
            Deed::Set(_) => scene.client(&settings)?,
        };
        rounds.push(fail_over(&mut scene, &home, &mut fleet, &client, (deed, held_up))?);
    }
    sleep(CALM);
    let end = real_time();
    let records = fleet.stop()?;

    let mut verdict = Verdict::default();
    verdict.calls(&Tally::of(&records), &scene.stage.cluster);
    let ends: Vec<u64> = rounds.iter().skip(1).map(|round| round.begin).chain([end]).collect();
    for (round, until) in rounds.iter().zip(ends) {
        round.judge(home.slot, &records, until, &mut verdict)?;
    }
    let lost: usize = rounds.iter().map(|round| round.lost().len()).sum();
    verdict.tell(format!("{lost} grants lost in {} failovers", rounds.len()));
    Ok(verdict)
}

/// Has it done, and waits until it is.
fn bring_about(scene: &Scene, home: &Home, client: &NamedLimit, deed: Deed) -> Result<Ledger, Failure> {
    let begin = now();
    loop {
        // If it can't be done now, it can be later.
        let is_it: Box<dyn Fn(&Ledger) -> bool> = match deed {
            Deed::Split(_, to) => {
                let _ = scene.wait_for(client.plan(KEY));
                Box::new(move |ledger| ledger.shards == to)
            }
            Deed::Set(limit) => {
                let limit: Limit = limit.parse()?;
                let _ = scene.wait_for(client.set_limit_of(KEY, limit, Carry::Keep));
                Box::new(move |ledger| ledger.limit == limit.to_string())
            }
        };
        let ledger = home.ledger(&scene.stage.cluster)?;
        if is_it(&ledger) && ledger.is_settled() {
            return Ok(ledger);
        }
        if now() > begin + PATIENCE {
            return Err(Failure::new(format!("the key does not get what it is to have: {ledger:?}")));
        }
        sleep(Duration::from_millis(20));
    }
}

/// Has the deed done within the lag, kills home's master, and waits until home is told again what it forgot.
fn fail_over(
    scene: &mut Scene,
    home: &Home,
    fleet: &mut Fleet,
    client: &NamedLimit,
    (deed, held_up): (Deed, bool),
) -> Result<Round, Failure> {
    let begin = real_time();
    // By a look at another key it has seen the cluster, and nothing has moved yet.
    scene.wait_for(client.limit_of("another"))?;
    sleep(CALM);
    let master = scene.stage.cluster.owner_of(home.slot)?;
    let replica = scene.stage.replica_of(master);
    let lag_begin = real_time();
    let_lag(&scene.stage, master, replica)?;
    let lagging = now();
    let last = bring_about(scene, home, client, deed)?;
    sleep(LAG.saturating_sub(Duration::from_nanos(now() - lagging)));
    if held_up {
        fleet.pause()?;
        // Nothing is on its way then: a call that fails would have its client try home before it sends others there.
        sleep(ENDED);
    }
    let stage = &mut scene.stage;
    stage.cluster.nodes[master].kill();
    let killed = real_time();
    let found = home.at(&stage.cluster.nodes[replica])?;
    let promoted = &stage.cluster.nodes[replica];
    wait_until("the replica is master", || promoted.is_master())?;
    let elected = real_time();
    let is_gone = home.at(promoted).is_err();
    if held_up {
        sleep(HELD_UP);
        fleet.go_on()?;
    }
    wait_until("home is told", || home.at(promoted).is_ok_and(|ledger| ledger.stamp > last.stamp))?;
    let told = real_time();
    wait_until("home is as it was", || home.at(promoted).is_ok_and(|ledger| last.is_like(&ledger)))?;
    let settled = real_time();
    stage.cluster.wait_until_sound()?;
    stage.network()?.heal(&network::server(replica))?;
    stage.cluster.nodes[master].restart()?;
    stage.cluster.wait_until_sound()?;
    stage.cluster.wait_until_replicas_are_in_step()?;
    let then = home.ledger(&stage.cluster)?;
    Ok(Round { begin, lag_begin, killed, elected, told, settled, held_up, is_gone, last, found, then })
}

/// Sees it within two milliseconds.
fn wait_until(what: &str, is_it: impl Fn() -> bool) -> Result<(), Failure> {
    let begin = now();
    while !is_it() {
        if now() > begin + PATIENCE {
            return Err(Failure::new(format!("waited for {} s until {what}", PATIENCE / SECOND)));
        }
        sleep(Duration::from_millis(1));
    }
    Ok(())
}
