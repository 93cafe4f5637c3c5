//! When a key's shares have to move, and who sees to it: no call waits for it, unless its shard is gone.

use std::time::Duration;

use tokio::sync::Semaphore;

use super::SharedLimit;
use super::entry::Entry;
use super::job::{Miss, Work};
use super::lane::{Lane, is_due};
use super::moves::{assert_again, settle};
use super::view::View;
use crate::clock::Micros;
use crate::observe;
use crate::store::cluster::Fault;
use crate::sync::Arc;
use crate::sync::atomic::Ordering;
use crate::wire::GrantId;

/// Time between two attempts to bring a plan to its end: an attempt of another client gets this long first.
pub(super) const PAUSE: Micros = 200_000;
/// After an attempt that failed the next one waits for longer: the key works without it.
const AFTER_FAULT: Micros = 2_000_000;

/// Keys of a limit that are seen to at once by tasks that nobody waits for. Each waits for a server nearly all of its time: more would bring no more keys to
/// their end, and take memory, and the servers' time from calls.
const MOVERS: usize = 64;
/// Those of which somebody else may be at it are given time first: so many at once, or a plan in a second would be all that follows the cluster.
const PATIENT: usize = 1_024;

/// Places for tasks that move shares. Whoever finds none leaves it to a later call: the key works without it.
pub(super) struct Movers {
    now: Arc<Semaphore>,
    patient: Arc<Semaphore>,
}

impl Movers {
    pub(super) fn new() -> Self {
        Self { now: Arc::new(Semaphore::new(MOVERS)), patient: Arc::new(Semaphore::new(PATIENT)) }
    }
}

/// What is to be done for a key.
enum Errand {
    /// At once: nobody else is known to be at it.
    Now,
    /// Somebody is probably at it: he is given time to finish.
    Finish,
    /// Its plan is to follow the cluster: whoever comes first.
    Follow,
}

impl SharedLimit {
    /// A key that nobody has taken anything from is not split.
    fn errand(&self, entry: &Entry, view: &View, used: bool) -> Option<Errand> {
        let ledger = &view.ledger;
        if self.defined.load().definition.replaces(ledger.wanted()) {
            return Some(Errand::Now);
        }
        if view.is_moving() {
            return Some(Errand::Finish);
        }
        if !view.is_split() {
            return (used && self.may_split(entry, ledger)).then_some(Errand::Now);
        }
        let settled = self.engine.transport.settled()?;
        (entry.planned_for.load(Ordering::Relaxed) != settled || entry.may_come_home(view)).then_some(Errand::Follow)
    }
}

/// Whether there is something to do for the key's plan; if so, a task does it.
pub(super) fn look_after(limit: &Arc<SharedLimit>, entry: &Arc<Entry>, used: bool) {
    let Some(errand) = limit.errand(entry, &entry.load(), used) else { return };
    let now = limit.clock.now();
    if entry.is_to_wait(now) {
        return;
    }
    let Movers { now: at_once, patient } = &limit.movers;
    let (places, patience) = match errand {
        Errand::Now => (at_once, 0),
        Errand::Finish => (patient, rand::random_range(PAUSE / 8..PAUSE / 2)),
        Errand::Follow => (patient, rand::random_range(0..2 * PAUSE)),
    };
    let Ok(place) = Arc::clone(places).try_acquire_owned() else { return };
    // Others may have come to the same.
    if !is_due(&entry.next_step, now, PAUSE) {
        return;
    }
    let (of, key) = (Arc::clone(limit), Arc::clone(entry));
    let task = async move {
        let goes_on = of.engine.pause(Duration::from_micros(patience)).await;
        let _turn = if patience > 0 { of.movers.now.acquire().await.ok() } else { None };
        // One at a time; whoever is at it will finish it.
        let goes_on = goes_on && key.escrow.try_lock().is_ok();
        if goes_on && let Err(fault) = settle(&of, &key, None, None).await {
            of.tell_fault(&key.key, &fault);
            key.next_step.fetch_max(of.clock.now() + AFTER_FAULT, Ordering::Relaxed);
        }
        of.let_go(key);
        drop(place);
    };
    // Without a runtime no call could have come this far.
    let _ = limit.engine.spawn(task);
}

/// A shard did not know the grant that it was asked under. Home is asked what the plan is now; if it says the same as
/// before, the share is lost: it comes home with nothing in it, and is lent again.
pub(super) async fn gone_stale(limit: &Arc<SharedLimit>, entry: &Arc<Entry>, lane: &Arc<Lane>) {
    let before = entry.view();
    if lane.is_home {
        if before.id == lane.id {
            home_is_gone(limit, entry, &before).await;
        }
        return;
    }
    // The lane of a plan that was replaced meanwhile: nothing is wrong.
    let in_force = |view: &View| view.lanes.iter().any(|other| other.id == lane.id && other.slot == lane.slot);
    if !in_force(&before) {
        return;
    }
    if !ask_home(limit, entry).await {
        let now = limit.clock.now();
        return lane.failed(now, now, "home can't be asked for the plan");
    }
    if !in_force(&entry.view()) {
        return;
    }
    observe::share_lost(&limit.name, &entry.key, lane.id);
    // Its callers wait for this, so it may not take longer than a request.
    settle_in_time(limit, entry, lane, settle(limit, entry, Some(lane.id), None)).await;
}

/// Home is not there. It is made again with what this client knows of it; or as new, if that is so long ago that home may
/// have come to its end by itself.
async fn home_is_gone(limit: &Arc<SharedLimit>, entry: &Arc<Entry>, view: &Arc<View>) {
    if !entry.heard_lately(limit.clock.now()) {
        return entry.forget(limit, view.id);
    }
    settle_in_time(limit, entry, view.home(), assert_again(limit, entry, None)).await;
}

async fn settle_in_time(
    limit: &SharedLimit,
    entry: &Entry,
    lane: &Lane,
    settled: impl Future<Output = Result<(), Fault>>,
) {
    let begun = limit.clock.now();
    match tokio::time::timeout(limit.timeout, settled).await {
        Ok(Ok(())) => {}
        Ok(Err(fault)) => {
            limit.tell_fault(&entry.key, &fault);
            lane.failed(begun, limit.clock.now(), &fault.what());
        }
        Err(_) => lane.failed(begun, limit.clock.now(), "its share could not be settled in time"),
    }
}

/// Home said that its ledger is one that this client knows a later one of: it has forgotten what it wrote since.
pub(super) async fn home_forgot(limit: &Arc<SharedLimit>, entry: &Arc<Entry>, found: (GrantId, crate::wire::Ledger)) {
    let home = Arc::clone(entry.load().home());
    settle_in_time(limit, entry, &home, assert_again(limit, entry, Some(found))).await;
}

/// Has home say what its plan is. `false`: it could not be asked.
pub(super) async fn ask_home(limit: &Arc<SharedLimit>, entry: &Arc<Entry>) -> bool {
    ask_home_until(limit, entry, limit.clock.now() + limit.timeout.as_micros() as Micros).await
}

/// The same, and it is not waited for after `due`.
pub(super) async fn ask_home_until(limit: &Arc<SharedLimit>, entry: &Arc<Entry>, due: Micros) -> bool {
    let view = entry.view();
    let answer = limit.put_until(entry, view.home(), Work::Look, due);
    matches!(answer.await, Ok(_) | Err(Miss::Stale))
}
