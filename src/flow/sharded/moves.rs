//! Takes the steps by which shares move, one after the other, until the key is as it should be. What comes next is said by
//! [`next_step`]; here it is sent.

use std::collections::HashMap;

use futures_util::future::join_all;

use tracing::Instrument;

use super::SharedLimit;
use super::entry::{Entry, Word};
use super::view::View;
use crate::clock::Micros;
use crate::escrow::{self, Report, Step, Target, Wish, Write, next_step};
use crate::key::{Slot, plan_seed, sub_key};
use crate::observe;
use crate::plan::{Definition, SET_KEY, Shards, plan, shards_for};
use crate::store::cluster::{Fault, Request};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::topology::Topology;
use crate::wire::{
    CloseReply, CloseRun, Grant, GrantId, HomeReply, HomeRun, InstallReply, InstallRun, Ledger, Script, Status,
};

/// Steps of one attempt: some for each share that moves, and then some for what others do meanwhile.
const STEPS: usize = 16;
const STEPS_A_SHARE: usize = 6;

/// Takes the steps that are left. `lost`: a share that was not there when it was asked. `wish`: a definition that is to be put
/// into force, instead of the one that this process was told.
pub(super) async fn settle(
    limit: &Arc<SharedLimit>,
    entry: &Arc<Entry>,
    lost: Option<GrantId>,
    wish: Option<Definition>,
) -> Result<(), Fault> {
    take_steps(limit, entry, lost, wish).instrument(observe::settle(&limit.name, &entry.key)).await
}

async fn take_steps(
    limit: &Arc<SharedLimit>,
    entry: &Arc<Entry>,
    lost: Option<GrantId>,
    wish: Option<Definition>,
) -> Result<(), Fault> {
    let _one = entry.escrow.lock().await;
    let transport = &limit.engine.transport;
    let mut cluster = (transport.first_topology(limit.timeout).await, transport.settled());
    let mut is_fresh = false;
    let before: Vec<Slot> = entry.load().ledger.grants.iter().map(|grant| grant.slot).collect();
    let definition = wish.unwrap_or_else(|| limit.defined().definition);
    let mut heard = Heard { reports: lost.map(|id| (id, Report::Lost)).into_iter().collect(), fault: None };
    for _ in 0..STEPS + STEPS_A_SHARE * (before.len() + cluster.0.masters().len()) {
        let view = entry.view();
        let slots = |ledger: &Ledger| match cluster {
            // A share that was lost is lent again at once, to where it was.
            (_, None) if lost.is_some() => {
                Some(exact(ledger, [entry.home].into_iter().chain(before.iter().copied()).collect()))
            }
            // What is split follows the cluster only when that has come to rest.
            (_, None) if !ledger.grants.is_empty() => None,
            (ref topology, _) => Some(planned(limit, entry, ledger, topology)),
        };
        let wish = Wish { definition, slots: &slots };
        let reports: Vec<_> = view.ledger.grants.iter().map(|grant| heard.reports.get(&grant.id).cloned()).collect();
        let step = next_step(&view.ledger, &reports, &wish);
        match step {
            Step::Done => {
                if let (Some(settled), None) = (cluster.1, &heard.fault) {
                    entry.planned_for.store(settled, Ordering::Relaxed);
                }
                return heard.fault.map_or(Ok(()), Err);
            }
            Step::Ask(grants) => ask(limit, entry, &view, &grants, &mut heard).await,
            // Two clients with different views of the cluster must not move a key to and fro: nobody follows an old one.
            Step::Write(_) if !is_fresh && view.is_split() && cluster.1.is_some() => {
                is_fresh = true;
                if next_step(&view.ledger, &reports, &Wish { definition, slots: &|_| None }) != step {
                    transport.look_again(limit.timeout).await;
                    cluster = (transport.topology(), transport.settled());
                }
            }
            Step::Write(write) => {
                let fresh = fresh(limit, entry, &view, &write, &mut heard).await;
                let same = Ledger { cost: view.ledger.cost, ..write.ledger.clone() } == view.ledger;
                // All that is left to do is to lend to shards that can't be reached.
                if fresh.is_empty() && same && write.back.is_empty() {
                    break;
                }
                if !send(limit, entry, &view, Some(view.id), *write, fresh).await? {
                    break;
                }
                heard.reports.retain(|_, report| *report == Report::Unreachable);
            }
        }
    }
    heard.fault.map_or(Ok(()), Err)
}

