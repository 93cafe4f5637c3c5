//! What this process decides by itself: no I/O, no lock that callers share, nothing allocated.

use super::SharedLimit;
use super::call::SILENCE;
use super::entry::Entry;
use super::job::Work;
use super::purse::Purse;
use super::view::View;
use crate::clock::Micros;
use crate::decision::{DecidedBy, Decision, Receipt, StoreFacts};
use crate::error::Error;
use crate::sync::Arc;

impl SharedLimit {
    /// None: only the store can tell.
    #[inline(never)]
    pub(crate) fn try_acquire(self: &Arc<Self>, entry: &Arc<Entry>, permits: u64) -> Result<Option<Decision>, Error> {
        // Before anything else: there it costs four instructions, and later on ten.
        if !entry.waits.is_empty() {
            return self.try_behind(entry, permits);
        }
        self.try_without_line(entry, permits)
    }

    #[inline(always)]
    fn try_without_line(self: &Arc<Self>, entry: &Arc<Entry>, permits: u64) -> Result<Option<Decision>, Error> {
        self.check_permits(permits)?;
        let now = self.clock.now();
        match self.in_process(entry, permits, now) {
            Some(decision) => Ok(Some(decision)),
            None => self.look_at_shards(entry, permits, now),
        }
    }

    #[cold]
    #[inline(never)]
    fn try_behind(self: &Arc<Self>, entry: &Arc<Entry>, permits: u64) -> Result<Option<Decision>, Error> {
        self.check_permits(permits)?;
        match self.behind(entry, permits, self.clock.now()) {
            Some(denied) => Ok(Some(denied)),
            None => self.try_without_line(entry, permits),
        }
    }

    /// A denial that only the shards together can tell, or what the failure policy says if none of them answers.
    #[inline(never)]
    fn look_at_shards(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        permits: u64,
        now: Micros,
    ) -> Result<Option<Decision>, Error> {
        // Nobody is charged any more for what the policy would admit.
        self.engine.check()?;
        let view = entry.load();
        if let Some(sick) = view.lanes.iter().find(|lane| !lane.is_sick(now)).map_or(view.lanes.first(), |_| None) {
            self.try_again(entry, sick, now);
            return self.by_policy(entry, sick, permits, now, true, || sick.sick(now)).map(Some);
        }
        let denied = self.shut(entry, &view, permits, now);
        if denied.is_some() {
            self.hear_home(entry, now);
        }
        Ok(denied)
    }

    /// What can be told without a look at the shards: others wait already, a lease has permits, or no shard can have any.
    #[inline(always)]
    pub(super) fn at_once(self: &Arc<Self>, entry: &Arc<Entry>, permits: u64, now: Micros) -> Option<Decision> {
        if !entry.waits.is_empty()
            && let Some(denied) = self.behind(entry, permits, now)
        {
            return Some(denied);
        }
        self.in_process(entry, permits, now)
    }

    /// The same where nobody waits, or for the head of the line.
    #[inline(always)]
    pub(super) fn in_process(self: &Arc<Self>, entry: &Arc<Entry>, permits: u64, now: Micros) -> Option<Decision> {
        if let Some(purse) = &entry.purse
            && let Some(decision) = self.spend(entry, purse, permits, now)
        {
            self.hear_home(entry, now);
            return Some(decision);
        }
        // For more than one it takes longer: that the shards have to say.
        if permits == 1
            && let Some(wait) = entry.opens_in(now)
        {
            self.hear_home(entry, now);
            self.tell_denied(&entry.key, permits, now);
            return Some(Decision::denied_by_store(entry.outlook(now, DecidedBy::Ceiling), wait));
        }
        if let Some(purse) = &entry.purse {
            self.look_for(entry, purse, permits, now);
        }
        None
    }

    /// Permits were not found in a purse: it is to hold more, unless no shard has them either. Who is denied has used nothing.
    #[inline(never)]
    fn look_for(self: &Arc<Self>, entry: &Arc<Entry>, purse: &Purse, permits: u64, now: Micros) {
        if permits == 1 || self.shut(entry, &entry.load(), permits, now).is_none() {
            purse.miss(permits);
            self.refill(entry, purse);
        }
    }

    /// Who decides by what is known here has to hear from home once in a while: the plan, or the limit, may be another by now.
    #[inline(always)]
    fn hear_home(self: &Arc<Self>, entry: &Arc<Entry>, now: Micros) {
        // One that was idle knows for a second what it knew then.
        if entry.was_asked() && entry.is_due(now, SILENCE) {
            self.ask_home(entry);
        }
    }

    #[cold]
    fn ask_home(self: &Arc<Self>, entry: &Arc<Entry>) {
        let view = entry.view();
        if view.is_split() {
            return self.nudge(entry, view.home());
        }
        // It is the only one: a look does, and writes nothing.
        let due = self.clock.now() + self.timeout.as_micros() as Micros;
        drop(self.put_until(entry, view.home(), Work::Look, due));
    }

    /// An admission by permits that are held here.
    #[inline(always)]
    pub(super) fn spend(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        purse: &Purse,
        permits: u64,
        now: Micros,
    ) -> Option<Decision> {
        let spent = purse.spend(permits, now)?;
        if spent.is_low {
            self.refill(entry, purse);
        }
        let facts = entry.outlook(now, DecidedBy::Lease);
        Some(Decision::allowed_by_store(facts, 0, Receipt::of_shard(entry.owner, &spent.charge)))
    }

    /// A denial, if no shard can have so many permits.
    pub(super) fn shut(&self, entry: &Entry, view: &View, permits: u64, now: Micros) -> Option<Decision> {
        // What the whole limit does not hold, it may hold by now: home knows.
        if self.ceiling == 0 || permits > view.ledger.limit().burst() {
            return None;
        }
        let mut wait = Micros::MAX;
        let mut facts = StoreFacts { remaining: 0, reset_after: 0, ..entry.outlook(now, DecidedBy::Ceiling) };
        for lane in &view.lanes {
            let known = lane.ceiling.known();
            match lane.opens_in(&known, permits, now) {
                Some(0) => return None,
                // Those on their way may well be denied, so they do not count for how long it takes; unless it is all for their sake.
                Some(behind) => {
                    let alone = known.opens_in(&lane.share, permits, 0, now).filter(|wait| *wait > 0);
                    wait = wait.min(alone.unwrap_or(behind));
                }
                None => {}
            }
            facts.remaining += known.most(&lane.share, now);
            facts.reset_after = facts.reset_after.max(known.reset_after(now));
        }
        // More than any share holds: all shards together.
        if wait == Micros::MAX {
            wait = view.opens_together_in(permits, now).filter(|wait| *wait > 0)?;
        }
        self.tell_denied(&entry.key, permits, now);
        Some(Decision::denied_by_store(facts, wait))
    }
}
