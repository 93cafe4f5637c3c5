//! The task that delivers the adds of one shard of one key, one request after the other.

use std::sync::Weak;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::delivery::Delivery;
use super::shards::Shard;
use crate::retries::Backoff;
use crate::sync::{Arc, lock};

/// Between two tries of what could not be delivered. A server that restarts is missed for a second or two.
const BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(20), most: Duration::from_secs(1), multiplier: 2.0, jitter: 0.5 };

/// The task of one shard of one key, for as long as something is undelivered there.
pub(super) struct Lane {
    /// A limiter that everybody let go of has nothing to deliver any more.
    pub delivery: Weak<Delivery>,
    pub shard: Shard,
    /// The key's first one, if that is another.
    pub first: Option<Shard>,
    /// That of its queue.
    pub hurry: Arc<Notify>,
    /// Nothing waits: the next add begins another one.
    pub is_over: bool,
}

impl Lane {
    pub(super) async fn drive(mut self) {
        let mut attempt = None;
        loop {
            let Some(delivery) = self.delivery.upgrade() else { return };
            let Some(current) = attempt.take().or_else(|| delivery.next(&self.shard)) else {
                self.is_over = true;
                return;
            };
            attempt = delivery.send(&self, current).await;
            drop(delivery);
            let Some(mut failed) = attempt.take() else { continue };
            let again = Instant::now() + BACKOFF.wait(failed.failed);
            attempt = loop {
                let Some(delivery) = self.delivery.upgrade() else { return };
                let due = delivery.next_due(&self.shard, &failed.work).min(again);
                drop(delivery);
                tokio::select! {
                    () = tokio::time::sleep_until(due.into()) => {}
                    () = self.hurry.notified() => {}
                }
                let Some(delivery) = self.delivery.upgrade() else { return };
                if !delivery.expire(&self.shard, &mut failed.work, failed.unknown.is_some()) {
                    break None;
                }
                if Instant::now() >= again {
                    break Some(failed);
                }
            };
        }
    }
}

/// The task may be dropped at any time, and then nobody would come for what waits.
impl Drop for Lane {
    fn drop(&mut self) {
        if let Some(delivery) = self.delivery.upgrade().filter(|_| !self.is_over) {
            let left = lock(&delivery.lanes).remove(&self.shard.sub_key);
            drop(left);
        }
    }
}
