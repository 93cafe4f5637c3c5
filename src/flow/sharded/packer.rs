//! Keys with a plan are packed when others need their room. Where nobody comes any more, after a crowd, or after an outage in which they had
//! to stay whole, a task does it: one of a limit, as long as some segment has too many whole ones.

use std::sync::Weak;
use std::time::Duration;

use super::SharedLimit;
use super::tracked::{LOOKS, Left};
use crate::sync::{Arc, lock};

/// So long after a crowd began all whole keys are looked at,
const SOON: Duration = Duration::from_secs(1);
/// and twice as long after each look in vain, up to this: many handles may hold on to many keys for ever.
const SELDOM: Duration = Duration::from_secs(8);

impl SharedLimit {
    /// A segment has more whole keys than it should. They may all be in use.
    pub(super) fn call_packer(self: &Arc<Self>) {
        // They lie behind the segment's lock.
        if self.packer.is_called() || !self.packer.call() {
            return;
        }
        // It must not keep the limiter alive. If it can't be spawned that is at its end.
        let limit = Arc::downgrade(self);
        let _ = self.engine.spawn(pack(limit));
    }

    /// Looks once at all whole keys, few at a time under a lock. Says how many were packed.
    async fn pack_once(&self) -> usize {
        let mut packed = 0;
        for segment in self.keys.segments() {
            let looks = lock(segment).looks();
            for _ in 0..looks {
                let mut left = Left::default();
                lock(segment).make_room(self, LOOKS, &mut left);
                packed += left.count();
            }
            tokio::task::yield_now().await;
        }
        packed
    }

    fn has_too_many_whole(&self) -> bool {
        self.keys.segments().any(|segment| lock(segment).has_too_many())
    }
}

async fn pack(limit: Weak<SharedLimit>) {
    let mut wait = SOON;
    loop {
        let Some(pause) = limit.upgrade().map(|limit| limit.engine.pause(wait)) else { return };
        if !pause.await {
            return;
        }
        let Some(limit) = limit.upgrade() else { return };
        limit.packer.looks();
        let packed = limit.pack_once().await;
        if !limit.has_too_many_whole() && limit.packer.rests() {
            return;
        }
        wait = if packed > 0 { SOON } else { (2 * wait).min(SELDOM) };
    }
}
