//! How shares leave home: grant, install, confirm. Each step is one script on one key; any client may take the next
//! one, also after another client, and taking it twice changes nothing.
//!
//! 1. **Grant**, at home: rate, burst and permits are deducted and logged under new ids, if the ledger is still the one
//!    that this client knows. Otherwise somebody was faster, and his plan is taken.
//! 2. **Install**, at each shard: only while its own clock is before the grant's `not_after`, and nothing newer is there.
//! 3. **Confirm**, at home: what was installed is marked live. What came too late is granted again with nothing in it.

use std::time::Duration;

use tokio::task::JoinSet;
use tracing::Instrument;

use super::SharedLimit;
use super::entry::{Entry, View, Word, lives};
use super::job::{Miss, Work};
use super::lane::{Lane, is_due};
use crate::clock::Micros;
use crate::key::{Slot, plan_seed, sub_key};
use crate::observe;
use crate::plan::{Shards, common_cost, plan, shards_for, split};
use crate::store::cluster::{Fault, Request};
use crate::sync::Arc;
use crate::sync::atomic::Ordering;
use crate::wire::{Grant, GrantId, GrantReply, GrantRun, InstallReply, InstallRun, Ledger, Script, Status};

/// Time between two attempts to bring a plan to its end: an attempt of another client gets this long first.
const PAUSE: Micros = 200_000;
/// After an attempt that failed the next one waits for longer: the key works without it.
const AFTER_FAULT: Micros = 2_000_000;
/// A share can come too late once or twice; more often something is wrong, and the next attempt will see.
const ROUNDS: usize = 4;

/// Whether there is something to do for the key's plan; if so, a task does it. No call waits for it.
pub(super) fn look_after(limit: &Arc<SharedLimit>, entry: &Arc<Entry>) {
    let view = entry.view();
    let to_do = if view.is_split() { view.is_pending() } else { limit.may_split(&view.ledger) };
    if !to_do || !is_due(&entry.next_step, limit.clock.now(), PAUSE) {
        return;
    }
    // Somebody else's shares on their way: he is given time to finish.
    let patience =
        if view.is_split() { Duration::from_micros(rand::random_range(PAUSE / 8..PAUSE / 2)) } else { Duration::ZERO };
    let (of, key) = (Arc::clone(limit), Arc::clone(entry));
    let task = async move {
        tokio::time::sleep(patience).await;
        // One at a time; whoever is at it will finish it.
        if key.escrow.try_lock().is_err() {
            return;
        }
        if let Err(fault) = settle(&of, &key, None).await {
            observe::fault(&of.name, &key.key, &fault);
            key.next_step.fetch_max(of.clock.now() + AFTER_FAULT, Ordering::Relaxed);
        }
    };
    // Without a runtime no call could have come this far.
    let _ = limit.engine.spawn(task);
}

/// A shard did not know the grant that it was asked under. Home is asked what the plan is now; if it says the same as
/// before, the share is lost and is granted again with nothing in it.
pub(super) async fn gone_stale(limit: &Arc<SharedLimit>, entry: &Arc<Entry>, lane: &Arc<Lane>) {
    let before = entry.view();
    // The lane of a plan that was replaced meanwhile: nothing is wrong.
    let in_force = |view: &View| view.ledger.grants.iter().any(|grant| grant.id == lane.id && grant.slot == lane.slot);
    if lane.is_home || !in_force(&before) {
        return;
    }
    if !ask_home(limit, entry).await {
        return lane.failed(limit.clock.now());
    }
    if !in_force(&entry.view()) {
        return;
    }
    observe::share_lost(&limit.name, &entry.key, lane.id);
    // Its callers wait for this, so it may not take longer than a request.
    match tokio::time::timeout(limit.timeout, settle(limit, entry, Some(lane.id))).await {
        Ok(Ok(())) => {}
        Ok(Err(fault)) => {
            observe::fault(&limit.name, &entry.key, &fault);
            lane.failed(limit.clock.now());
        }
        Err(_) => lane.failed(limit.clock.now()),
    }
}

