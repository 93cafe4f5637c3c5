//! What goes into a lane, and what comes back.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::decision::Charge;
use crate::error::{Error, ErrorKind};
use crate::kernel::{Header, Refund, Verdict};
use crate::key::Slot;
use crate::limit::Share;
use crate::wire::GrantId;

/// A call that waits for a shard. Its completion travels with it, and dropping it answers the caller.
pub(super) struct Job {
    pub work: Work,
    since: Instant,
    pub done: oneshot::Sender<Answer>,
}

/// What a shard is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Ask(u64),
    Look,
    /// Home is to be there afterwards.
    Make,
    Reset,
    Debt(u64),
    Refund(Refund),
}

pub(super) type Answer = Result<Outcome, Miss>;

/// What became of one call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    pub header: Header,
    /// Of a call that asked; `granted` is 0 or 1.
    pub verdict: Verdict,
    /// What the shard's numbers are to be read by.
    pub share: Share,
    pub id: GrantId,
}

impl Outcome {
    /// How long until the shard is as new, in µs.
    pub(super) fn reset_after(&self) -> u64 {
        match self.header.missing.max(0) as u64 {
            0 => 0,
            missing => missing.div_ceil(self.share.rate() as u64) + (self.header.at - self.header.now),
        }
    }

    /// What a call that was granted has to give back if it is to be undone.
    pub(super) fn charge(&self, slot: Slot, permits: u64) -> Charge {
        let line = self.verdict.line + permits as i64 * self.share.cost();
        Charge { slot, id: self.id, permits, at: self.header.at, line }
    }
}

/// Why there is no outcome.
#[derive(Clone, Debug)]
pub(super) enum Miss {
    /// The shard is no more what this process took it for. The plan is up to date now; nothing was charged.
    Stale,
    Failed(Error),
}

impl Job {
    pub(super) fn new(work: Work, done: oneshot::Sender<Answer>) -> Self {
        Self { work, since: Instant::now(), done }
    }

    pub(super) fn answer(self, answer: Answer) {
        // Nobody may wait any more.
        let _ = self.done.send(answer);
    }

    /// Whether its caller has waited for longer than `most` before it was even sent.
    pub(super) fn is_late(&self, most: Duration) -> bool {
        self.since.elapsed() > most
    }

    /// Whether nobody waits for it.
    pub(super) fn is_abandoned(&self) -> bool {
        self.done.is_closed()
    }
}

/// The outcome of anything but an ask, once it comes.
///
/// # Cancel safety
/// It takes place whether somebody waits for it or not.
pub(super) async fn outcome(answer: oneshot::Receiver<Answer>) -> Answer {
    answer.await.unwrap_or_else(|_| ended())
}

/// What a call learns whose completion was dropped.
pub(super) fn ended() -> Answer {
    let message = "the limiter's runtime has ended; the permits may have been charged";
    Err(Miss::Failed(Error::new(ErrorKind::Unknown, "runtime", message)))
}
