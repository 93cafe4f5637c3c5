//! What was admitted without a shard is charged to it when it is back, and refunds that could not be sent are, also if nobody calls the
//! key any more. One task of a limit goes through its keys, as long as there is one whose shard is away, or was a moment ago.

use std::sync::Weak;
use std::time::Duration;

use super::SharedLimit;
use super::entry::Entry;
use super::job::{Miss, Work};
use super::keys::Hand;
use super::lane::Lane;
use super::losses::Lost;
use super::one_task::OneTask;
use crate::clock::Micros;
use crate::error::ErrorKind;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering};

/// So often keys are gone through, drawn anew between the half and the whole: processes that lost a master together do not come back
/// together.
const AGAIN: Micros = 250_000;
/// After so many keys in a row whose shards are tried and may not answer, the others wait for the next time.
const IN_VAIN: usize = 1_024;

/// How soon those that are left at the end are tried again, and the next [so many](IN_VAIN). Of 100,000 keys whose master hangs some 25,000
/// are tried at once by that, within the `timeout` that each of them has: half of what one connection bears.
const SOON: Duration = Duration::from_millis(20);

#[derive(Default)]
pub(super) struct Debts {
    task: OneTask,
    /// Debts that were sent, and of how many of them it is known what became.
    begun: AtomicU64,
    ended: AtomicU64,
}

/// A debt on its way. Whoever goes away before he knows what became of it leaves it uncharged, for all that is known.
struct Paying {
    limit: Arc<SharedLimit>,
    entry: Arc<Entry>,
    owed: u64,
}

impl Paying {
    fn new(limit: &Arc<SharedLimit>, entry: &Arc<Entry>, owed: u64) -> Self {
        limit.debts.begun.fetch_add(1, Ordering::AcqRel);
        Self { limit: Arc::clone(limit), entry: Arc::clone(entry), owed }
    }

    /// It is charged, or seen to.
    fn done(mut self) {
        self.owed = 0;
    }
}

impl Drop for Paying {
    fn drop(&mut self) {
        self.limit.lose(&self.entry.key, Lost::uncharged(self.owed));
        self.limit.debts.ended.fetch_add(1, Ordering::AcqRel);
    }
}

impl SharedLimit {
    /// So many permits were admitted without their shard, which is to be charged for them.
    pub(super) fn owe(self: &Arc<Self>, lane: &Lane, permits: u64) {
        lane.counts.fallback.owe(permits);
        self.call_collector();
    }

    /// Some key has a shard that is away: it is seen to until it is back.
    pub(super) fn call_collector(self: &Arc<Self>) {
        if self.debts.task.call() {
            // It must not keep the limiter alive.
            let limit = Arc::downgrade(self);
            let _ = self.engine.spawn(collect(limit));
        }
    }

    /// Charges to a shard that is in reach what was admitted without it. Nobody waits for it.
    pub(super) fn pay(self: &Arc<Self>, entry: &Arc<Entry>, lane: &Arc<Lane>) {
        if let Some(paid) = self.paid(entry, lane) {
            // If it can't be spawned the limiter is at its end.
            let _ = self.engine.spawn(async move {
                paid.await;
            });
        }
    }

    /// Says whether it was charged. Nothing is charged twice: what may have been is not sent again.
    fn paid(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        lane: &Arc<Lane>,
    ) -> Option<impl Future<Output = bool> + Send + use<>> {
        let owed = lane.counts.fallback.take_owed();
        if owed == 0 {
            return None;
        }
        let paying = Paying::new(self, entry, owed);
        let paid = self.put(entry, lane, Work::Debt(owed));
        let lane = Arc::clone(lane);
        Some(async move {
            let (is_paid, is_known) = match paid.await {
                Ok(_) => (true, true),
                // Nobody will ever know.
                Err(Miss::Ended { .. }) => (true, false),
                Err(Miss::Failed(error)) if error.kind() == ErrorKind::Unknown => (true, false),
                Err(Miss::Failed(_)) => {
                    paying.limit.owe(&lane, owed);
                    (false, true)
                }
                // The share is another one by now, or has come home.
                Err(Miss::Stale) => {
                    paying.limit.owe(paying.entry.view().home(), owed);
                    (false, true)
                }
            };
            let (limit, entry) = (Arc::clone(&paying.limit), Arc::clone(&paying.entry));
            if is_known {
                paying.done();
            } else {
                drop(paying);
            }
            limit.rest(entry);
            is_paid
        })
    }

