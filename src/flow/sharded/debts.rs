//! What was admitted without a shard is charged to it when it is back, also if nobody calls the key any more.

use std::collections::VecDeque;
use std::sync::Weak;
use std::time::Duration;

use super::SharedLimit;
use super::entry::Entry;
use super::job::{Miss, Work};
use super::lane::Lane;
use crate::clock::Micros;
use crate::error::ErrorKind;
use crate::sync::atomic::Ordering;
use crate::sync::{Arc, Mutex, lock};

/// So often those are gone through who owe something, drawn anew between the half and the whole: processes that lost a master
/// together do not come back together.
const AGAIN: Micros = 250_000;
/// Keys that are charged at once: they share a pipeline.
const TOGETHER: usize = 64;
/// After so many in a row that can't be charged, the others wait for the next time: their shards are out of reach as well.
const IN_VAIN: usize = 1_024;
/// Keys that are gone through. Of others, the next call pays.
const MOST: usize = 100_000;

/// The keys of a limit that owe something, and whether a task goes through them.
#[derive(Default)]
pub(super) struct Debtors(Mutex<Listed>);

#[derive(Default)]
struct Listed {
    keys: VecDeque<Box<[u8]>>,
    is_collected: bool,
}

impl SharedLimit {
    /// So many permits were admitted without their shard, which is to be charged for them.
    pub(super) fn owe(self: &Arc<Self>, entry: &Entry, lane: &Lane, permits: u64) {
        lane.counts.fallback.owe(permits);
        self.list_debtor(&entry.key, lane);
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
        let paid = self.put(entry, lane, Work::Debt(owed));
        let (limit, entry, lane) = (Arc::clone(self), Arc::clone(entry), Arc::clone(lane));
        Some(async move {
            let was_sent = match paid.await {
                Err(Miss::Failed(error)) => error.kind() != ErrorKind::NotSent,
                // The share is another one by now, and what is owed to it with it.
                _ => true,
            };
            if !was_sent {
                limit.owe(&entry, &lane, owed);
            }
            limit.rest(entry);
            was_sent
        })
    }

    fn list_debtor(self: &Arc<Self>, key: &[u8], lane: &Lane) {
        // What is owed was written before: whoever takes the key off the list sees it.
        if lane.counts.fallback.is_listed.swap(true, Ordering::AcqRel) {
            return;
        }
        let listed = &mut *lock(&self.debtors.0);
        if listed.keys.len() >= MOST {
            lane.counts.fallback.is_listed.store(false, Ordering::Release);
            return;
        }
        listed.keys.push_back(key.into());
        if !std::mem::replace(&mut listed.is_collected, true) {
            // It must not keep the limiter alive.
            let limit = Arc::downgrade(self);
            let _ = self.engine.spawn(collect(limit));
        }
    }

    /// Goes through those who are listed now, as long as some of them can be charged. Says whether somebody is left.
    async fn collect(self: &Arc<Self>) -> bool {
        let mut left = lock(&self.debtors.0).keys.len();
        let mut in_vain = 0;
        while left > 0 && in_vain < IN_VAIN {
            let keys: Vec<_> = {
                let listed = &mut lock(&self.debtors.0).keys;
                let count = left.min(TOGETHER).min(listed.len());
                listed.drain(..count).collect()
            };
            left -= keys.len().max(1);
            in_vain += keys.len();
            let paid: Vec<_> = keys.iter().flat_map(|key| self.collect_from(key)).collect();
            for paid in paid {
                if paid.await {
                    in_vain = 0;
                }
            }
        }
        let listed = &mut *lock(&self.debtors.0);
        listed.is_collected = !listed.keys.is_empty() && self.engine.check().is_ok();
        listed.is_collected
    }

    /// Charges what a key owes, where its shards are to be tried.
    fn collect_from(self: &Arc<Self>, key: &[u8]) -> Vec<impl Future<Output = bool> + Send + use<>> {
        let entry = self.entry(key);
        let (view, now) = (entry.view(), self.clock.now());
        let mut paid = Vec::new();
        for lane in &view.lanes {
            let was_listed = lane.counts.fallback.is_listed.swap(false, Ordering::AcqRel);
            if !was_listed || !lane.counts.fallback.owes() {
                continue;
            }
            if lane.is_sick(now) && !lane.counts.health.is_to_be_tried(now, self.timeout.as_micros() as Micros) {
                self.list_debtor(key, lane);
            } else {
                paid.extend(self.paid(&entry, lane));
            }
        }
        paid
    }
}

async fn collect(limit: Weak<SharedLimit>) {
    loop {
        tokio::time::sleep(Duration::from_micros(rand::random_range(AGAIN / 2..=AGAIN))).await;
        match limit.upgrade() {
            Some(limit) if limit.collect().await => {}
            _ => return,
        }
    }
}