/// On which slots the shards of a key should lie.
fn planned(limit: &SharedLimit, entry: &Entry, ledger: &Ledger, topology: &Topology) -> Vec<Slot> {
    let present: Vec<Slot> = ledger.grants.iter().map(|grant| grant.slot).collect();
    let wanted = entry.shards_wanted(ledger, topology.masters().len());
    // Fewer where slots are uncovered.
    exact(ledger, plan(entry.home, plan_seed(&limit.name, &entry.key), topology, wanted, &present))
}

/// Not every limit can be split into so many shares; and not every number of them can be computed exactly.
fn exact(ledger: &Ledger, mut slots: Vec<Slot>) -> Vec<Slot> {
    let count = u16::try_from(slots.len()).ok().and_then(std::num::NonZeroU16::new);
    slots.truncate(count.map_or(1, |count| shards_for(ledger.limit(), Shards::Exactly(count), slots.len())));
    slots
}

/// Home has forgotten what this client knows: it is told again, before anything else is spent.
pub(super) async fn assert_again(
    limit: &Arc<SharedLimit>,
    entry: &Arc<Entry>,
    found: Option<(GrantId, Ledger)>,
) -> Result<(), Fault> {
    let _one = entry.escrow.lock().await;
    let view = entry.view();
    let (expected, ledger) = found.unzip();
    if expected.is_some_and(|found| found.stamp >= view.id.stamp) {
        return Ok(());
    }
    // A key without a plan, and without a limit of its own, is as new when its home has come to its end.
    let is_own = entry.is_record() || view.ledger.wanted().revision >= SET_KEY;
    let matters = expected.is_some() || view.is_split() || is_own;
    if let Some(write) = escrow::assert_again(&view.ledger, ledger.as_ref()).filter(|_| matters) {
        observe::home_lost(&limit.name, &entry.key, view.id);
        return send(limit, entry, &view, expected, write, Vec::new()).await.map(|_| ());
    }
    match (expected, ledger) {
        (Some(id), Some(ledger)) => entry.adopt(limit, id, ledger, Word::InsteadOf(view.id)),
        _ => entry.forget(limit, view.id),
    }
    Ok(())
}

/// What shards said in this attempt.
struct Heard {
    reports: HashMap<GrantId, Report>,
    /// The last one of those that could not be reached.
    fault: Option<Fault>,
}

/// Installs what is pending and closes what is recalled, all at once.
async fn ask(limit: &Arc<SharedLimit>, entry: &Arc<Entry>, view: &View, grants: &[usize], heard: &mut Heard) {
    let ttl = entry.lives(&view.ledger, limit.timeout).1;
    let asked = grants
        .iter()
        .map(|index| &view.ledger.grants[*index])
        .map(|grant| async move { (grant.id, ask_one(limit, entry, grant, ttl).await) });
    for (id, report) in join_all(asked).await {
        let report = report.unwrap_or_else(|fault| {
            heard.fault = Some(fault);
            Report::Unreachable
        });
        heard.reports.insert(id, report);
    }
}

async fn ask_one(limit: &SharedLimit, entry: &Entry, grant: &Grant, ttl: u64) -> Result<Report, Fault> {
    let key = sub_key(&limit.prefix, grant.slot, &limit.name, &entry.key);
    let wrong = |bad: &dyn std::fmt::Display| Fault::Unknown(bad.to_string());
    if let Status::Pending { not_after, state } = &grant.status {
        let run = InstallRun { state, not_after: *not_after, ttl };
        let arguments = |command: &mut redis::Cmd| run.write(command);
        let request = Request {
            slot: grant.slot,
            script: Script::Install,
            key: &key,
            arguments: &arguments,
            sent: &AtomicBool::new(false),
        };
        let reply = limit.engine.transport.run(&request).await?;
        return Ok(match InstallReply::parse(reply).map_err(|bad| wrong(&bad))? {
            InstallReply::Installed { .. } => Report::Installed,
            InstallReply::Newer { .. } | InstallReply::Late { .. } => Report::NotInstalled,
        });
    }
    let run = CloseRun { id: grant.id, ttl };
    let arguments = |command: &mut redis::Cmd| run.write(command);
    let request = Request {
        slot: grant.slot,
        script: Script::Close,
        key: &key,
        arguments: &arguments,
        sent: &AtomicBool::new(false),
    };
    let reply = limit.engine.transport.run(&request).await?;
    Ok(match CloseReply::parse(reply).map_err(|bad| wrong(&bad))? {
        CloseReply::Closed { tombstone, .. } => Report::Closed(tombstone.unwrap_or_default()),
        // Nobody knows what was left.
        CloseReply::Newer { .. } => Report::Closed(Vec::new()),
    })
}