/// Has home say what its plan is. `false`: it could not be asked.
pub(super) async fn ask_home(limit: &Arc<SharedLimit>, entry: &Arc<Entry>) -> bool {
    let view = entry.view();
    let answer = limit.put(entry, view.home(), Work::Look);
    !matches!(answer.await, Err(Miss::Failed(_)))
}

/// Takes the steps that are left, until every share of the plan is live.
pub(super) async fn settle(limit: &Arc<SharedLimit>, entry: &Arc<Entry>, lost: Option<GrantId>) -> Result<(), Fault> {
    take_steps(limit, entry, lost).instrument(observe::settle(&limit.name, &entry.key)).await
}

async fn take_steps(limit: &Arc<SharedLimit>, entry: &Arc<Entry>, lost: Option<GrantId>) -> Result<(), Fault> {
    let _one = entry.escrow.lock().await;
    let mut lost = lost;
    for _ in 0..ROUNDS {
        let view = entry.view();
        if !view.is_split() {
            let Some(ledger) = propose(limit, entry, &view).await? else { return Ok(()) };
            let new = ledger.grants.len();
            grant(limit, entry, &view, &ledger, &vec![false; new]).await?;
            continue;
        }
        if !view.is_pending() && !view.ledger.grants.iter().any(|grant| Some(grant.id) == lost) {
            return Ok(());
        }
        let (ledger, empty) = install(limit, entry, &view, lost.take()).await?;
        grant(limit, entry, &view, &ledger, &empty).await?;
    }
    Ok(())
}

/// The ledger with shares for every shard, all of them still to be handed out; none if the key is not to be split.
async fn propose(limit: &SharedLimit, entry: &Entry, view: &View) -> Result<Option<Ledger>, Fault> {
    let topology = limit.engine.transport.first_topology(limit.timeout).await;
    let whole = view.ledger.limit;
    let wanted = shards_for(&whole, limit.shards, topology.masters().len());
    let mut slots = plan(entry.home, plan_seed(&limit.name, &entry.key), &topology, wanted, &[]);
    // Fewer where slots are uncovered; and not every number can be computed exactly.
    let count = u16::try_from(slots.len()).ok().and_then(std::num::NonZeroU16::new);
    slots.truncate(count.map_or(1, |count| shards_for(&whole, Shards::Exactly(count), slots.len())));
    if slots.len() < 2 {
        return Ok(None);
    }
    let times = clocks(limit, &slots[1..]).await?;
    let shares = split(&whole, slots.len());
    let new = |((slot, time), (permits, burst)): ((&Slot, Micros), &(u64, u64))| {
        let status = Status::Pending { not_after: time + limit.install_within(), state: Vec::new() };
        Grant { slot: *slot, id: entry.next_id(view), permits: *permits, burst: *burst, status }
    };
    let grants = slots[1..].iter().zip(times).zip(&shares[1..]).map(new).collect();
    let cost = common_cost(&whole, slots.len());
    Ok(Some(Ledger { shards: wanted as u16, cost, grants, ..view.ledger.clone() }))
}

