//! Leases: how a purse is filled ahead of need, and how what is left comes back.

use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::SharedLimit;
use super::entry::Entry;
use super::job::{Miss, Outcome, Work};
use super::lane::Lane;
use super::purse::{Lease, Purse};
use super::round::Decided;
use super::settle::lane_of;
use crate::clock::Micros;
use crate::decision::Charge;
use crate::kernel::{Refund, UNSPENT};
use crate::limit::Share;
use crate::selector::Candidates;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, lock};

/// A process never holds more than this part of what a share can hold: also where one shard alone has any, it leaves most of them to
/// others.
const PART: u64 = 4;

/// Keys are looked after in so many parts, each with its own lock and its own task. All of them share one that no call takes, which
/// those who fill purses hold side by side: see `filling`.
const PARTS: u64 = 16;
/// Of so many keys leases are given back together, and if so many are under way the next ones wait for a moment,
const TOGETHER: usize = 256;
/// after which it is looked whether they have arrived.
const ARRIVAL: Duration = Duration::from_millis(1);
/// After so many keys that are looked through in a row, purses that are low come first, and other tasks.
const ROW: usize = 32;

/// How leases of a limit are taken, and who has some.
pub(super) struct Leasing {
    pub leases: crate::Leases,
    horizon: Micros,
    ttl: Micros,
    /// For how long shards that can keep room for what is leased of them; 0: not at all.
    held_for: Micros,
    parts: Box<[Part]>,
    /// Shared by those who fill a purse; alone has it who gives everything back, so that nothing is on its way then.
    filling: tokio::sync::RwLock<()>,
    /// How often everything was given back. A purse that was low before that is not filled for it any more.
    returns: AtomicU64,
}

#[derive(Default)]
struct Part {
    leased: Mutex<Leased>,
    /// Wakes its task when a purse is low.
    is_low: Notify,
}

#[derive(Default)]
struct Leased {
    /// Keys with permits in their purse. They stay in use until they have given them back.
    entries: Vec<Arc<Entry>>,
    /// A task gives back what expires, and has purses filled.
    swept: bool,
    /// Those it is to see to, and how often everything was given back before they said so.
    low: Vec<(Arc<Entry>, u64)>,
}

impl Leased {
    /// A call that finds a purse low allocates nothing: there is room for all of them.
    fn make_room(&mut self) {
        self.low.reserve(self.entries.len());
    }
}

impl Leasing {
    pub(super) fn new(leases: &crate::Leases) -> Self {
        let micros = |time: Duration| time.as_micros() as Micros;
        Self {
            leases: *leases,
            horizon: micros(leases.horizon),
            ttl: micros(leases.ttl),
            held_for: if leases.within_burst { micros(leases.room_for()) } else { 0 },
            parts: (0..PARTS).map(|_| Part::default()).collect(),
            filling: tokio::sync::RwLock::default(),
            returns: AtomicU64::new(0),
        }
    }

    /// The number of the part that has this key.
    fn part_of(entry: &Entry) -> usize {
        (entry.owner % PARTS) as usize
    }

    /// For how long the shard is to keep room for what is leased of it; 0: not at all.
    fn held_for(&self, share: &Share) -> Micros {
        if matches!(share, Share::Bucket(bucket) if !bucket.paced) { self.held_for } else { 0 }
    }

    /// Whether permits may be taken ahead from such a share. Its limit may be another by now than the one that was defined here.
    fn fits(&self, share: &Share) -> bool {
        match share {
            // Who comes when is the whole point of a queue.
            // One permit may be missing, for shares of a limit that has room are rounded.
            Share::Bucket(bucket) => {
                !bucket.paced && self.leases.have_room_in(bucket.capacity + bucket.cost, bucket.rate)
            }
            Share::Fixed(_) => true,
            Share::Sliding(_) => self.held_for == 0,
            Share::Composite(_) => false,
        }
    }

    /// What gives a lease back.
    fn unspent(&self, lane: &Lane, charge: &Charge, now: Micros) -> Refund {
        lane.counts.fallback.unspent(charge.permits, now);
        let refund = charge.refund(charge.permits);
        if self.held_for(&lane.share) > 0 { Refund { line: UNSPENT, ..refund } } else { refund }
    }
}

impl SharedLimit {
    /// Has a task fill the key's purse, unless one is at it. Whoever holds permits has a task that does: that takes no memory here.
    #[inline(never)]
    pub(super) fn refill(self: &Arc<Self>, entry: &Arc<Entry>, purse: &Purse) {
        let Some(leasing) = &self.leasing else { return };
        if self.engine.check().is_err() || purse.refilling.swap(true, Ordering::AcqRel) {
            return;
        }
        let returns = leasing.returns.load(Ordering::Acquire);
        {
            let part = &leasing.parts[Leasing::part_of(entry)];
            let leased = &mut *lock(&part.leased);
            if leased.swept {
                leased.low.push((Arc::clone(entry), returns));
                part.is_low.notify_one();
                return;
            }
        }
        self.spawn_filling(Arc::clone(entry), returns);
    }

