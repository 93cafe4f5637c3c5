//! The state of any algorithm, and the one entry to all kernels.

use super::batch::{Ask, Batch, Header, Verdict};
use super::bucket::{self, Bucket};
use super::composite;
use super::fixed_window::{self, FixedWindow};
use super::sliding_window::{self, SlidingWindow};
use crate::clock::Micros;
use crate::limit::{BucketShare, Share, WindowShare};

/// What one shard remembers. Nothing at all means: as new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Bucket(Bucket),
    Fixed(FixedWindow),
    /// Boxed, so that the common states stay small.
    Sliding(Box<SlidingWindow>),
    /// Of each part in its order.
    Composite(Box<[Option<State>]>),
}

/// Runs the share's kernel on `state`, which it leaves as the batch made it.
///
/// `verdicts` takes one verdict for each ask. A state of another algorithm counts as nothing.
pub(crate) fn run(
    state: &mut Option<State>,
    share: &Share,
    now: Micros,
    batch: &Batch<'_>,
    verdicts: &mut [Verdict],
) -> Header {
    debug_assert_eq!(batch.asks.len(), verdicts.len());
    match share {
        Share::Bucket(share) => run_bucket(state, share, now, batch, verdicts),
        Share::Fixed(share) => run_fixed(state, share, now, batch, verdicts),
        Share::Sliding(share) => run_sliding(state, share, now, batch, verdicts),
        Share::Composite(shares) => run_composite(state, shares, now, batch, verdicts),
    }
}

/// A batch of one ask. Each kernel has a batch of its own here, so that where it is inlined the batch dissolves.
#[inline(always)]
pub(crate) fn run_one(state: &mut Option<State>, share: &Share, now: Micros, ask: Ask) -> (Header, Verdict) {
    match share {
        Share::Bucket(share) => alone(ask, |batch, verdicts| run_bucket(state, share, now, batch, verdicts)),
        Share::Fixed(share) => alone(ask, |batch, verdicts| run_fixed(state, share, now, batch, verdicts)),
        Share::Sliding(share) => alone(ask, |batch, verdicts| run_sliding(state, share, now, batch, verdicts)),
        Share::Composite(shares) => alone(ask, |batch, verdicts| run_composite(state, shares, now, batch, verdicts)),
    }
}

#[inline(always)]
fn alone(ask: Ask, run: impl FnOnce(&Batch<'_>, &mut [Verdict]) -> Header) -> (Header, Verdict) {
    let mut verdicts = [Verdict::default()];
    let header = run(&Batch { asks: &[ask], ..Batch::default() }, &mut verdicts);
    (header, verdicts[0])
}

#[inline(always)]
fn run_bucket(
    state: &mut Option<State>,
    share: &BucketShare,
    now: Micros,
    batch: &Batch<'_>,
    verdicts: &mut [Verdict],
) -> Header {
    let old = match state {
        Some(State::Bucket(bucket)) => Some(*bucket),
        _ => None,
    };
    let (new, header) = bucket::take(old, share, now, batch, verdicts);
    *state = Some(State::Bucket(new));
    header
}

#[inline(always)]
fn run_fixed(
    state: &mut Option<State>,
    share: &WindowShare,
    now: Micros,
    batch: &Batch<'_>,
    verdicts: &mut [Verdict],
) -> Header {
    let old = match state {
        Some(State::Fixed(window)) => Some(*window),
        _ => None,
    };
    let (new, header) = fixed_window::take(old, share, now, batch, verdicts);
    *state = Some(State::Fixed(new));
    header
}

#[inline(never)]
fn run_sliding(
    state: &mut Option<State>,
    share: &WindowShare,
    now: Micros,
    batch: &Batch<'_>,
    verdicts: &mut [Verdict],
) -> Header {
    // In place: neither the box nor what it holds is allocated again.
    if let Some(State::Sliding(window)) = state {
        let old = std::mem::take(&mut **window);
        let (new, header) = sliding_window::take(Some(old), share, now, batch, verdicts);
        **window = new;
        return header;
    }
    let (new, header) = sliding_window::take(None, share, now, batch, verdicts);
    *state = Some(State::Sliding(Box::new(new)));
    header
}

#[inline(never)]
fn run_composite(
    state: &mut Option<State>,
    shares: &[Share],
    now: Micros,
    batch: &Batch<'_>,
    verdicts: &mut [Verdict],
) -> Header {
    match state {
        Some(State::Composite(states)) if states.len() == shares.len() => {
            composite::take(states, shares, now, batch, verdicts)
        }
        _ => {
            let mut states = vec![None; shares.len()].into_boxed_slice();
            let header = composite::take(&mut states, shares, now, batch, verdicts);
            *state = Some(State::Composite(states));
            header
        }
    }
}

/// Makes `state` grant nothing that `other` would not: whoever had the one or the other is no better off with the outcome.
pub(crate) fn absorb(state: &mut Option<State>, mut other: Option<State>, share: &Share, now: Micros) {
    run(state, share, now, &Batch::default(), &mut []);
    run(&mut other, share, now, &Batch::default(), &mut []);
    if let Share::Composite(shares) = share {
        if let (Some(State::Composite(mine)), Some(State::Composite(other))) = (state, other) {
            for ((mine, other), share) in mine.iter_mut().zip(other).zip(&**shares) {
                absorb(mine, other, share, now);
            }
        }
        return;
    }
    match (state, other) {
        (Some(State::Bucket(mine)), Some(State::Bucket(other))) => {
            (mine.level, mine.seen) = (mine.level.min(other.level), mine.seen.max(other.seen));
        }
        (Some(State::Fixed(mine)), Some(State::Fixed(other))) => {
            // One may stand still in a window ahead.
            (mine.start, mine.used) = (mine.start.max(other.start), mine.used.max(other.used));
        }
        (Some(State::Sliding(mine)), Some(State::Sliding(other))) => mine.absorb(*other),
        _ => {}
    }
}

/// Whether forgetting the state would change nothing.
pub(crate) fn is_as_new(state: &mut Option<State>, share: &Share, now: Micros) -> bool {
    let header = run(state, share, now, &Batch::default(), &mut []);
    header.missing == 0 && header.at == now
}
