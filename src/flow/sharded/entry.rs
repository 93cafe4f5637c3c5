//! A key as this process knows it: its plan and the lanes to its shards.

use std::sync::OnceLock;
use std::time::Duration;

use arc_swap::ArcSwap;

use super::SharedLimit;
use super::ceiling::Shut;
use super::counts::Counts;
use super::escrow::PAUSE;
use super::heat::Heat;
use super::lane::{Lane, is_due};
use super::losses::Lost;
use super::meter::Meter;
use super::purse::Purse;
use super::queue::sum;
use super::tally::Tally;
use super::turn::{Over, Turns};
use super::view::{LEAST_LIFE, View, is_record, lives};
use super::waits::Waits;
use crate::clock::Micros;
use crate::decision::{DecidedBy, StoreFacts};
use crate::escrow::{News, news};
use crate::key::{Slot, home_slot};
use crate::plan::{SET_KEY, ShardCounts, Shards};
use crate::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering, fence};
use crate::sync::{Arc, Mutex, lock};
use crate::wire::{GrantId, Ledger};

pub(crate) struct Entry {
    pub key: Box<[u8]>,
    /// The hash of the key under its limit: the owner of receipts.
    pub owner: u64,
    pub home: Slot,
    view: ArcSwap<View>,
    /// Held while the view is replaced.
    replacing: Mutex<()>,
    pub(super) turns: Turns,
    /// When home was last asked, by this process's clock.
    pub(super) asked: AtomicU64,
    /// The latest that home's own clock was heard to show.
    pub(super) home_time: AtomicU64,
    /// What its last answer says to all calls.
    outlook: Outlook,
    /// What is told of its admissions, if it is one of those that are watched.
    tally: OnceLock<Box<Tally>>,
    /// Calls that wait for it.
    pub(super) waits: Waits,
    /// Permits held here, of a leased limit.
    pub(super) purse: Option<Box<Purse>>,
    /// Held by the one task of this process that moves the key's shares.
    pub(super) escrow: tokio::sync::Mutex<()>,
    /// When that task may next begin, by this process's clock.
    pub(super) next_step: AtomicU64,
    /// Whether its shards have more to do than one should.
    pub(super) heat: Heat,
    /// The state of the cluster for which the plan was last found to be as it should be.
    pub(super) planned_for: AtomicU64,
    /// Its segment has it among those with a plan: whoever lets go of it has nothing to say there.
    pub(super) is_listed: AtomicBool,
    /// It was looked for since it was last seen there.
    pub(super) is_found: AtomicBool,
}

/// What all shards came to at the last answer of any: read by every call that is decided in process.
#[derive(Default)]
struct Outlook {
    /// What they can have at the most.
    remaining: AtomicU64,
    /// When they are as new.
    new_at: AtomicU64,
    /// Until then none of them can grant anything, by this process's clock, and nobody has to look again.
    shut_until: AtomicU64,
    /// When one could: what those are told who are denied until then.
    opens_at: AtomicU64,
    /// The part of a composite limit that denied last, as [`StoreFacts`] has it.
    part: AtomicU8,
}

/// When home said what its ledger is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Word {
    /// In answer to a request that was sent then, by this process's clock. Sent after the present plan became known, it is
    /// later than that; home's own clock may have been set back.
    Sent(Micros),
    /// In answer to a step that was taken from this plan: good if it is still the one that is known.
    InsteadOf(GrantId),
}

impl Entry {
    /// Of a key whose home shard had these counts, or is new. One that is not tracked takes no leases: nothing would bound how many do.
    pub(super) fn new(
        limit: &SharedLimit,
        key: &[u8],
        owner: u64,
        counts: Option<Arc<Counts>>,
        is_tracked: bool,
    ) -> Self {
        let home = home_slot(&limit.name, key);
        let defined = limit.defined();
        let counts = counts.unwrap_or_else(|| limit.counts(Meter::default()));
        let before = (&[][..], vec![(home, counts)]);
        let view = View::new(limit, (key, home), defined.alone, defined.ledger.clone(), before);
        Self::of(limit, key, owner, home, view, is_tracked)
    }

