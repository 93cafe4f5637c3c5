//! What goes into one run of a kernel and what comes out: the same fields that a script's arguments and
//! reply carry (`lua/README.md`).
//!
//! Lengths of time come out in *units of refill*, of which [`Share::rate`](crate::limit::Share::rate) come back each
//! microsecond (for windows they are microseconds). Only who reads them pays for the division, and calls that
//! share a verdict can be told apart exactly.

use crate::clock::Micros;
use crate::limit::Share;

/// The lack of an ask above what a share can ever hold.
pub(crate) const NEVER: i64 = i64::MAX;

/// `count` calls in a row that ask for `permits` each. With a count of 0 it only asks how long it would take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    pub permits: u64,
    pub count: u64,
}

/// Permits that an earlier run charged and that come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refund {
    pub permits: u64,
    /// When they were charged: [`Header::at`] of that run.
    pub at: Micros,
    /// Units in the line behind and including this call ([`Verdict::line`] and its own): tells a pacing
    /// queue whether the call is still its tail. `UNSPENT` for what a bucket counts as held.
    pub line: i64,
}

/// The [`Refund::line`] of a lease that comes back: the bucket need not keep room for it any more.
#[cfg(feature = "redis")]
pub(crate) const UNSPENT: i64 = -1;

/// One run: taken in the order of the fields.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Batch<'a> {
    /// Forget the state first.
    pub reset: bool,
    pub refunds: &'a [Refund],
    /// Permits to charge whether they are there or not: a cost known only afterwards. The debt is held to one
    /// full burst (or window), so that nobody is locked out without end.
    pub debt: u64,
    pub asks: &'a [Ask],
    /// The last of the asks takes permits to be held for so long, and a bucket is to keep room for them meanwhile; 0: it does not.
    #[cfg(feature = "redis")]
    pub held_for: Micros,
}

/// The fixed part of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// The clock of the store.
    pub now: Micros,
    /// The instant that was decided at: `now`, or a little later while time stands still.
    pub at: Micros,
    /// What is left after the batch: units of a bucket, permits of a window. Negative: debt.
    pub level: i64,
    /// What has to come back after `at` until the state is as new.
    pub missing: i64,
}

/// The answer to one [`Ask`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// How many of its calls got their permits: the first ones.
    pub granted: u64,
    /// What has to come back after `at` before one more such call can be granted; 0 when all were.
    pub lack: i64,
    /// Pacing queue: what stands in the line ahead of the first call. Composite: the number of the part that lacks the most.
    pub line: i64,
}

impl Verdict {
    /// The part of a composite that denied, counted from 1; 0 for others.
    #[inline]
    pub(crate) fn part(&self, share: &Share) -> u8 {
        if matches!(share, Share::Composite(_)) { self.line as u8 + 1 } else { 0 }
    }
}

/// The instant to decide at, for a state whose latest instant is `seen`.
///
/// Behind by up to a full refill: time stands still at `seen`, so a clock that swings back and forth refills
/// nothing twice. Behind by more: `now`, and the caller moves its state there.
#[inline(always)]
pub(crate) fn steady(now: Micros, seen: Micros, refill: Micros) -> Micros {
    if seen > now && seen - now <= refill { seen } else { now }
}
