//! Sliding window and sliding log: never more than so many permits in any window.
//!
//! Permits are counted in sub-windows aligned to the clock. A sub-window counts until even its last microsecond is
//! a whole window old, so the promise holds for any window, at the price of keeping a charge for up to one
//! sub-window longer. A log has sub-windows of 1 µs and pays nothing. Only sub-windows in which something was
//! charged are kept.

use std::collections::VecDeque;

use super::batch::{Ask, Batch, Header, NEVER, Refund, Verdict, steady};
use crate::clock::Micros;
use crate::limit::WindowShare;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SlidingWindow {
    /// Oldest first; starts rise strictly.
    pub parts: VecDeque<Part>,
    /// The sum of their permits.
    pub used: u64,
    /// The latest instant decided at: what has expired by then must not be missed by a clock that swings back.
    pub seen: Micros,
}

/// A sub-window in which permits were charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub start: Micros,
    pub permits: u64,
}

pub(crate) fn take(
    state: Option<SlidingWindow>,
    share: &WindowShare,
    now: Micros,
    batch: &Batch<'_>,
    verdicts: &mut [Verdict],
) -> (SlidingWindow, Header) {
    let mut window = state.filter(|_| !batch.reset).unwrap_or_default();
    let at = steady(now, window.seen, share.window);
    let current = at - at % share.step;
    window.seen = at;
    window.follow_clock(current);
    window.expire(share, at);
    for refund in batch.refunds {
        window.give_back(share, refund);
    }
    let most_debt = 2 * share.permits;
    window.charge(current, batch.debt.min(most_debt.saturating_sub(window.used)));

    for (ask, verdict) in batch.asks.iter().zip(verdicts) {
        *verdict = window.grant(share, ask, current, at);
    }
    let header = Header {
        now,
        at,
        level: share.permits as i64 - window.used as i64,
        missing: window.parts.back().map_or(0, |newest| (share.gone_at(newest.start) - at) as i64),
    };
    (window, header)
}

impl WindowShare {
    /// When the last microsecond of the sub-window is a whole window old.
    pub(super) fn gone_at(&self, start: Micros) -> Micros {
        start + self.step - 1 + self.window
    }
}

impl SlidingWindow {
    /// After a clock was set back for good: what lay ahead of it counts as charged now.
    pub(super) fn follow_clock(&mut self, current: Micros) {
        let mut ahead = 0;
        while let Some(newest) = self.parts.pop_back_if(|newest| newest.start > current) {
            ahead += newest.permits;
        }
        self.used -= ahead;
        self.charge(current, ahead);
    }

    /// Of each sub-window the larger charge.
    pub(crate) fn absorb(&mut self, other: Self) {
        let mut parts: Vec<Part> = self.parts.drain(..).chain(other.parts).collect();
        parts.sort_by_key(|part| part.start);
        for part in parts {
            match self.parts.back_mut() {
                Some(newest) if newest.start == part.start => newest.permits = newest.permits.max(part.permits),
                _ => self.parts.push_back(part),
            }
        }
        self.used = self.parts.iter().map(|part| part.permits).sum();
        self.seen = self.seen.max(other.seen);
    }

    /// Adds a charge of any age.
    #[cfg(all(any(test, model), feature = "redis"))]
    pub(super) fn insert(&mut self, part: Part) {
        self.used += part.permits;
        match self.parts.binary_search_by_key(&part.start, |part| part.start) {
            Ok(index) => self.parts[index].permits += part.permits,
            Err(index) => self.parts.insert(index, part),
        }
    }

    fn expire(&mut self, share: &WindowShare, at: Micros) {
        while let Some(oldest) = self.parts.pop_front_if(|oldest| share.gone_at(oldest.start) <= at) {
            self.used -= oldest.permits;
        }
    }

    fn give_back(&mut self, share: &WindowShare, refund: &Refund) {
        let start = refund.at - refund.at % share.step;
        let Ok(index) = self.parts.binary_search_by_key(&start, |part| part.start) else {
            return; // it has left the window, and with it what could come back
        };
        let part = &mut self.parts[index];
        let permits = refund.permits.min(part.permits);
        part.permits -= permits;
        if part.permits == 0 {
            self.parts.remove(index);
        }
        self.used -= permits;
    }

    pub(super) fn charge(&mut self, start: Micros, permits: u64) {
        if permits == 0 {
            return;
        }
        self.used += permits;
        match self.parts.back_mut() {
            Some(newest) if newest.start == start => newest.permits += permits,
            _ => self.parts.push_back(Part { start, permits }),
        }
    }

    fn grant(&mut self, share: &WindowShare, ask: &Ask, current: Micros, at: Micros) -> Verdict {
        let granted = share.permits.saturating_sub(self.used) / ask.permits;
        let all = granted >= ask.count.max(1);
        let granted = granted.min(ask.count);
        self.charge(current, granted * ask.permits);
        let lack = match all {
            true => 0,
            false if ask.permits > share.permits => NEVER,
            false => self.room_at(share, ask.permits).saturating_sub(at) as i64,
        };
        Verdict { granted, lack, line: 0 }
    }

    /// When enough of the oldest sub-windows are gone for `permits` more.
    fn room_at(&self, share: &WindowShare, permits: u64) -> Micros {
        let mut left = self.used;
        for part in &self.parts {
            if left + permits <= share.permits {
                break;
            }
            left -= part.permits;
            if left + permits <= share.permits {
                return share.gone_at(part.start);
            }
        }
        0
    }
}
