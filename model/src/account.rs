//! The books: what was admitted, what there is to spend, and what there may be.
//!
//! Whatever somebody could still spend is counted where it is, so that the sum is kept by every step: a mistake shows at
//! the step that makes it, and not only when somebody has spent what it made.

use super::client::Client;
use super::message::Request;
use super::server::{Held, Home, SubKey};
use super::setup::{Setup, TICK};
use super::world::World;
use crate::escrow::Report;
use crate::limit::Limit;
use crate::wire::{Grant, GrantId, Ledger, Status};

/// Parts of a permit: what a permit costs in any share divides it, where periods are 2 or 3 ms.
pub(super) const PERMIT: i64 = 6_000;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Account {
    pub admitted: i64,
    /// What the limit allows until now.
    pub budget: i64,
    /// What faults may have cost until now, as documented.
    pub allowed: i64,
    /// Whether a server has forgotten something. Only then may there be shares that home knows nothing of.
    pub forgot: bool,
}

/// What comes back in a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rates {
    /// To home and to all shares that its ledger has.
    pub in_ledger: i64,
    /// What that may be.
    pub limit: i64,
    /// To shares that home knows nothing of, and somebody else does.
    pub forgotten: i64,
}

impl Account {
    pub(super) fn new(setup: &Setup) -> Self {
        Self { admitted: 0, budget: setup.limit(0).burst() as i64 * PERMIT, allowed: 0, forgot: false }
    }

    pub(super) fn admit(&mut self, permits: u64) {
        self.admitted += permits as i64 * PERMIT;
    }

    /// What was granted was of no use to anybody, and goes back.
    pub(super) fn refund(&mut self, permits: u64) {
        self.admitted -= permits as i64 * PERMIT;
    }

    pub(super) fn allow(&mut self, permits: u64) {
        self.allowed += permits as i64 * PERMIT;
    }

    /// There is `more` to spend, of which so many permits are allowed.
    pub(super) fn allow_more(&mut self, more: i64, permits: u64) {
        self.allowed += more.clamp(0, permits as i64 * PERMIT);
    }

    pub(super) fn tick(&mut self, rates: Rates) {
        self.budget += rates.limit;
        self.allowed += if self.forgot { rates.forgotten } else { 0 };
    }
}

fn level(held: &Held) -> i64 {
    assert_eq!(PERMIT % held.share.cost, 0, "{held:?}");
    held.bucket.level * (PERMIT / held.share.cost)
}

fn rate(held: &Held) -> i64 {
    held.share.rate * TICK as i64 * (PERMIT / held.share.cost)
}

fn limit_rate(limit: &Limit) -> i64 {
    limit.permits() as i64 * PERMIT * TICK as i64 / limit.period().as_micros() as i64
}

fn grant_of(ledger: &Ledger, id: GrantId) -> Option<&Grant> {
    ledger.grants.iter().find(|grant| grant.id == id)
}

impl World {
    /// The limit with the largest burst that anybody was told.
    pub(super) fn largest(&self, setup: &Setup) -> Limit {
        let told = self.clients.iter().map(|client| setup.limit(client.told));
        told.chain([setup.limit(0)]).max_by_key(Limit::burst).expect("at least the first")
    }

    fn home_ledger(&self) -> Option<&Ledger> {
        self.home.key.as_ref().map(|home| &home.known.ledger)
    }

    /// Every ledger that somebody knows or is about to write.
    fn ledgers(&self) -> impl Iterator<Item = &Ledger> {
        let written = self.flying.iter().filter_map(|message| match &message.request {
            Request::Home(run) => Some(&run.write.ledger),
            _ => None,
        });
        self.home_ledger().into_iter().chain(self.clients.iter().map(|client| &client.view.ledger)).chain(written)
    }

    fn is_known(&self, id: GrantId) -> bool {
        self.ledgers().any(|ledger| grant_of(ledger, id).is_some())
    }

