//! Several limits of one key at once: a call takes its permits from all of them or from none.
//!
//! Each part is a share of its own with its own state, run by its own kernel, and each goes by its own clock: where time
//! stands still for one of them, the others go on. Lengths of time are microseconds, levels are whole permits.

use smallvec::SmallVec;

use super::batch::{Ask, Batch, Header, NEVER, Verdict};
use super::state::{State, run};
use crate::clock::Micros;
use crate::limit::{MOST_PARTS, Share};

type Headers = SmallVec<[Header; MOST_PARTS]>;

/// One state for each share.
pub(crate) fn take(
    states: &mut [Option<State>],
    shares: &[Share],
    now: Micros,
    batch: &Batch<'_>,
    verdicts: &mut [Verdict],
) -> Header {
    debug_assert_eq!(states.len(), shares.len());
    let opening = Batch { asks: &[], ..*batch };
    let mut headers: Headers =
        states.iter_mut().zip(shares).map(|(state, share)| run(state, share, now, &opening, &mut [])).collect();
    // The earliest: a refund by it finds what was charged then or before, so nothing that is still used comes back for it.
    let at = headers.iter().map(|header| header.at).min().unwrap_or(now);
    for (ask, verdict) in batch.asks.iter().zip(verdicts) {
        let fits = level(shares, &headers).max(0) as u64 / ask.permits;
        let granted = fits.min(ask.count);
        if granted > 0 {
            let charge = Batch { asks: &[Ask { count: granted, ..*ask }], ..Batch::default() };
            for ((state, share), header) in states.iter_mut().zip(shares).zip(&mut headers) {
                *header = run(state, share, now, &charge, &mut [Verdict::default()]);
            }
        }
        let (lack, part) =
            if granted == ask.count && granted > 0 { (0, 0) } else { lack(states, shares, now, at, ask.permits) };
        *verdict = Verdict { granted, lack, line: part };
    }
    let missing = shares.iter().zip(&headers).map(|(share, header)| after(header.missing, share, header, at)).max();
    Header { now, at, level: level(shares, &headers), missing: missing.unwrap_or(0) }
}

/// Permits that all parts have. Negative: a debt.
fn level(shares: &[Share], headers: &[Header]) -> i64 {
    let levels = shares.iter().zip(headers).map(|(share, header)| header.level.div_euclid(share.cost()));
    levels.min().unwrap_or(0)
}

/// How long until one more such call could be granted, and the part that takes the longest.
fn lack(states: &mut [Option<State>], shares: &[Share], now: Micros, at: Micros, permits: u64) -> (i64, i64) {
    let look = Batch { asks: &[Ask { permits, count: 0 }], ..Batch::default() };
    let (mut longest, mut part) = (0, 0);
    for (index, (state, share)) in states.iter_mut().zip(shares).enumerate() {
        let mut verdicts = [Verdict::default()];
        let header = run(state, share, now, &look, &mut verdicts);
        let lack = after(verdicts[0].lack, share, &header, at);
        if lack > longest {
            (longest, part) = (lack, index as i64);
        }
    }
    (longest, part)
}

/// What a part says of its own time, as of `at`.
fn after(units: i64, share: &Share, header: &Header, at: Micros) -> i64 {
    match units {
        0 | NEVER => units,
        units => (units as u64).div_ceil(share.rate() as u64) as i64 + (header.at - at) as i64,
    }
}
