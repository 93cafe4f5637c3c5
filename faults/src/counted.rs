//! Whether a million adds of eight processes are a million, while masters are killed and come back, and connections are cut after
//! their requests were delivered.

use std::fmt;
use std::time::{Duration, Instant};

use redis::cmd;

use crate::Failure;
use crate::counting::{Counting, KEYS, Kind, Outcome, counters, limiter};
use crate::fault::{Needs, Place};
use crate::folder::Folder;
use crate::options::Suite;
use crate::proxy::{Cut, Proxy};
use crate::stage::{MASTERS, Stage};

pub(crate) const NAME: &str = "counted";
pub(crate) const ABOUT: &str =
    "8 processes add 1,000,000 while masters are killed and connections cut: the sum is right";

const PROCESSES: u64 = 8;
const ADDS: u64 = 1_000_000;
/// Between two kills of a master: one that comes back takes some seconds until the others believe it.
const KILLS: Duration = Duration::from_secs(4);
/// Looks between two cuts: connections have to come back in between, or nothing is ever counted.
const CUTS: usize = 20;
/// Every key of a server with its time to live, in one step.
const ENDS: &str =
    "local e = {} for _, k in ipairs(redis.call('KEYS', '*')) do e[#e + 1] = redis.call('PTTL', k) end return e";

/// What was counted, and what was done meanwhile.
#[derive(Debug)]
pub(crate) struct Counts {
    sum: i64,
    outcome: Outcome,
    cuts: u64,
    kills: u64,
    /// Times to live that were looked at, and keys that had none.
    looks: u64,
    endless: u64,
}

impl Counts {
    pub(crate) fn is_well(&self) -> bool {
        self.sum == ADDS as i64
            && self.outcome.refused + self.outcome.unknown + self.endless == 0
            && self.cuts.min(self.kills).min(self.looks) > 0
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sum, outcome: Outcome { queued, refused, unknown, .. }, cuts, kills, looks, endless } = self;
        let verdict = if self.is_well() { "ok" } else { "NOT OK" };
        write!(
            f,
            "{verdict:6} {sum} counted of {ADDS}, {queued} of them late, {refused} refused, {unknown} unknown; {kills} masters \
             killed, {cuts} cuts after delivery; {endless} of {looks} times to live missing"
        )
    }
}

pub(crate) fn run(suite: &Suite) -> Result<Counts, Failure> {
    let folder = Folder::temporary(NAME)?;
    let needs = Needs { durable: true, ..Needs::only(Place::Proxied) };
    let mut stage = Stage::build(suite, needs, &folder.path)?;
    let urls = stage.cluster.urls();
    let mut counting = Counting::launch(Kind::Adds, PROCESSES, ADDS, &urls)?;
    let (mut kills, mut looks, mut endless, mut killed) = (0, 0, 0, Instant::now());
    let mut rounds = 0;
    while counting.are_running() {
        if rounds % CUTS == 0 {
            stage.proxies[rounds / CUTS % MASTERS].cut_next(Cut::After);
        }
        rounds += 1;
        if killed.elapsed() >= KILLS {
            let node = &mut stage.cluster.nodes[kills as usize % MASTERS];
            node.kill();
            node.restart()?;
            (kills, killed) = (kills + 1, Instant::now());
        }
        for node in &stage.cluster.nodes {
            // One that is loading says so.
            let ends: Vec<i64> = node.ask(cmd("EVAL").arg(ENDS).arg(0)).unwrap_or_default();
            looks += ends.len() as u64;
            endless += ends.iter().filter(|ttl| **ttl < 0).count() as u64;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    stage.proxies.iter().for_each(Proxy::let_be);
    let cuts = stage.proxies.iter().map(Proxy::cuts).sum();
    let outcome = counting.outcome()?;
    stage.cluster.wait_until_sound()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let limiter = limiter(&urls)?;
    let totals = runtime.block_on(async {
        limiter.ready(Duration::from_secs(10)).await?;
        let patient = counters(&limiter)?.deadline(Duration::from_secs(10));
        Ok::<_, Failure>(patient.get_many((0..KEYS).map(|key| format!("key:{key}"))).await)
    })?;
    let sum = totals.into_iter().sum::<Result<i64, _>>()?;
    Ok(Counts { sum, outcome, cuts, kills, looks, endless })
}
