//! A bucket that keeps room for what is leased from it: what it has and what is held of it is never more than the burst, whatever
//! comes back when.
//!
//! It is told what is leased and what comes back unspent, and not what is spent: so a lease counts from its charge for as long as it may
//! be out, and up to once more as long.
//!
//! The script `lua/bucket.lua` does the same; this is its oracle.

use super::batch::{Batch, Header, NEVER, UNSPENT, Verdict, steady};
use super::bucket::Bucket;
use crate::clock::Micros;
use crate::limit::BucketShare;

/// Permits that may be held in processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Leased {
    /// For how long at the most.
    pub held_for: Micros,
    /// Since when they are counted.
    pub counted: Micros,
    pub lately: u64,
    /// In as long a time before that.
    pub before: u64,
}

impl Leased {
    fn all(&self) -> u64 {
        self.lately + self.before
    }

    /// What the bucket may have beside them.
    fn room(&self, share: &BucketShare) -> i64 {
        (share.capacity - self.all() as i64 * share.cost).max(0)
    }

    /// How many of these permits come back. Where a lease is forgotten already, its place was given to what came back since: then it
    /// is void. Those before go first: so no other is forgotten too early, whichever it was.
    fn give_back(&mut self, permits: u64, charged: Micros) -> u64 {
        if charged + self.held_for < self.counted {
            return 0;
        }
        let older = permits.min(self.before);
        let newer = (permits - older).min(self.lately);
        self.before -= older;
        self.lately -= newer;
        older + newer
    }
}

pub(crate) fn take(
    state: Option<(Bucket, Leased)>,
    share: &BucketShare,
    now: Micros,
    batch: &Batch<'_>,
    verdicts: &mut [Verdict],
) -> ((Bucket, Leased), Header) {
    let fresh = (Bucket { level: share.capacity, seen: now }, Leased::default());
    let (mut bucket, mut leased) = state.unwrap_or(fresh);
    if batch.reset {
        bucket.seen = now;
    }
    let at = steady(now, bucket.seen, share.refill);
    while leased.all() > 0 && at >= leased.counted + leased.held_for {
        let edge = leased.counted + leased.held_for;
        if edge > bucket.seen {
            bucket = bucket.refill(share, leased.room(share), edge);
        }
        bucket.level = bucket.level.min(leased.room(share));
        leased = Leased { counted: edge, lately: 0, before: leased.lately, ..leased };
    }
    leased.counted = leased.counted.min(at);
    bucket = bucket.refill(share, leased.room(share), now);
    if batch.reset {
        bucket.level = leased.room(share);
    }
    for refund in batch.refunds {
        let mut refund = *refund;
        if refund.line == UNSPENT {
            refund.permits = leased.give_back(refund.permits, refund.at);
        }
        bucket.give_back(share, leased.room(share), &refund);
    }
    bucket.owe(share, batch.debt);
    let last = batch.asks.len().wrapping_sub(1);
    for (index, (ask, verdict)) in batch.asks.iter().zip(verdicts).enumerate() {
        *verdict = bucket.grant(share, ask);
        // There is no room for so many until some leases are forgotten.
        if verdict.lack > 0 && verdict.lack != NEVER && ask.permits as i64 * share.cost > leased.room(share) {
            let edge = (leased.counted + leased.held_for).saturating_sub(bucket.seen);
            verdict.lack = verdict.lack.max(share.rate * edge as i64);
        }
        if index == last && batch.held_for > 0 && verdict.granted > 0 {
            leased.held_for = leased.held_for.max(batch.held_for);
            if leased.all() == 0 {
                leased.counted = bucket.seen;
            }
            leased.lately += verdict.granted;
        }
    }
    let header = Header { now, at: bucket.seen, level: bucket.level, missing: share.capacity - bucket.level };
    (if leased.all() > 0 { (bucket, leased) } else { (bucket, Leased::default()) }, header)
}
