//! All shards of a key at once: what they have left, and how they are made as new.

use super::SharedLimit;
use super::entry::Entry;
use super::further::ATTEMPTS;
use super::job::{Miss, Outcome, Work};
use super::lease::Filling;
use super::view::View;
use crate::clock::Micros;
use crate::decision::{DecidedBy, Peek, StoreFacts};
use crate::error::{Error, ErrorKind};
use crate::sync::Arc;

impl SharedLimit {
    /// Ends `within` so many microseconds, or within the limiter's deadline if it says none.
    ///
    /// # Cancel safety
    /// It changes nothing, whenever it is dropped.
    pub(crate) async fn peek(self: &Arc<Self>, entry: &Arc<Entry>, within: Option<Micros>) -> Result<Peek, Error> {
        let due = self.due(within);
        let mut looked = self.on_all(entry, Work::Look, due).await?;
        // What is on its way is nowhere to be seen. Where it can't arrive, what is left is what can be seen.
        if looked.0.is_moving() && matches!(self.before(due, self.finish_moves(entry)).await, Some(Ok(()))) {
            looked = self.on_all(entry, Work::Look, due).await?;
        }
        let (view, outcomes) = looked;
        let exact = view.lanes.len() == 1;
        let mut facts = StoreFacts { remaining: 0, reset_after: 0, exact, decided_by: DecidedBy::Store, part: 0 };
        for found in &outcomes {
            facts.remaining += found.free();
            facts.reset_after = facts.reset_after.max(found.reset_after());
        }
        Ok(Peek::by_store(facts))
    }

    /// Ends as [`peek`](Self::peek) does.
    ///
    /// # Cancel safety
    /// Some shards may be reset and others not, or none.
    pub(crate) async fn reset(self: &Arc<Self>, entry: &Arc<Entry>, within: Option<Micros>) -> Result<(), Error> {
        let due = self.due(within);
        // What was taken ahead is void: the shards are as new without it, or may be. Nothing more is taken meanwhile: of one shard
        // it would be charged before it is as new, of another one after that.
        let _stays_empty = match &entry.purse {
            None => None,
            Some(purse) => {
                let message = "permits are being leased, and that took too long; nothing was reset; try again";
                let late = || Error::new(ErrorKind::NotSent, "deadline", message);
                let filling = self.before(due, Filling::keep_off(entry, purse)).await.ok_or_else(late)?;
                drop(purse.take_back(None));
                Some(filling)
            }
        };
        let (view, _) = self.on_all(entry, Work::Reset, due).await?;
        view.lanes.iter().for_each(|lane| entry.open(lane));
        Ok(())
    }

    /// The same on every shard at once; home's answer tells whether the plan is still this one.
    async fn on_all(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        work: Work,
        due: Micros,
    ) -> Result<(Arc<View>, Vec<Outcome>), Error> {
        for _ in 0..ATTEMPTS {
            let view = entry.view();
            let ask = |lane| self.put_until(entry, lane, work.clone(), due);
            let answers: Vec<_> = view.lanes.iter().map(ask).collect();
            let mut outcomes = Vec::with_capacity(answers.len());
            let mut stale = false;
            for answer in answers {
                match answer.await {
                    Ok(outcome) => outcomes.push(outcome),
                    Err(Miss::Stale) => stale = true,
                    Err(miss) => return Err(miss.into_error()),
                }
            }
            if !stale && entry.view().id == view.id {
                return Ok((view, outcomes));
            }
        }
        Err(Miss::Stale.into_error())
    }
}