    /// Whether a key that was idle had use for some permits within the last horizons: others are called once, and would give back all
    /// that was taken ahead for them.
    pub(super) fn is_worth_leasing(&self, entry: &Entry) -> bool {
        let (Some(leasing), view, now) = (&self.leasing, entry.load(), self.clock.now()) else { return false };
        let rate: f64 = view.lanes.iter().map(|lane| lane.counts.fallback.rate(now)).sum();
        rate * leasing.horizon as f64 >= 2e6
    }

    fn spawn_filling(self: &Arc<Self>, entry: Arc<Entry>, returns: u64) {
        // Without a runtime it is dropped: then calls go to the store, and fail there.
        let (limit, filling) = (Arc::clone(self), Filling(entry));
        let _ = self.engine.spawn(async move {
            limit.fill(&filling.0, returns).await;
            let entry = Arc::clone(&filling.0);
            drop(filling);
            limit.let_go(entry);
        });
    }

    /// One lease from each shard at the most.
    async fn fill(self: &Arc<Self>, entry: &Arc<Entry>, returns: u64) {
        let (Some(purse), Some(leasing)) = (&entry.purse, &self.leasing) else { return };
        let _filling = leasing.filling.read().await;
        // What is taken for the sake of earlier calls, after everything was given back, nobody expects to be out.
        if self.engine.check().is_err() || leasing.returns.load(Ordering::Acquire) != returns {
            return;
        }
        // What may be spent no more would be in the way of what may, until somebody looks through all.
        self.hand_back(entry, purse.take_back(Some(self.clock.now())));
        let first = {
            let (view, now) = (entry.load(), self.clock.now());
            let turn = entry.next_turn(&view, now);
            self.selector.select(&Candidates { lanes: &view.lanes, turn, now })
        };
        let shards = entry.load().lanes.len();
        for step in 0..shards {
            let (view, now) = (entry.view(), self.clock.now());
            // Of shards that are away nothing can be had: a half of all would never be held.
            let can_be_had = |lane: &&Arc<Lane>| leasing.fits(&lane.share) && !lane.is_sick(now);
            let most: u64 = view.lanes.iter().filter(can_be_had).map(|lane| lane.burst / PART).sum();
            let target = lock(&purse.recent).target(purse.used(), now, leasing.horizon).min(most);
            purse.refill_below(target / 2);
            let wanted = target.saturating_sub(purse.held());
            let lane = &view.lanes[first.wrapping_add(step) % view.lanes.len()];
            let room = (lane.burst / PART).saturating_sub(purse.held_of(lane.slot));
            let permits = wanted.min(room).min(lane.most(now));
            if permits == 0 || !leasing.fits(&lane.share) || !lane.is_open(1, now) {
                continue;
            }
            let work = Work::Lease { permits, held_for: leasing.held_for(&lane.share) as u32 };
            match self.ask(entry, lane, work, (now, now + self.deadline)).await {
                Ok(found) if found.verdict.granted > 0 => self.take_in(entry, purse, leasing, &found),
                // Another shard may have what this one has not, or does not say.
                Ok(_) | Err(Miss::Stale | Miss::Failed(_)) => {}
                Err(Miss::Ended { .. }) => return,
            }
        }
    }

    fn take_in(self: &Arc<Self>, entry: &Arc<Entry>, purse: &Purse, leasing: &Leasing, found: &Outcome) {
        let Decided { header, share, sent, .. } = &**found;
        let mut until = sent + leasing.ttl;
        if let Share::Fixed(window) = share {
            // The permits of a window are not to be spent in the next one.
            until = until.min(sent + (window.window - header.at % window.window));
        }
        purse.add(Lease { charge: found.charge(found.verdict.granted), until });
        entry.waits.stir();
        if purse.is_to_be_listed() {
            self.list(leasing, Arc::clone(entry));
        }
    }

    /// From now on a task looks after what the key holds.
    fn list(self: &Arc<Self>, leasing: &Leasing, entry: Arc<Entry>) {
        let number = Leasing::part_of(&entry);
        let leased = &mut *lock(&leasing.parts[number].leased);
        leased.entries.push(entry);
        leased.make_room();
        if !std::mem::replace(&mut leased.swept, true) {
            let limit = Arc::clone(self);
            // It was a task of this runtime that came here.
            let _ = self.engine.spawn(async move { limit.sweep(number).await });
        }
    }