    pub(super) fn rates(&self, setup: &Setup) -> Rates {
        let Some(home) = &self.home.key else {
            let limit = limit_rate(&self.largest(setup));
            return Rates { in_ledger: 0, limit, forgotten: 0 };
        };
        let mut rates = Rates { in_ledger: rate(&home.held), limit: 0, forgotten: 0 };
        let mut recalled = 0;
        for shard in &self.shards {
            let Some(SubKey::Lent(id, held)) = &shard.key else { continue };
            match grant_of(&home.known.ledger, *id) {
                Some(grant) => {
                    rates.in_ledger += rate(held);
                    recalled += if grant.status.is_recalled() { rate(held) } else { 0 };
                }
                None if self.is_known(*id) => rates.forgotten += rate(held),
                None => {}
            }
        }
        // What is left of a larger limit goes on at its rate until it is back, and home stands still meanwhile.
        rates.limit = limit_rate(home.known.ledger.limit()).max(recalled);
        rates
    }

    /// All that anybody could still spend, or that is on its way back to where somebody could.
    pub(super) fn spendable(&self, setup: &Setup) -> i64 {
        let refunds = self.flying.iter().map(|message| match message.request {
            Request::Refund { permits, .. } => permits as i64 * PERMIT,
            _ => 0,
        });
        self.held(setup) + refunds.sum::<i64>()
    }

    /// The most that there may be to spend at once: the burst of the limit in force. What is left of a larger one is more for as
    /// long as it is out, and home has nothing meanwhile.
    pub(super) fn holds(&self, setup: &Setup) -> i64 {
        let most = match self.home_ledger() {
            None => self.largest(setup).burst(),
            Some(ledger) => ledger.limit().burst().max(ledger.grants.iter().map(|grant| grant.burst).sum()),
        };
        most as i64 * PERMIT
    }

    /// What there is in shares that home knows nothing of any more, and somebody else does.
    pub(super) fn forgotten(&self) -> i64 {
        let lent = self.shards.iter().filter_map(|shard| match &shard.key {
            Some(SubKey::Lent(id, held)) => Some((*id, held)),
            _ => None,
        });
        let is_lent = |id| self.home_ledger().is_some_and(|ledger| grant_of(ledger, id).is_some());
        lent.filter(|(id, _)| !is_lent(*id) && self.is_known(*id)).map(|(_, held)| level(held)).sum()
    }

    /// All that anybody could spend now.
    pub(super) fn held(&self, setup: &Setup) -> i64 {
        // A home that is not there can be made anew by whoever knows nothing of it.
        let home = self.home.key.as_ref().map(|home| level(&home.held.at(Setup::home_clock(self.now))));
        let home = home.unwrap_or_else(|| self.largest(setup).burst() as i64 * PERMIT);
        home + (1..self.shards.len()).map(|slot| self.spendable_at(setup, slot)).sum::<i64>()
    }

    fn spendable_at(&self, setup: &Setup, slot: usize) -> i64 {
        let now = setup.clock(slot, self.now);
        let there = match &self.shards[slot].key {
            Some(SubKey::Lent(id, held)) if self.is_known(*id) => level(&held.at(now)),
            _ => 0,
        };
        there + self.to_be_installed(setup, slot).iter().map(|(_, level)| level).sum::<i64>() + self.to_return(slot)
    }

    /// What can be installed there yet.
    fn to_be_installed(&self, setup: &Setup, slot: usize) -> Vec<(GrantId, i64)> {
        let key = self.shards[slot].key;
        let now = setup.clock(slot, self.now);
        let mut states: Vec<(GrantId, i64)> = Vec::new();
        let mut consider = |id: GrantId, state: &[u8], not_after| {
            let is_free = key.is_none_or(|key| key.id().stamp < id.stamp);
            let is_new = states.iter().all(|(other, _)| *other != id);
            if now <= not_after && is_free && is_new && !state.is_empty() && self.is_known(id) {
                states.push((id, level(&Held::unpack(state).1)));
            }
        };
        for grant in self.ledgers().flat_map(|ledger| &ledger.grants) {
            if let (Status::Pending { not_after, state }, true) =
                (&grant.status, usize::from(grant.slot.number()) == slot)
            {
                consider(grant.id, state, *not_after);
            }
        }
        for message in self.flying.iter() {
            if let Request::Install { slot: to, id, state, not_after } = &message.request
                && *to == slot
            {
                consider(*id, state, *not_after);
            }
        }
        states
    }

