//! How shards are asked for one call: all at once, up to its deadline, with one answer for each key.

use std::pin::pin;
use std::time::Instant;

use tokio::sync::oneshot;

use super::calls::Seat;
use super::counters::one;
use super::patience::Patience;
use super::shards::{Shard, Shards, ended};
use crate::error::{Error, ErrorKind};
use crate::key::Slot;
use crate::store::cluster::{Engine, Fault};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicBool, Ordering};

/// What a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aim {
    /// It changes nothing.
    Look,
    Change,
    /// The rest of a change of which a part is done. The same again does no harm.
    Rest,
}

/// Whether a request may have run.
#[derive(Default)]
pub(super) struct Sent {
    /// It is out.
    pub now: AtomicBool,
    /// It was, and had no answer.
    pub before: AtomicBool,
}

impl Sent {
    fn may_have_run(&self) -> bool {
        self.now.load(Ordering::Relaxed) || self.before.load(Ordering::Relaxed)
    }
}

/// What a request says when it is over.
type Told<T> = oneshot::Receiver<Result<T, Fault>>;

/// A request to one shard.
pub(super) struct Ask<F> {
    slot: Slot,
    sent: Arc<Sent>,
    run: F,
}

impl Shard {
    /// What `run` does here.
    pub(super) fn ask<F>(self, run: impl FnOnce(Self, Arc<Sent>) -> F) -> Ask<F> {
        let (slot, sent) = (self.slot, Arc::<Sent>::default());
        Ask { slot, sent: Arc::clone(&sent), run: run(self, sent) }
    }
}

impl Shards {
    /// Asks the shards of several keys, all at once. What goes to one master shares its connection, and leaves together. Each key
    /// has an answer of its own, in order, at `due` at the latest: what all of its shards say, or why that is not known.
    ///
    /// # Cancel safety
    /// What was sent may run.
    pub(super) async fn ask<T, F>(
        &self,
        aim: Aim,
        due: Instant,
        keys: impl Iterator<Item = Vec<Ask<F>>>,
    ) -> Vec<Result<Vec<T>, Error>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Fault>> + Send + 'static,
    {
        // One call that has less time than others says nothing of the master.
        let overdue = self.calls.due(Patience::default()).max(due);
        let begin = |asks: Vec<Ask<F>>| {
            self.engine.check()?;
            let seats = self.calls.enter(asks.len())?;
            asks.into_iter().zip(seats).map(|(ask, seat)| ask.begin(&self.engine, aim, (due, overdue), seat)).collect()
        };
        let asked: Vec<Result<Vec<_>, Error>> = keys.map(begin).collect();
        let mut answers = Vec::with_capacity(asked.len());
        for told in asked {
            answers.push(match told {
                Ok(told) => self.answer(aim, due, told).await,
                Err(error) => Err(error),
            });
        }
        answers
    }

    /// What the shards of a key say.
    async fn answer<T>(&self, aim: Aim, due: Instant, told: Vec<Told<T>>) -> Result<Vec<T>, Error> {
        let (mut done, mut faults, mut has_ended) = (Vec::with_capacity(told.len()), Vec::new(), false);
        // All of them, whatever one says.
        for told in told {
            match told.await {
                Ok(Ok(answer)) => done.push(answer),
                Ok(Err(fault)) => faults.push(fault),
                Err(_) => has_ended = true,
            }
        }
        if has_ended {
            return Err(ended());
        }
        let Some(fault) = worst(&mut faults) else { return Ok(done) };
        if Instant::now() >= due {
            self.calls.missed.late(1);
        }
        let is_partly_done = aim == Aim::Change && !done.is_empty();
        Err(into_error(if is_partly_done { Aim::Rest } else { aim }, fault))
    }

    /// Asks the shards of one key.
    ///
    /// # Cancel safety
    /// What was sent may run.
    pub(super) async fn ask_key<T, F>(&self, aim: Aim, due: Instant, asks: Vec<Ask<F>>) -> Result<Vec<T>, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Fault>> + Send + 'static,
    {
        one(self.ask(aim, due, std::iter::once(asks)).await)
    }
}