    /// Of a key that is known to have this plan.
    pub(super) fn of(limit: &SharedLimit, key: &[u8], owner: u64, home: Slot, view: View, is_tracked: bool) -> Self {
        Self {
            key: key.into(),
            owner,
            home,
            view: ArcSwap::from_pointee(view),
            replacing: Mutex::default(),
            turns: Turns::new(),
            asked: AtomicU64::new(0),
            home_time: AtomicU64::new(0),
            outlook: Outlook::default(),
            tally: OnceLock::new(),
            waits: Waits::default(),
            purse: limit.leasing.as_ref().filter(|_| is_tracked).map(|_| Box::new(Purse::new())),
            escrow: tokio::sync::Mutex::default(),
            next_step: AtomicU64::new(0),
            heat: Heat::new(),
            planned_for: AtomicU64::new(0),
            is_listed: AtomicBool::new(false),
            is_found: AtomicBool::new(false),
        }
    }

    pub(super) fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    /// The same for a moment: not to be held while anything is waited for.
    #[inline]
    pub(super) fn load(&self) -> arc_swap::Guard<Arc<View>> {
        self.view.load()
    }

    /// Whether it has a plan, or a limit of its own. Who knows of one can tell home again what it forgot.
    pub(super) fn has_plan(&self) -> bool {
        let view = self.view.load();
        view.is_split() || view.ledger.wanted().revision >= SET_KEY
    }

    /// Whether its plan can be [packed](Self::pack) with nothing lost: all of its shares are where they should be, every shard answers
    /// and owes or is owed nothing, and nobody watches how far it is exceeded.
    pub(super) fn is_plain(&self, now: Micros) -> bool {
        let view = self.view.load();
        !view.is_moving()
            && self.tally.get().is_none()
            && !view.counts.iter().any(|(_, counts)| counts.is_in_use(now))
            && !view.lanes.iter().any(|lane| lane.has_kept())
    }

    /// Whether its shares were moved, or could not be, so lately that the next attempt has to wait.
    pub(super) fn is_to_wait(&self, now: Micros) -> bool {
        now.saturating_sub(self.next_step.load(Ordering::Relaxed)) < PAUSE
    }

    /// What an idle key goes by without its shard: all of its counts while it does not answer, what it granted lately else.
    pub(super) fn lately(&self, now: Micros) -> Result<Arc<Counts>, Meter> {
        let view = self.view.load();
        let counts = &view.home().counts;
        if counts.is_in_use(now) { Ok(Arc::clone(counts)) } else { Err(counts.fallback.lately()) }
    }

    /// Whether something was admitted that a shard was not charged yet.
    pub(super) fn owes(&self) -> bool {
        self.view.load().counts.iter().any(|(_, counts)| counts.fallback.owes())
    }

    /// Whether a shard has to be charged or given something, also if no call comes; and whether that can be tried now.
    pub(super) fn is_behind(&self, now: Micros) -> Option<bool> {
        self.debts_come_home();
        let view = self.view.load();
        let mut behind = view.lanes.iter().filter(|lane| lane.is_behind()).peekable();
        behind.peek()?;
        Some(behind.any(|lane| lane.counts.health.is_worth_a_try(now)))
    }

    /// What is owed to a shard that the plan has no more is home's.
    pub(super) fn debts_come_home(&self) {
        let view = self.view.load();
        for (_, counts) in view.counts.iter().filter(|(slot, _)| view.lanes.iter().all(|lane| lane.slot != *slot)) {
            view.home().counts.fallback.owe(counts.fallback.take_owed());
        }
    }

    /// Whether something goes back that nobody waits for, or has to.
    pub(super) fn is_returning(&self) -> bool {
        self.view.load().lanes.iter().any(|lane| lane.is_returning())
    }

    /// Whether something is on its way back to a shard.
    pub(super) fn is_giving_back(&self) -> bool {
        self.view.load().lanes.iter().any(|lane| lane.is_giving_back())
    }

    /// At the end: what is lost of it.
    pub(super) fn write_off(&self) -> Lost {
        let view = self.view.load();
        let held = self.purse.iter().flat_map(|purse| purse.take_back(None)).map(|lease| lease.charge.permits);
        let kept = view.lanes.iter().map(|lane| lane.write_off());
        let owed = view.counts.iter().map(|(_, counts)| counts.fallback.take_owed());
        Lost { unreturned: held.sum::<u64>() + kept.sum::<u64>(), uncharged: owed.sum() }
    }

