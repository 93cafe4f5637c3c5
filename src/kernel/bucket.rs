//! Token bucket, leaky bucket and pacing queue.
//!
//! The state is how many units are left and when that was. For a meter, what is missing is its level. For a
//! queue, what is missing is the line: a call that is let in waits until the line ahead of it has drained.

use super::batch::{Ask, Batch, Header, NEVER, Refund, Verdict, steady};
use crate::clock::Micros;
use crate::limit::BucketShare;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bucket {
    pub level: i64,
    pub seen: Micros,
}

#[inline(always)]
pub(crate) fn take(
    state: Option<Bucket>,
    share: &BucketShare,
    now: Micros,
    batch: &Batch<'_>,
    verdicts: &mut [Verdict],
) -> (Bucket, Header) {
    let mut bucket = match state {
        Some(bucket) if !batch.reset => bucket.refill(share, share.capacity, now),
        _ => Bucket { level: share.capacity, seen: now },
    };
    for refund in batch.refunds {
        bucket.give_back(share, share.capacity, refund);
    }
    bucket.owe(share, batch.debt);
    for (ask, verdict) in batch.asks.iter().zip(verdicts) {
        *verdict = bucket.grant(share, ask);
    }
    let header = Header { now, at: bucket.seen, level: bucket.level, missing: share.capacity - bucket.level };
    (bucket, header)
}

impl Bucket {
    /// What comes back until `now`, as far as there is room.
    #[inline(always)]
    pub(super) fn refill(self, share: &BucketShare, room: i64, now: Micros) -> Self {
        let seen = steady(now, self.seen, share.refill);
        // Twice a refill pays a full debt and fills the bucket; clamped, so that the product stays exact.
        let elapsed = seen.saturating_sub(self.seen).min(2 * share.refill) as i64;
        Self { level: (self.level + share.rate * elapsed).min(room), seen }
    }

    pub(super) fn give_back(&mut self, share: &BucketShare, room: i64, refund: &Refund) {
        let units = refund.permits.min(share.burst) as i64 * share.cost;
        if !share.paced {
            self.level += units.min(room - self.level).max(0);
            return;
        }
        let line = share.capacity - self.level;
        // Only the tail can leave a line: behind any other call, the next one is promised its turn already.
        let elapsed = self.seen.saturating_sub(refund.at);
        if elapsed <= 2 * share.refill && refund.line - share.rate * elapsed as i64 == line {
            self.level += units.min(line);
        }
    }

    /// More than a full bucket of debt on top of a full bucket can't be held: clamped before it can overflow.
    #[inline(always)]
    pub(super) fn owe(&mut self, share: &BucketShare, debt: u64) {
        let debt = debt.min(2 * share.burst) as i64 * share.cost;
        self.level = (self.level - debt).max(-share.capacity).min(self.level);
    }

    #[inline(always)]
    pub(super) fn grant(&mut self, share: &BucketShare, ask: &Ask) -> Verdict {
        if ask.permits > share.burst {
            return Verdict { granted: 0, lack: NEVER, line: 0 };
        }
        let need = ask.permits as i64 * share.cost;
        let line = share.capacity - self.level;
        let granted = match ask.count {
            _ if self.level < need => 0,
            0 | 1 => ask.count, // the common case is spared the division
            count => count.min((self.level / need) as u64),
        };
        self.level -= granted as i64 * need;
        let lack = if granted == ask.count && granted > 0 { 0 } else { (need - self.level).max(0) };
        Verdict { granted, lack, line }
    }
}
