//! Fixed window: so many permits in each window, windows aligned to the clock.

use super::batch::{Ask, Batch, Header, NEVER, Verdict, steady};
use crate::clock::Micros;
use crate::limit::WindowShare;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FixedWindow {
    /// A multiple of the window's length.
    pub start: Micros,
    pub used: u64,
}

#[inline(always)]
pub(crate) fn take(
    state: Option<FixedWindow>,
    share: &WindowShare,
    now: Micros,
    batch: &Batch<'_>,
    verdicts: &mut [Verdict],
) -> (FixedWindow, Header) {
    let at = state.map_or(now, |window| steady(now, window.start, share.window));
    let start = at - at % share.window;
    let used = match state {
        // Also a window that lay ahead of a clock set back for good: what was used counts here and now.
        Some(window) if window.start >= start && !batch.reset => window.used,
        _ => 0,
    };
    let mut window = FixedWindow { start, used };
    for refund in batch.refunds {
        if refund.at - refund.at % share.window == start {
            window.used -= refund.permits.min(window.used);
        }
    }
    let most_debt = 2 * share.permits;
    window.used += batch.debt.min(most_debt.saturating_sub(window.used));

    let rest = (start + share.window - at) as i64;
    for (ask, verdict) in batch.asks.iter().zip(verdicts) {
        *verdict = window.grant(share, ask, rest);
    }
    let header = Header {
        now,
        at,
        level: share.permits as i64 - window.used as i64,
        missing: if window.used == 0 { 0 } else { rest },
    };
    (window, header)
}

impl FixedWindow {
    fn grant(&mut self, share: &WindowShare, ask: &Ask, rest: i64) -> Verdict {
        let granted = share.permits.saturating_sub(self.used) / ask.permits;
        let all = granted >= ask.count.max(1);
        let granted = granted.min(ask.count);
        self.used += granted * ask.permits;
        let lack = match all {
            true => 0,
            false if ask.permits > share.permits => NEVER,
            false => rest,
        };
        Verdict { granted, lack, line: 0 }
    }
}
