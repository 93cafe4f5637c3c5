//! A client is killed at each step by which it moves shares or sets a limit: others finish what it began.
//!
//! All servers are behind proxies. The one before which the client runs its so-manyeth script kills it and passes the run on: so it dies
//! between any two steps, and in the middle of each.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use rustix::process::Pid;
use shardlimit::Limit;

use super::Verdict;
use super::scene::{Scene, above, exactly, settings};
use crate::Failure;
use crate::clock::{MILLI, Nanos, SECOND, now};
use crate::fault::{Needs, Place};
use crate::judge::{Tally, admissions};
use crate::ledger::{Home, Ledger};
use crate::limiter::Settings;
use crate::options::Suite;
use crate::proxy::Trap;

pub(super) const NAME: &str = "kill-steps";
pub(super) const ABOUT: &str =
    "kill -9 of a client at each step of a move: others finish it within 3 s, and no call fails";

const LIMITS: [&str; 2] = ["token-bucket 20000/s burst 2000", "token-bucket 16000/s burst 1600"];
const SHARDS: [u16; 2] = [3, 2];
/// Below both limits, so that whatever is missing is missed.
const DEMAND: u64 = 8_000;
const PROCESSES: usize = 2;
/// As promised.
const WITHIN: Nanos = 3 * SECOND;
/// How long a move may take that nobody disturbs.
const PATIENCE: Nanos = 20 * SECOND;
/// More steps than any move has.
const MOST: u64 = 100;
/// Between two kills.
const CALM: Duration = Duration::from_millis(300);

/// What a client is at when it is killed.
#[derive(Clone, Copy, Debug)]
enum Deed {
    /// The key gets another number of shards.
    Move,
    /// Another limit is set.
    Set,
}

/// What became of what killed clients had begun.
#[derive(Default)]
struct Finished {
    kills: u64,
    /// Those that left something half done, and how long it took others to finish it.
    left: Vec<Nanos>,
    /// Kills after which the key never came to rest.
    never: u64,
}

pub(super) fn run(suite: &Suite) -> Result<Verdict, Failure> {
    let scene = Scene::build(suite, NAME, Needs::only(Place::Proxied))?;
    let settings = Settings { revision: Some(1), ..settings(suite, LIMITS[0], exactly(SHARDS[0]))? };
    let mut fleet = scene.launch("all", &settings, PROCESSES, DEMAND)?;
    fleet.start()?;
    let home = Home::find(&scene.stage.cluster)?;
    sleep(CALM);
    let mut verdict = Verdict::default();
    let mut revision = 1;
    // Definitions are outranked by limits that were set, so moves come first.
    for (deed, words) in [(Deed::Move, "moves"), (Deed::Set, "limits set"), (Deed::Set, "limits set once more")] {
        let mut finished = Finished::default();
        for step in 1..MOST {
            revision += 1;
            let order = order(deed, &settings, revision, &home.ledger(&scene.stage.cluster)?)?;
            if !is_killed(&scene, &order, step)? {
                break;
            }
            finished.after_a_kill(&scene, &home)?;
            sleep(CALM);
        }
        finished.judge(words, &mut verdict);
    }

    let records = fleet.stop()?;
    let tally = Tally::of(&records);
    let admitted = admissions(records.iter().flat_map(|record| &record.calls));
    verdict.tell(format!("{} admitted of {} offered", admitted.len(), tally.calls));
    verdict.bound(above(&settings, admitted), 0.0);
    verdict.calls(&tally, &scene.stage.cluster);
    verdict.no_errors(&tally);
    Ok(verdict)
}

/// The arguments of a client that is to change what there is.
fn order(deed: Deed, settings: &Settings, revision: u64, ledger: &Ledger) -> Result<Vec<String>, Failure> {
    match deed {
        Deed::Move => {
            let shards = if ledger.shards == SHARDS[0] { SHARDS[1] } else { SHARDS[0] };
            let told = Settings { shards: exactly(shards), revision: Some(revision), ..settings.clone() };
            Ok(told.arguments())
        }
        Deed::Set => {
            let limits: [Limit; 2] = [LIMITS[0].parse()?, LIMITS[1].parse()?];
            let new = if ledger.limit == limits[0].to_string() { limits[1] } else { limits[0] };
            Ok([settings.arguments(), vec!["--set".into(), new.to_string()]].concat())
        }
    }
}

/// Whether it was killed at that step. If not, it has no so many.
fn is_killed(scene: &Scene, order: &[String], step: u64) -> Result<bool, Failure> {
    let (proxies, urls) = (&scene.stage.proxies, scene.stage.cluster.urls());
    let mut client = Client(
        Command::new(std::env::current_exe()?)
            .arg("move")
            .args(order)
            .args(urls)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?,
    );
    let process = Pid::from_raw(client.0.id() as i32).ok_or_else(|| Failure::new("a process without a number"))?;
    let trap = Arc::new(Trap::new(process, step));
    for proxy in proxies {
        proxy.set_trap(Some(&trap));
    }
    // The end of its input lets it begin.
    drop(client.0.stdin.take());
    let begin = now();
    let end = loop {
        if let Some(end) = client.0.try_wait()? {
            break end;
        }
        if now() > begin + PATIENCE {
            return Err(Failure::new("a client that was to move something hangs"));
        }
        sleep(Duration::from_millis(1));
    };
    for proxy in proxies {
        proxy.set_trap(None);
    }
    match (end.success(), trap.has_snapped()) {
        (false, false) => Err(Failure::new(format!("a client that was to move something ended with {end}"))),
        (success, _) => Ok(!success),
    }
}

/// It does not outlive the run.
struct Client(Child);

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Finished {
    fn after_a_kill(&mut self, scene: &Scene, home: &Home) -> Result<(), Failure> {
        self.kills += 1;
        let begin = now();
        let mut is_left = false;
        while !home.ledger(&scene.stage.cluster)?.is_settled() {
            is_left = true;
            if now() > begin + PATIENCE {
                self.never += 1;
                return Ok(());
            }
            sleep(Duration::from_millis(2));
        }
        if is_left {
            self.left.push(now() - begin);
        }
        Ok(())
    }

    fn judge(&self, words: &str, verdict: &mut Verdict) {
        let Self { kills, left, never } = self;
        let longest = left.iter().max().copied().unwrap_or_default();
        let shortest = left.iter().min().copied().unwrap_or_default();
        let (from, to, halves) = (shortest / MILLI, longest / MILLI, left.len());
        verdict.tell(format!("{words}: {kills} kills, {halves} left it half done, finished after {from} to {to} ms"));
        verdict.must(*never == 0, format!("{words}: {never} were never finished"));
        verdict.must(longest <= WITHIN, format!("{words}: finished after {to} ms"));
        verdict.must(halves > 0, format!("{words}: nothing was left half done, so nothing is shown"));
    }
}