    /// Gives back what expires, and all that is held by keys that fell quiet, until nobody holds anything. As long as somebody does,
    /// a limiter that was dropped is not gone.
    async fn sweep(self: Arc<Self>, number: usize) {
        let Some(leasing) = &self.leasing else { return };
        let (part, pause) = (&leasing.parts[number], Duration::from_micros(leasing.ttl / 2));
        let (mut low, mut quiet) = (Vec::new(), Vec::new());
        let mut next = Instant::now() + pause;
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(next) => {}
                // Whoever shuts the limiter down gives everything back himself.
                () = self.engine.is_over() => return,
                () = part.is_low.notified() => {
                    self.fill_low(part, &mut low);
                    continue;
                }
            }
            next = Instant::now() + pause;
            let entries = lock(&part.leased).entries.clone();
            quiet.clear();
            for row in entries.chunks(ROW) {
                quiet.extend(row.iter().map(|entry| self.look_through(entry)));
                self.fill_low(part, &mut low);
                tokio::task::yield_now().await;
            }
            let ended = {
                let leased = &mut *lock(&part.leased);
                // Others only add to its end.
                let mut quiet = quiet.iter();
                let struck_off = |entry: &Entry| entry.purse.as_ref().is_none_or(|purse| purse.is_struck_off());
                leased.entries.retain(|entry| !(quiet.next() == Some(&true) && struck_off(entry)));
                leased.swept = !(leased.entries.is_empty() && leased.low.is_empty());
                !leased.swept
            };
            entries.into_iter().zip(&quiet).filter(|(_, quiet)| **quiet).for_each(|(entry, _)| self.let_go(entry));
            if ended {
                return;
            }
        }
    }

    /// Has those purses filled that are low. `low` is empty before and after: one list for the other, neither is made anew.
    fn fill_low(self: &Arc<Self>, part: &Part, low: &mut Vec<(Arc<Entry>, u64)>) {
        {
            let leased = &mut *lock(&part.leased);
            std::mem::swap(low, &mut leased.low);
            leased.make_room();
        }
        low.drain(..).for_each(|(entry, returns)| self.spawn_filling(entry, returns));
    }

    /// Gives back what the key may spend no more. Says whether it fell quiet and nothing is held or on its way any more. What a server
    /// that is away is to be given is kept for it elsewhere: nobody has to wait here until it is back.
    fn look_through(self: &Arc<Self>, entry: &Arc<Entry>) -> bool {
        let Some(purse) = &entry.purse else { return true };
        let (now, used) = (self.clock.now(), purse.used());
        let quiet = purse.seen.swap(used, Ordering::Relaxed) == used;
        let back = purse.take_back(if quiet { None } else { Some(now) });
        // As long as something is on its way back it stays listed.
        let is_empty = back.is_empty();
        self.hand_back(entry, back);
        quiet && is_empty && purse.is_out() && !entry.is_giving_back()
    }

    fn hand_back(self: &Arc<Self>, entry: &Arc<Entry>, leases: Vec<Lease>) {
        let (Some(leasing), view) = (&self.leasing, entry.view()) else { return };
        for Lease { charge, .. } in leases {
            if let Some(lane) = lane_of(&view, &charge) {
                entry.open(lane);
                self.give_back(entry, lane, leasing.unspent(lane, &charge, self.clock.now()));
            }
        }
    }

    /// Gives back everything that this process holds. Says whether the store has all of it.
    ///
    /// # Cancel safety
    /// What was begun goes on.
    pub(crate) async fn return_leases(self: &Arc<Self>) -> bool {
        let Some(leasing) = &self.leasing else { return true };
        // What is on its way here comes first.
        let _alone = leasing.filling.write().await;
        leasing.returns.fetch_add(1, Ordering::AcqRel);
        let entries = leasing.parts.iter().flat_map(|part| lock(&part.leased).entries.clone());
        let entries: Vec<Arc<Entry>> = entries.collect();
        let mut under_way: Vec<&Arc<Entry>> = Vec::new();
        for some in entries.chunks(TOGETHER) {
            for entry in some {
                self.hand_back(entry, entry.purse.as_ref().map(|purse| purse.take_back(None)).unwrap_or_default());
            }
            // What has expired may have been on its way back already: that is waited for as well.
            under_way.extend(some);
            under_way.retain(|entry| entry.is_giving_back());
            // Those that go to a server that hangs keep no others back for long.
            if under_way.len() >= TOGETHER {
                tokio::time::sleep(ARRIVAL).await;
            }
        }
        while under_way.iter().any(|entry| entry.is_giving_back()) {
            tokio::time::sleep(ARRIVAL).await;
        }
        for entry in entries {
            self.let_go(entry);
        }
        // What could not be sent waits for a round that may never come, also of keys that have fallen quiet since; and some may have been
        // lost before this.
        self.losses.news() == 0 && !self.keys.have_kept()
    }
}

/// Whoever fills a key's purse, or has it stay as it is, says so until he is done, or gone.
pub(super) struct Filling(Arc<Entry>);

impl Filling {
    /// Nobody fills it until this is dropped.
    ///
    /// # Cancel safety
    /// It is left as it was.
    pub(super) async fn keep_off(entry: &Arc<Entry>, purse: &Purse) -> Self {
        purse.occupy().await;
        Self(Arc::clone(entry))
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        if let Some(purse) = &self.0.purse {
            purse.rest();
        }
    }
}
