//! What a shard is asked to do, and what comes back.

use std::ops::Deref;

use super::lane::Lane;
use super::round::Decided;
use super::row::Row;
use crate::clock::Micros;
use crate::decision::Charge;
use crate::error::{Error, ErrorKind};
use crate::kernel::{Ask, Header, Refund, Verdict};
use crate::limit::Share;
use crate::sync::Arc;

/// What one call wants of a shard. Small, as most of it is: every call that waits has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// So many permits, all or none.
    Ask(u64),
    /// Up to so many permits, to be spent here. The shard is to keep room for them for so many microseconds; 0: it need not.
    Lease {
        permits: u64,
        held_for: u32,
    },
    Look,
    /// Home is to be there afterwards.
    Make,
    Reset,
    Debt(u64),
    Refund(Box<Refund>),
}

impl Work {
    /// What it asks for, if it asks: a lease is so many calls for a permit each.
    pub(super) fn ask(&self) -> Option<Ask> {
        match *self {
            Self::Ask(permits) => Some(Ask { permits, count: 1 }),
            Self::Lease { permits, .. } => Some(Ask { permits: 1, count: permits }),
            Self::Look | Self::Make | Self::Reset | Self::Debt(_) | Self::Refund(_) => None,
        }
    }

    /// Whether the shard keeps room for what it takes.
    pub(super) fn is_held(&self) -> bool {
        matches!(self, Self::Lease { held_for: 1.., .. })
    }

    /// Whether it is of use to nobody but the one who waits for it.
    pub(super) fn dies_with_its_caller(&self) -> bool {
        matches!(self, Self::Ask(_) | Self::Lease { .. } | Self::Look)
    }
}

pub(super) type Answer = Result<Outcome, Miss>;

/// What became of one call, and what its whole round was told.
pub(super) struct Outcome {
    /// One that the shard has decided.
    pub row: Arc<Row>,
    /// Of a call that asked. `granted` is 0 or 1; of a lease, its permits.
    pub verdict: Verdict,
}

impl Deref for Outcome {
    type Target = Decided;

    fn deref(&self) -> &Decided {
        self.row.trip.decided().expect("only a round that was decided has outcomes")
    }
}

impl Outcome {
    pub(super) fn lane(&self) -> &Arc<Lane> {
        &self.row.trip.lane
    }

    /// How long it takes until so many units have come back, in µs.
    pub(super) fn time(&self, units: i64) -> Micros {
        (units.max(0) as u64).div_ceil(self.share.rate() as u64) + (self.header.at - self.header.now)
    }

    /// How long until its turn comes in a pacing queue.
    pub(super) fn wait(&self) -> Micros {
        if self.verdict.line > 0 { self.time(self.verdict.line) } else { 0 }
    }

    /// Permits that the shard had left.
    pub(super) fn free(&self) -> u64 {
        free(&self.header, &self.share)
    }

    pub(super) fn reset_after(&self) -> Micros {
        reset_after(&self.header, &self.share)
    }

    /// What a call that was granted was charged.
    pub(super) fn charge(&self, permits: u64) -> Charge {
        let Refund { at, line, .. } = self.refund(permits);
        Charge { slot: self.lane().slot, id: self.id, permits, at, line }
    }

    /// What undoes a call that was granted so many permits.
    pub(super) fn refund(&self, permits: u64) -> Refund {
        let line = self.verdict.line + permits as i64 * self.share.cost();
        Refund { permits, at: self.header.at, line }
    }
}

/// Permits that a shard had left.
pub(super) fn free(header: &Header, share: &Share) -> u64 {
    header.level.max(0) as u64 / share.cost() as u64
}

/// How long until a shard is as new.
pub(super) fn reset_after(header: &Header, share: &Share) -> Micros {
    match header.missing.max(0) as u64 {
        0 => 0,
        missing => missing.div_ceil(share.rate() as u64) + (header.at - header.now),
    }
}

/// Why there is no outcome.
#[derive(Clone, Debug)]
pub(super) enum Miss {
    /// The shard is no more what this process took it for. The plan is up to date now; nothing was charged.
    Stale,
    Failed(Error),
    /// The limiter has come to its end, with its runtime or by itself.
    Ended {
        sent: bool,
    },
}

impl Miss {
    pub(super) fn not_sent(what: &'static str, message: impl Into<Box<str>>) -> Self {
        Self::Failed(Error::new(ErrorKind::NotSent, what, message))
    }

    /// What the caller learns.
    pub(super) fn into_error(self) -> Error {
        match self {
            Self::Failed(error) => error,
            Self::Stale => Error::new(
                ErrorKind::NotSent,
                "redis",
                "the key's shares were moved again and again while the call was made; nothing was charged; try again",
            ),
            Self::Ended { sent: true } => {
                let message = "the limiter was shut down, or its runtime has ended; the permits may have been charged";
                Error::new(ErrorKind::Unknown, "runtime", message)
            }
            Self::Ended { sent: false } => {
                let message = "the limiter was shut down, or its runtime has ended; nothing was charged";
                Error::new(ErrorKind::NotSent, "runtime", message)
            }
        }
    }
}
