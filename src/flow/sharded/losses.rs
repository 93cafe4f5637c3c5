//! What is lost of a limit: permits that did not go back to their shard, and those that it was not charged for. Counted, told once
//! in a while, and said at the end.

use std::ops::AddAssign;

use super::lane::is_due;
use super::{SharedLimit, TELL};
use crate::observe;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Permits that are lost, or may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lost {
    /// They were to go back, and did not: the limit is so much stricter for a while.
    pub unreturned: u64,
    /// They were admitted without their shard, and it was not charged: so much more was admitted.
    pub uncharged: u64,
}

impl Lost {
    pub(super) fn unreturned(permits: u64) -> Self {
        Self { unreturned: permits, uncharged: 0 }
    }

    pub(super) fn uncharged(permits: u64) -> Self {
        Self { unreturned: 0, uncharged: permits }
    }

    pub(crate) fn is_nothing(self) -> bool {
        self == Self::default()
    }

    /// What came after `before`.
    fn since(self, before: Self) -> Self {
        let Self { unreturned, uncharged } = self;
        Self {
            unreturned: unreturned.saturating_sub(before.unreturned),
            uncharged: uncharged.saturating_sub(before.uncharged),
        }
    }
}

impl AddAssign for Lost {
    fn add_assign(&mut self, other: Self) {
        self.unreturned += other.unreturned;
        self.uncharged += other.uncharged;
    }
}

/// Of one limit, since it was defined.
#[derive(Default)]
pub(crate) struct Losses {
    pub(super) unreturned: AtomicU64,
    pub(super) uncharged: AtomicU64,
    /// When they were last told of, by this process's clock.
    told: AtomicU64,
    /// How much of the first was said to whoever gave leases back.
    said: AtomicU64,
}

impl Losses {
    fn all(&self) -> Lost {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Lost { unreturned: read(&self.unreturned), uncharged: read(&self.uncharged) }
    }

    /// Permits that did not go back since this was last asked.
    pub(super) fn news(&self) -> u64 {
        let unreturned = self.all().unreturned;
        // Somebody else may have said more by now.
        unreturned.saturating_sub(self.said.fetch_max(unreturned, Ordering::Relaxed))
    }
}

impl SharedLimit {
    /// Permits of a key are lost, or of many.
    pub(super) fn lose(&self, key: &[u8], lost: Lost) {
        if lost.is_nothing() {
            return;
        }
        let losses = &self.losses;
        losses.unreturned.fetch_add(lost.unreturned, Ordering::Relaxed);
        losses.uncharged.fetch_add(lost.uncharged, Ordering::Relaxed);
        if is_due(&losses.told, self.clock.now(), TELL) {
            // All of them: what was lost within the second before is told by the next one.
            let Lost { unreturned, uncharged } = losses.all();
            observe::permits_lost(&self.name, key, unreturned, uncharged);
        }
    }

    /// What was lost before the end, and is no matter of it. That of leases is, until somebody was told.
    pub(crate) fn lost_before_the_end(&self) -> Lost {
        let all = self.losses.all();
        match self.leasing {
            Some(_) => Lost { unreturned: self.losses.said.load(Ordering::Relaxed), ..all },
            None => all,
        }
    }

    /// At the end, when nothing is under way any more: what still waits for a shard is lost. Says how much is, after what was
    /// `before`.
    pub(crate) fn write_off(&self, before: Lost) -> Lost {
        self.lose(b"", self.keys.write_off());
        let lost = self.losses.all().since(before);
        self.losses.news();
        lost
    }
}
