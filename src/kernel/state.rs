//! The state of any algorithm, and the one entry to all kernels.

use super::batch::{Batch, Header, Verdict};
use super::bucket::{self, Bucket};
use super::fixed_window::{self, FixedWindow};
use super::sliding_window::{self, SlidingWindow};
use crate::clock::Micros;
use crate::limit::Share;

/// What one shard remembers. Nothing at all means: as new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Bucket(Bucket),
    Fixed(FixedWindow),
    /// Boxed, so that the common states stay small.
    Sliding(Box<SlidingWindow>),
}

/// Runs the share's kernel on `state`, which it leaves as the batch made it.
///
/// `verdicts` takes one verdict for each ask. A state of another algorithm counts as nothing.
#[inline(always)]
pub(crate) fn run(
    state: &mut Option<State>,
    share: &Share,
    now: Micros,
    batch: &Batch<'_>,
    verdicts: &mut [Verdict],
) -> Header {
    debug_assert_eq!(batch.asks.len(), verdicts.len());
    match share {
        Share::Bucket(share) => {
            let old = match state {
                Some(State::Bucket(bucket)) => Some(*bucket),
                _ => None,
            };
            let (new, header) = bucket::take(old, share, now, batch, verdicts);
            *state = Some(State::Bucket(new));
            header
        }
        Share::Fixed(share) => {
            let old = match state {
                Some(State::Fixed(window)) => Some(*window),
                _ => None,
            };
            let (new, header) = fixed_window::take(old, share, now, batch, verdicts);
            *state = Some(State::Fixed(new));
            header
        }
        Share::Sliding(share) => match state {
            // In place: neither the box nor what it holds is allocated again.
            Some(State::Sliding(window)) => {
                let old = std::mem::take(&mut **window);
                let (new, header) = sliding_window::take(Some(old), share, now, batch, verdicts);
                **window = new;
                header
            }
            _ => {
                let (new, header) = sliding_window::take(None, share, now, batch, verdicts);
                *state = Some(State::Sliding(Box::new(new)));
                header
            }
        },
    }
}

impl State {
    /// The latest instant that the state knows of.
    #[inline(always)]
    pub(crate) fn seen(&self) -> Micros {
        match self {
            Self::Bucket(bucket) => bucket.seen,
            Self::Fixed(window) => window.start,
            Self::Sliding(window) => window.seen,
        }
    }
}

/// Whether forgetting the state would change nothing.
pub(crate) fn is_as_new(state: &mut Option<State>, share: &Share, now: Micros) -> bool {
    let header = run(state, share, now, &Batch::default(), &mut []);
    header.missing == 0 && header.at == now
}