    /// Whether a share that is there, or was, could be installed again if it were not there any more.
    pub(super) fn may_be_installed(&self, setup: &Setup, slot: usize) -> bool {
        let mut without = self.clone();
        without.shards[slot].key = None;
        !without.to_be_installed(setup, slot).is_empty()
    }

    /// What was closed there and has not come home.
    fn to_return(&self, slot: usize) -> i64 {
        let grants = self.home_ledger().into_iter().flat_map(|ledger| &ledger.grants);
        let grants = grants.filter(|grant| usize::from(grant.slot.number()) == slot);
        grants.map(|grant| self.left_of(slot, grant.id)).sum()
    }

    fn left_of(&self, slot: usize, id: GrantId) -> i64 {
        let of = |bytes: &[u8]| match bytes {
            [] => None,
            bytes => Some(Held::unpack(bytes)).filter(|(its, _)| *its == id).map(|(_, held)| level(&held)),
        };
        let tombstone = match &self.shards[slot].key {
            Some(SubKey::Tombstone(its, held)) if *its == id => held.as_ref().map(level),
            _ => None,
        };
        let heard = self.clients.iter().flat_map(Client::heard_reports).filter_map(|report| match report {
            Report::Closed(left) => of(left),
            _ => None,
        });
        let home = self.home.key.as_ref().map(|home| home.known.id);
        let written = self.flying.iter().filter_map(|message| match &message.request {
            Request::Home(run) if run.expected == home => run.write.back.iter().find_map(|(_, left)| of(left)),
            _ => None,
        });
        tombstone.into_iter().chain(heard).chain(written).max().unwrap_or(0)
    }

    /// A replica has taken over that has home as it was `before`. What its last write had taken from it may be spent again:
    /// the bursts of the shares that it lent, or the permits of calls; and it may have taken over another limit.
    pub(super) fn allow_lost(&mut self, setup: &Setup, before: Option<&Home>) {
        let (Some(home), Some(before)) = (&self.home.key, before) else {
            self.account.allow(self.largest(setup).burst());
            return;
        };
        if home.known.id == before.known.id {
            let now = Setup::home_clock(self.now);
            self.account.allowed += (level(&before.held.at(now)) - level(&home.held.at(now))).max(0);
            return;
        }
        let lost = |grant: &&Grant| grant_of(&before.known.ledger, grant.id).is_none();
        let burst = home.known.ledger.grants.iter().filter(lost).map(|grant| grant.burst).sum();
        // It knows nothing of a limit that was lowered: since then it has refilled by the one before.
        let faster = limit_rate(before.known.ledger.limit()) - limit_rate(home.known.ledger.limit());
        let refilled = faster.max(0) * i64::from(self.now - self.home.written);
        self.account.allow(burst);
        self.account.allowed += refilled;
    }

    /// Home was `before`, and has forgotten that shares are in use. Those that are gone may be installed once more, as long as that
    /// may be.
    pub(super) fn allow_installed_again(&mut self, setup: &Setup, before: Option<&Home>) {
        let live = before.into_iter().flat_map(|home| &home.known.ledger.grants);
        for grant in live.filter(|grant| grant.status == Status::Live) {
            let slot = usize::from(grant.slot.number());
            if self.to_be_installed(setup, slot).iter().any(|(id, _)| *id == grant.id) {
                self.account.allow(grant.burst);
            }
        }
    }
}