    /// What is told of its admissions; `begin` may have it told of from now on.
    pub(super) fn tally(&self, begin: impl FnOnce() -> Option<Tally>) -> Option<&Tally> {
        if self.tally.get().is_none()
            && let Some(tally) = begin()
        {
            let _ = self.tally.set(Box::new(tally));
        }
        self.tally.get().map(Box::as_ref)
    }

    /// Takes over what was kept of it while it was idle.
    pub(super) fn take_over(&self, now: Micros, shut: Shut) {
        let view = self.view.load();
        if now < shut.holds {
            view.lanes.iter().for_each(|lane| lane.ceiling.shut(&lane.share, now, shut));
            self.outlook.new_at.store(shut.opens_at, Ordering::Relaxed);
            self.outlook.opens_at.store(shut.opens_at, Ordering::Relaxed);
            self.outlook.shut_until.store(shut.holds, Ordering::Relaxed);
        }
    }

    /// A shard has answered: what that means for all calls of the key. `ceilings`: whether answers count until the next one.
    pub(super) fn look_out(&self, facts: &StoreFacts, now: Micros, ceilings: bool) {
        self.outlook.remaining.store(facts.remaining, Ordering::Relaxed);
        self.outlook.new_at.store(now + facts.reset_after, Ordering::Relaxed);
        self.outlook.part.store(facts.part, Ordering::Relaxed);
        let shut = || if ceilings { self.view.load().shut(now) } else { Shut::default() };
        let mut known = shut();
        loop {
            self.outlook.opens_at.store(known.opens_at, Ordering::Relaxed);
            self.outlook.shut_until.store(known.holds, Ordering::Relaxed);
            // Another shard may have answered since, or got something back, and said so before this did.
            fence(Ordering::SeqCst);
            let by_now = shut();
            if by_now.holds >= known.holds && by_now.opens_at >= known.opens_at {
                return;
            }
            known = by_now;
        }
    }

    /// What is left of the key, and how long until it is as new, as of the last answer.
    #[inline]
    pub(super) fn outlook(&self, now: Micros, decided_by: DecidedBy) -> StoreFacts {
        let Outlook { remaining, new_at, part, .. } = &self.outlook;
        StoreFacts {
            remaining: remaining.load(Ordering::Relaxed),
            reset_after: new_at.load(Ordering::Relaxed).saturating_sub(now),
            exact: false,
            decided_by,
            part: part.load(Ordering::Relaxed),
        }
    }

    /// How long until any shard could grant anything; none if one could, or it is time to look.
    #[inline]
    pub(super) fn opens_in(&self, now: Micros) -> Option<Micros> {
        let shut_until = self.outlook.shut_until.load(Ordering::Relaxed);
        if shut_until <= now {
            return None;
        }
        Some(self.outlook.opens_at.load(Ordering::Relaxed).max(shut_until) - now)
    }

    /// Something came back to a shard that its last answer does not tell of.
    pub(super) fn open(&self, lane: &Lane) {
        lane.ceiling.clear();
        fence(Ordering::SeqCst);
        self.outlook.shut_until.store(0, Ordering::Relaxed);
    }

    /// What is kept of it while it is idle, and counts until `until` at the most.
    pub(super) fn shut(&self, now: Micros, until: Micros) -> Shut {
        let shut = self.view.load().shut(now);
        Shut { holds: shut.holds.min(until), ..shut }
    }

    /// What this process had of each shard, also of those that the present plan has no more.
    pub(crate) fn counts(&self) -> Vec<ShardCounts> {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let of = |(slot, counts): &(Slot, Arc<Counts>)| ShardCounts {
            slot: *slot,
            runs: read(&counts.runs),
            allowed: read(&counts.allowed),
            denied: read(&counts.denied),
        };
        self.view().counts.iter().map(of).collect()
    }

    pub(super) fn pass_turn(&self, turn: u64, over: Over) {
        self.turns.pass(turn, over);
    }

    #[inline]
    pub(super) fn next_turn(&self, view: &View, now: Micros) -> u64 {
        self.turns.next(view.stay, now)
    }

    /// Home answered a request that was sent at `asked`.
    pub(super) fn heard(&self, asked: Micros, home_time: Micros) {
        self.asked.fetch_max(asked, Ordering::Relaxed);
        self.home_time.fetch_max(home_time, Ordering::Relaxed);
    }