    /// Goes on through the keys, until it has seen all of them or tried too many in vain. Says whether there was nothing for it.
    async fn collect(self: &Arc<Self>, round: &mut Collection) -> bool {
        let mut in_vain = 0;
        while in_vain < IN_VAIN {
            if !round.has_begun {
                (round.has_begun, round.has_seen) = (true, false);
                self.debts.task.looks();
            }
            let found = self.keys.walk(&mut round.hand, self.clock.now());
            round.has_seen |= found.has_seen;
            in_vain = if self.collect_from_all(&found.keys).await { 0 } else { in_vain + found.keys.len() };
            if found.is_lap {
                round.has_begun = false;
                return !round.has_seen && self.debts.task.rests();
            }
            tokio::task::yield_now().await;
        }
        false
    }

    /// At the end: charges and gives back all that is left, however often that has to be tried.
    ///
    /// # Cancel safety
    /// What was begun goes on.
    pub(crate) async fn catch_up(self: &Arc<Self>) {
        let count = |of: &AtomicU64| of.load(Ordering::Acquire);
        loop {
            // What may still fail is owed again before it has ended: then this lap sees it, or there is another.
            let (ended, begun) = (count(&self.debts.ended), count(&self.debts.begun));
            let (mut hand, mut has_left, mut in_vain) = (Hand::default(), false, 0);
            loop {
                let found = self.keys.walk(&mut hand, self.clock.now());
                has_left |= found.has_left;
                in_vain = if self.collect_from_all(&found.keys).await { 0 } else { in_vain + found.keys.len() };
                if found.is_lap {
                    break;
                }
                if in_vain >= IN_VAIN {
                    in_vain = 0;
                    tokio::time::sleep(SOON).await;
                }
                // What it waits for may have to run on the same thread.
                tokio::task::yield_now().await;
            }
            if !has_left && ended == begun && count(&self.debts.begun) == begun {
                return;
            }
            tokio::time::sleep(SOON).await;
        }
    }

    /// What [`collect_from`](Self::collect_from) does, for some keys together. Says whether any of them paid.
    async fn collect_from_all(self: &Arc<Self>, keys: &[Box<[u8]>]) -> bool {
        let paying: Vec<_> = keys.iter().flat_map(|key| self.collect_from(key)).collect();
        let mut has_paid = false;
        for paid in paying {
            has_paid |= paid.await;
        }
        has_paid
    }

    /// Charges what a key owes to shards that answer, and has those tried that do not.
    fn collect_from(self: &Arc<Self>, key: &[u8]) -> Vec<impl Future<Output = bool> + Send + use<>> {
        let entry = self.entry(key);
        let (view, now) = (entry.view(), self.clock.now());
        entry.debts_come_home();
        let mut paid = Vec::new();
        for lane in view.lanes.iter().filter(|lane| lane.is_behind()) {
            if !lane.counts.health.has_answered() {
                // Not with what is owed: of what has no answer nobody would know whether it was charged.
                self.try_again(&entry, lane, now);
            } else if lane.counts.fallback.owes() {
                paid.extend(self.paid(&entry, lane));
            } else {
                self.nudge(&entry, lane);
            }
        }
        paid
    }
}

/// How far all keys were gone through.
#[derive(Default)]
struct Collection {
    hand: Hand,
    has_begun: bool,
    has_seen: bool,
}

async fn collect(limit: Weak<SharedLimit>) {
    let mut round = Collection::default();
    loop {
        let pause = Duration::from_micros(rand::random_range(AGAIN / 2..=AGAIN));
        let Some(pause) = limit.upgrade().map(|limit| limit.engine.pause(pause)) else { return };
        if !pause.await {
            return;
        }
        match limit.upgrade() {
            Some(limit) if !limit.collect(&mut round).await => {}
            _ => return,
        }
    }
}