/// Installs what is pending, and says what the ledger is after that: what was installed is live, what came too late or
/// was `lost` is to be granted again, empty. The flags are for the new grants, which are the last ones.
async fn install(
    limit: &Arc<SharedLimit>,
    entry: &Arc<Entry>,
    view: &View,
    lost: Option<GrantId>,
) -> Result<(Ledger, Vec<bool>), Fault> {
    let mut tasks = JoinSet::new();
    let ttl = lives(&view.ledger, limit.timeout).1;
    for (index, grant) in view.ledger.grants.iter().enumerate() {
        if let Status::Pending { not_after, state } = &grant.status {
            let (limit, entry) = (Arc::clone(limit), Arc::clone(entry));
            let (slot, not_after, state) = (grant.slot, *not_after, state.clone());
            tasks.spawn(async move { (index, install_one(&limit, &entry, slot, (not_after, ttl), &state).await) });
        }
    }
    let mut ledger = Ledger { grants: Vec::new(), ..view.ledger.clone() };
    let mut again = Vec::new();
    let mut replies: Vec<Option<Result<InstallReply, Fault>>> = vec![None; view.ledger.grants.len()];
    for (index, reply) in tasks.join_all().await {
        replies[index] = Some(reply);
    }
    let mut fault = None;
    for (grant, reply) in view.ledger.grants.iter().zip(replies) {
        match reply {
            None if Some(grant.id) == lost => again.push(grant.clone()),
            None => ledger.grants.push(grant.clone()),
            Some(Ok(InstallReply::Installed { .. })) => {
                ledger.grants.push(Grant { status: Status::Live, ..grant.clone() });
            }
            Some(Ok(InstallReply::Newer { .. } | InstallReply::Late { .. })) => again.push(grant.clone()),
            // Out of reach: it stays lent.
            Some(Err(missed)) => {
                fault = Some(missed);
                ledger.grants.push(grant.clone());
            }
        }
    }
    if let Some(fault) = fault
        && ledger.grants == view.ledger.grants
    {
        return Err(fault);
    }
    let slots: Vec<Slot> = again.iter().map(|grant| grant.slot).collect();
    for (grant, time) in again.into_iter().zip(clocks(limit, &slots).await?) {
        let status = Status::Pending { not_after: time + limit.install_within(), state: Vec::new() };
        ledger.grants.push(Grant { id: entry.next_id(view), status, ..grant });
    }
    Ok((ledger, vec![true; slots.len()]))
}

async fn install_one(
    limit: &SharedLimit,
    entry: &Entry,
    slot: Slot,
    (not_after, ttl): (Micros, u64),
    state: &[u8],
) -> Result<InstallReply, Fault> {
    let key = sub_key(&limit.prefix, slot, &limit.name, &entry.key);
    let run = InstallRun { state, not_after, ttl };
    let arguments = |command: &mut redis::Cmd| run.write(command);
    let request = Request { slot, script: Script::Install, key: &key, arguments: &arguments };
    let reply = limit.engine.transport.run(&request).await?;
    InstallReply::parse(reply).map_err(|bad| Fault::Unknown(bad.to_string()))
}

/// Replaces home's ledger if it is still the one in `view`; whatever is in force afterwards is known then.
async fn grant(limit: &SharedLimit, entry: &Entry, view: &View, ledger: &Ledger, empty: &[bool]) -> Result<(), Fault> {
    let home = view.home();
    let id = entry.next_id(view);
    let run = GrantRun { expected: view.id, id, least_ttl: lives(ledger, limit.timeout).0, ledger, empty };
    let arguments = |command: &mut redis::Cmd| run.write(command);
    let script = Script::grant(&home.share);
    let request = Request { slot: entry.home, script, key: &home.sub_key, arguments: &arguments };
    let reply = limit.engine.transport.run(&request).await?;
    let wrong = |bad: &dyn std::fmt::Display| Fault::Unknown(bad.to_string());
    let (id, ledger) = match GrantReply::parse(reply).map_err(|bad| wrong(&bad))? {
        GrantReply::Granted { id, ledger } | GrantReply::Refused { id: Some(id), ledger: Some(ledger) } => (id, ledger),
        // Home has expired: the next call makes a new one.
        GrantReply::Refused { .. } => {
            entry.adopt(limit, limit.alone, limit.ledger.clone(), Word::InsteadOf(view.id));
            return Ok(());
        }
    };
    entry.adopt(limit, id, Ledger::decode(&ledger).map_err(|bad| wrong(&bad))?, Word::InsteadOf(view.id));
    Ok(())
}

async fn clocks(limit: &SharedLimit, slots: &[Slot]) -> Result<Vec<Micros>, Fault> {
    let mut tasks = JoinSet::new();
    for (index, slot) in slots.iter().copied().enumerate() {
        let transport = limit.engine.transport.clone();
        tasks.spawn(async move { (index, transport.time_at(slot).await) });
    }
    let mut times = tasks.join_all().await;
    times.sort_unstable_by_key(|(index, _)| *index);
    times.into_iter().map(|(_, time)| time).collect()
}