    /// An id for the next change of the ledger in `view`.
    pub(super) fn next_id(&self, view: &View) -> GrantId {
        view.id.after(self.home_time.load(Ordering::Relaxed) / 1_000, rand::random())
    }

    /// How long ago home was last asked.
    pub(super) fn silence(&self, now: Micros) -> Micros {
        now.saturating_sub(self.asked.load(Ordering::Relaxed))
    }

    /// Whether home was ever asked.
    pub(super) fn was_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed) > 0
    }

    /// Whether home was not asked for so long; says so to one caller only.
    pub(super) fn is_due(&self, now: Micros, silence: Micros) -> bool {
        is_due(&self.asked, now, silence)
    }

    pub(super) fn is_hot(&self) -> bool {
        self.heat.is_hot()
    }

    /// A shard has said how much it has to do: whether the key is hot follows from what all of them have.
    pub(super) fn feel(&self, limit: &SharedLimit) {
        let view = self.view.load();
        if view.ledger.definition.shards != Shards::Auto {
            return;
        }
        let loads = view.lanes.iter().map(|lane| lane.load.load(Ordering::Relaxed));
        self.heat.feel(loads, limit.hot, view.since, limit.clock.now());
    }

    /// Whether home was heard lately enough that it can't have come to its end by itself.
    pub(super) fn heard_lately(&self, now: Micros) -> bool {
        self.silence(now) < LEAST_LIFE * 1_000
    }

    /// Whether a later ledger was known already when the request was sent that home answered with this one: then home has
    /// forgotten it. Of one that was heard of long ago nobody can say that: home may have ended, and begun anew.
    pub(super) fn is_later(&self, id: GrantId, sent: Micros, now: Micros) -> bool {
        let view = self.view.load();
        news(view.id, id, sent >= view.since) == News::Forgot && self.heard_lately(now)
    }

    /// Home is no more: the key is as new.
    pub(super) fn forget(&self, limit: &SharedLimit, known: GrantId) {
        let defined = limit.defined();
        self.adopt(limit, defined.alone, defined.ledger.clone(), Word::InsteadOf(known));
    }

    /// Takes home's word for the plan, unless a later one is known.
    pub(super) fn adopt(&self, limit: &SharedLimit, id: GrantId, ledger: Ledger, word: Word) {
        let _one = lock(&self.replacing);
        let known = self.view.load();
        let is_after = match word {
            Word::Sent(sent) => sent >= known.since,
            Word::InsteadOf(before) => known.id == before,
        };
        match news(known.id, id, is_after) {
            News::Same | News::Old => return,
            // One that is forgotten is told again before that, unless it was heard of so long ago that home has begun anew.
            News::Later | News::Forgot => {}
        }
        limit.compare(self, &ledger);
        // Whoever split it found it hot, and whoever brought it home found it cool.
        if ledger.definition.shards == Shards::Auto && known.ledger.grants.is_empty() != ledger.grants.is_empty() {
            self.heat.moved(!ledger.grants.is_empty(), limit.clock.now());
        }
        crate::observe::planned(&limit.name, &self.key, id, ledger.grants.len() + 1);
        let next = Arc::new(known.next(limit, (&self.key, self.home), id, ledger));
        self.view.store(Arc::clone(&next));
        let no_room = next.home().keep(known.home().take_kept());
        // What waited for a share that is no more is void.
        let goes_on = |lane: &Arc<Lane>| next.lanes.iter().any(|other| Arc::ptr_eq(lane, other));
        let void = known.lanes.iter().skip(1).filter(|lane| !goes_on(lane)).map(|lane| sum(&lane.take_kept()));
        limit.lose(&self.key, Lost::unreturned(no_room + void.sum::<u64>()));
        fence(Ordering::SeqCst);
        self.outlook.shut_until.store(0, Ordering::Relaxed);
    }

    /// See [`is_record`].
    pub(super) fn is_record(&self) -> bool {
        is_record(&self.key)
    }

    /// See [`lives`].
    pub(super) fn lives(&self, ledger: &Ledger, timeout: Duration) -> (u64, u64) {
        lives(&self.key, ledger, timeout)
    }
}