impl<F> Ask<F> {
    /// Sends it, and tells what comes back, or that nothing did when it was `due`.
    fn begin<T>(
        self,
        engine: &Engine,
        aim: Aim,
        (due, overdue): (Instant, Instant),
        seat: Seat,
    ) -> Result<Told<T>, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Fault>> + Send + 'static,
    {
        let Self { slot, sent, run } = self;
        let ((say, told), transport) = (oneshot::channel(), engine.transport.clone());
        engine.spawn(async move {
            let mut run = pin!(run);
            if let Ok(answer) = tokio::time::timeout_at(due.into(), &mut run).await {
                // Whoever has his answer finds room for the next call.
                drop(seat);
                let _ = say.send(answer);
                return;
            }
            let is_out = sent.now.load(Ordering::Relaxed);
            let fault = if sent.may_have_run() {
                Fault::Unknown("no answer by the deadline".into())
            } else {
                let why = transport.trouble().unwrap_or_else(|| "no connection yet".into());
                Fault::NotSent(format!("not sent by the deadline: {why}"))
            };
            let _ = say.send(Err(fault));
            // What is out goes on, as it would for a limit: a caller in a hurry says nothing of the master. What is not out and
            // would change something must not go any more: its caller knows that it did not.
            if is_out {
                if tokio::time::timeout_at(overdue.into(), &mut run).await.is_ok() {
                    return;
                }
                transport.is_overdue(slot);
            }
            if is_out || aim == Aim::Look {
                let _ = run.await;
            }
            drop(seat);
        })?;
        Ok(told)
    }
}

/// The one that says the most of what is to be done: somebody has to act; it may be done; it is not.
fn worst(faults: &mut Vec<Fault>) -> Option<Fault> {
    let rank = |fault: &Fault| match fault {
        Fault::NoScript | Fault::Refused(_) => 2,
        Fault::Unknown(_) => 1,
        Fault::Moved { .. }
        | Fault::Ask { .. }
        | Fault::Left
        | Fault::TryAgain
        | Fault::Unavailable(_)
        | Fault::NotSent(_) => 0,
    };
    let worst = (0..faults.len()).max_by_key(|index| rank(&faults[*index]))?;
    Some(faults.swap_remove(worst))
}

/// The error that a caller gets, in words of counting.
pub(super) fn into_error(aim: Aim, fault: Fault) -> Error {
    use ErrorKind::{NotSent, Refused, Unknown};
    let kind = match fault {
        Fault::Moved { .. }
        | Fault::Ask { .. }
        | Fault::Left
        | Fault::TryAgain
        | Fault::Unavailable(_)
        | Fault::NotSent(_) => NotSent,
        Fault::NoScript | Fault::Refused(_) => Refused,
        Fault::Unknown(_) => Unknown,
    };
    let advice = match (kind, aim) {
        (NotSent, Aim::Look) => "try again",
        (NotSent, Aim::Change) => "nothing was counted; try again",
        (Refused, Aim::Look) => "asking again will not help, see `shardlimit doctor`",
        (Refused, Aim::Change) => "nothing was counted; asking again will not help, see `shardlimit doctor`",
        (Refused, Aim::Rest) => "a part of it was done; asking again will not help, see `shardlimit doctor`",
        (_, Aim::Look) => "nothing was changed; try again",
        (_, Aim::Change) => "it may have been counted, or not",
        (_, Aim::Rest) => "a part of it was done; try all of it again, that counts nothing twice",
    };
    // To say that nothing was done would not be true.
    let kind = if (kind, aim) == (NotSent, Aim::Rest) { Unknown } else { kind };
    Error::new(kind, "redis", format!("{}; {advice}", fault.what()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_was_done_in_part_does_not_say_that_nothing_was() {
        let not_sent = |aim| into_error(aim, Fault::NotSent("no master".into()));
        assert_eq!([Aim::Look, Aim::Change].map(|aim| not_sent(aim).kind()), [ErrorKind::NotSent; 2]);
        assert_eq!(not_sent(Aim::Rest).kind(), ErrorKind::Unknown);
        let refused = into_error(Aim::Rest, Fault::Refused("OOM".into()));
        assert_eq!(refused.kind(), ErrorKind::Refused, "somebody has to act");
        assert!(!refused.to_string().contains("nothing was counted"), "{refused}");
    }

    #[test]
    fn of_several_faults_the_one_that_matters_is_told() {
        let (refused, unknown) = (Fault::Refused("OOM".into()), Fault::Unknown("late".into()));
        let not_sent = Fault::NotSent("no master".into());
        assert_eq!(worst(&mut vec![not_sent.clone(), unknown.clone()]), Some(unknown.clone()));
        assert_eq!(worst(&mut vec![unknown, refused.clone(), not_sent]), Some(refused));
        assert_eq!(worst(&mut Vec::new()), None);
    }
}
