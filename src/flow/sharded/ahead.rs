//! What a lane's calls on their way ask for, as those see it who decide without a lock.

/// What calls on their way ask for. Leases do not count: what they bring is there for the next call.
#[derive(Clone, Copy, Default)]
pub(super) struct Ahead {
    pub permits: u64,
    /// The largest ask among them, or among those before them since the lane was idle.
    pub largest: u64,
}

impl Ahead {
    const LARGE: u64 = u16::MAX as u64;

    /// Both in one word: 48 bits of permits, and the largest ask as far as 16 bits can say it.
    pub(super) fn packed(self) -> u64 {
        self.permits.min(u64::MAX >> 16) << 16 | self.largest.min(Self::LARGE)
    }

    /// Permits that calls on their way ask for.
    pub(super) fn all(packed: u64) -> u64 {
        packed >> 16
    }

    /// Permits that are surely taken, or not to be had, before an ask for `permits` is decided. A smaller ask can be granted where
    /// a larger one before it is denied, so only asks that are no larger count.
    #[inline]
    pub(super) fn of(packed: u64, permits: u64) -> u64 {
        let largest = packed & Self::LARGE;
        if largest <= permits && largest < Self::LARGE { Self::all(packed) } else { 0 }
    }
}