/// The new grants of a ledger, with the time until which they may be installed. A shard whose clock can't be asked gets none.
async fn fresh(limit: &SharedLimit, entry: &Entry, view: &View, write: &Write, heard: &mut Heard) -> Vec<Grant> {
    let slots: Vec<Slot> = write.fresh.iter().map(|target| target.slot).collect();
    let mut grants = Vec::with_capacity(slots.len());
    for (Target { slot, permits, burst }, time) in write.fresh.iter().zip(clocks(limit, &slots).await) {
        match time {
            Ok(time) => {
                let status = Status::Pending { not_after: time + limit.install_within(), state: Vec::new() };
                let (slot, permits, burst, cost) = (*slot, *permits, *burst, write.ledger.cost);
                grants.push(Grant { slot, id: entry.next_id(view), permits, burst, cost, status });
            }
            Err(fault) => heard.fault = Some(fault),
        }
    }
    grants
}

async fn clocks(limit: &SharedLimit, slots: &[Slot]) -> Vec<Result<Micros, Fault>> {
    join_all(slots.iter().map(|slot| limit.engine.transport.time_at(*slot))).await
}

/// Replaces home's ledger if it is still the expected one, or makes home if there is none and none is expected. Whatever is
/// in force afterwards is known then. `false`: home is not there.
async fn send(
    limit: &SharedLimit,
    entry: &Entry,
    known: &View,
    expected: Option<GrantId>,
    write: Write,
    fresh: Vec<Grant>,
) -> Result<bool, Fault> {
    let Write { mut ledger, carry, deduct, back, .. } = write;
    let new = fresh.len();
    ledger.grants.extend(fresh);
    // One that nobody could read would stay for ever.
    ledger.check().map_err(|bad| Fault::Refused(bad.to_string()))?;
    let run = HomeRun {
        expected,
        id: entry.next_id(known),
        least_ttl: entry.lives(&ledger, limit.timeout).0,
        ledger: &ledger,
        new,
        carry,
        deduct,
        back: &back,
    };
    let arguments = |command: &mut redis::Cmd| run.write(command);
    let script = Script::home(&ledger.home_share());
    let request = Request {
        slot: entry.home,
        script,
        key: &known.home().sub_key,
        arguments: &arguments,
        sent: &AtomicBool::new(false),
    };
    let sent = limit.clock.now();
    let reply = limit.engine.transport.run(&request).await?;
    let wrong = |bad: &dyn std::fmt::Display| Fault::Unknown(bad.to_string());
    match HomeReply::parse(reply).map_err(|bad| wrong(&bad))? {
        HomeReply::Written { id, ledger } => {
            let ledger = Ledger::decode(&ledger).map_err(|bad| wrong(&bad))?;
            observe::moved(&limit.name, &entry.key, &known.ledger, &ledger);
            entry.adopt(limit, id, ledger, Word::InsteadOf(known.id));
        }
        HomeReply::Refused { id: Some(id), ledger: Some(ledger) } => {
            let ledger = Ledger::decode(&ledger).map_err(|bad| wrong(&bad))?;
            if entry.is_later(id, sent, limit.clock.now()) {
                return Err(Fault::NotSent("home has forgotten its last ledger".into()));
            }
            entry.adopt(limit, id, ledger, Word::Sent(sent));
        }
        // Home has come to its end, or was wiped: the next call makes a new one, or that one again if anything was lent.
        HomeReply::Refused { .. } => {
            if !known.is_split() {
                entry.forget(limit, known.id);
            }
            return Ok(false);
        }
    }
    Ok(true)
}
