//! Which shares a key should have lent, given the slots of its shards.

use crate::key::Slot;
use crate::limit::{Limit, Share, gcd};
use crate::plan::{cost_of, split};
use crate::wire::{Grant, Ledger};

/// A share that home should have lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub slot: Slot,
    pub permits: u64,
    pub burst: u64,
}

impl Target {
    pub(super) fn is_served_by(&self, grant: &Grant) -> bool {
        (self.slot, self.permits, self.burst) == (grant.slot, grant.permits, grant.burst)
    }
}

/// What home should keep, and what it should have lent, where the key's shards are to lie on `slots`, home's first. Shares
/// differ by a permit at the most; whoever has one of the right size keeps it.
pub(super) fn targets(ledger: &Ledger, slots: &[Slot]) -> ((u64, u64), Vec<Target>) {
    let mut sizes = split(ledger.limit(), slots.len());
    let home = sizes.remove(0);
    let mut targets: Vec<Option<Target>> = slots[1..]
        .iter()
        .map(|slot| {
            let grant = ledger.grants.iter().find(|grant| grant.slot == *slot && !grant.status.is_recalled())?;
            let index = sizes.iter().position(|size| *size == (grant.permits, grant.burst))?;
            sizes.remove(index);
            Some(Target { slot: *slot, permits: grant.permits, burst: grant.burst })
        })
        .collect();
    let mut left = sizes.into_iter();
    for (target, slot) in targets.iter_mut().zip(&slots[1..]) {
        if target.is_none() {
            *target = left.next().map(|(permits, burst)| Target { slot: *slot, permits, burst });
        }
    }
    (home, targets.into_iter().flatten().collect())
}

/// What so many permits a period of one limit are in a period of another, rounded up.
pub(super) fn permits_under(permits: u64, of: &Limit, under: &Limit) -> u64 {
    let permits = (u128::from(permits) * under.period().as_micros()).div_ceil(of.period().as_micros());
    u64::try_from(permits.max(1)).unwrap_or(u64::MAX)
}

/// Sees to it that home and all that it is about to lend can be computed exactly: where that can't be, nothing is lent until
/// more is back. `now` is what a permit costs at home, if that is of the same limit.
pub(super) fn settle_cost(ledger: &mut Ledger, now: Option<i64>, fresh: &mut Vec<Target>) {
    let limit = *ledger.limit();
    let (home, _) = ledger.home_parts();
    let kept = home - fresh.iter().map(|target| target.permits).sum::<u64>();
    if let Some(cost) = cost_with(&limit, now, kept, fresh) {
        ledger.cost = cost;
        return;
    }
    fresh.clear();
    ledger.cost = cost_with(&limit, now, home, &[]).unwrap_or_else(|| {
        // Only beside what is left of another limit: home waits for that.
        if let Some(grant) = ledger.grants.iter_mut().find(|grant| grant.status.is_recalled()) {
            grant.permits = grant.permits.saturating_add(home);
        }
        Share::whole(&limit).cost()
    });
}

/// The units that a permit is to cost at home, where it keeps so many permits a period and lends `fresh` more: if that can be,
/// a multiple of what it costs now, so that not even a part of a permit is lost.
fn cost_with(limit: &Limit, now: Option<i64>, kept: u64, fresh: &[Target]) -> Option<i64> {
    let needed = cost_of(limit, fresh.iter().map(|target| target.permits).chain([kept]));
    let both = now.map(|now| needed / gcd(needed as u64, now as u64) as i64 * now);
    both.into_iter().chain([needed]).find(|cost| Share::fits(limit, *cost))
}
