//! What few calls come to: home is to be heard first, or the first shard alone does not tell.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use super::call::{Call, allowed, hop};
use super::entry::Entry;
use super::held::Asked;
use super::job::{Answer, Miss, Work};
use super::lane::Lane;
use super::turn::Over;
use super::{SharedLimit, escrow, gather};
use crate::clock::Micros;
use crate::decision::{Decision, StoreFacts};
use crate::error::{Error, ErrorKind};
use crate::kernel::batch::NEVER;
use crate::key::Slot;
use crate::observe;
use crate::sync::Arc;

/// How often a call may be tried while its plan is replaced under it.
pub(super) const ATTEMPTS: u32 = 5;

/// The rest of a call. Boxed, so that the others carry no room for it.
pub(super) type Further<'a> = Pin<Box<dyn Future<Output = Result<Decision, Error>> + Send + 'a>>;

impl SharedLimit {
    /// What is known of the key may be long past: home is asked before the call goes on, if its lane is given; and if the call asks for more
    /// than is known to be possible.
    #[cold]
    pub(super) fn hear_home_first<'a>(
        self: &'a Arc<Self>,
        entry: &'a Arc<Entry>,
        call: Call,
        home: Option<Arc<Lane>>,
        now: Micros,
    ) -> Further<'a> {
        Box::pin(async move {
            if let Some(home) = home {
                // Not for all of its time: if home does not answer, another shard may.
                let half = call.due.saturating_sub(now) / 2;
                let heard = self.put_until(entry, &home, Work::Make, now + half).await;
                // The rest of its time is not to be spent behind the same request.
                if heard.is_err() && half >= self.deadline / 2 && self.clock.now() >= now + half {
                    self.overdue(&home, now, self.clock.now());
                }
            }
            if call.permits > entry.load().ledger.limit().burst() {
                escrow::ask_home_until(self, entry, call.due).await;
            }
            self.begin_after_home(entry, call).await
        })
    }

    /// After the first answer if that did not allow the call; without one if no shard alone holds so many permits.
    #[cold]
    pub(super) fn go_further<'a>(
        self: &'a Arc<Self>,
        entry: &'a Arc<Entry>,
        call: Call,
        first: Option<(Asked<'a>, Answer)>,
    ) -> Further<'a> {
        Box::pin(async move {
            let Some((mut asked, answer)) = first else {
                let gathered = gather::gather(self, entry, call.permits, call.due).await;
                return self.conclude(entry, call, None, gathered).await;
            };
            let is_unknown = matches!(&answer, Err(Miss::Failed(error)) if error.kind() == ErrorKind::Unknown);
            let answer = self.ask_another(entry, asked.slot, call, answer).await;
            let decided = self.conclude(entry, call, Some(asked.slot), answer).await;
            if is_unknown
                && matches!(&decided, Ok(decision) if decision.is_allowed())
                && asked.admit()
                && let Some(lane) = entry.load().lanes.iter().find(|lane| lane.slot == asked.slot)
            {
                self.owe(lane, call.permits);
            }
            decided
        })
    }

    /// What a call comes to that asked these shards: the one in the slot, or all.
    async fn conclude(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        call: Call,
        asked: Option<Slot>,
        decided: Result<Decision, Miss>,
    ) -> Result<Decision, Error> {
        let Call { permits, turn, due, attempt } = call;
        let now = self.clock.now();
        match decided {
            Ok(decision) if decision.is_allowed() => {
                observe::allowed(&self.name, &entry.key, permits, turn, self.sample);
                Ok(decision)
            }
            Ok(denied) => Ok(self.last_look(entry, permits, denied)),
            // The plan is another by now; and it is another shard's turn than the one's that was found stale.
            Err(Miss::Stale) if attempt < ATTEMPTS && now < due => {
                self.begin_again(entry, Call { turn: turn.wrapping_add(1), attempt: attempt + 1, ..call }).await
            }
            Err(ended @ Miss::Ended { .. }) => Err(ended.into_error()),
            Err(miss) => {
                let view = entry.view();
                let lane = view.lanes.iter().find(|lane| Some(lane.slot) == asked).unwrap_or(view.home());
                let error = miss.into_error();
                // What may have been charged is not charged again.
                let owes = error.kind() != ErrorKind::Unknown;
                self.by_policy(entry, lane, permits, now, owes, || error)
            }
        }
    }

    /// If a call is denied, a lease may have come since, and taken what it was denied.
    pub(super) fn last_look(self: &Arc<Self>, entry: &Arc<Entry>, permits: u64, denied: Decision) -> Decision {
        if denied.is_allowed() {
            return denied;
        }
        let now = self.clock.now();
        // What has come while others wait is theirs.
        if entry.waits.is_empty()
            && let Some(purse) = &entry.purse
            && let Some(decision) = self.spend(entry, purse, permits, now)
        {
            return decision;
        }
        self.tell_denied(&entry.key, permits, now);
        denied
    }

    /// A shard has denied, or surely was not asked: one other that could have enough is.
    async fn ask_another(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        first: Slot,
        Call { permits, turn, due, .. }: Call,
        answer: Answer,
    ) -> Result<Decision, Miss> {
        if let Err(miss) = &answer
            && !matches!(miss, Miss::Failed(error) if error.kind() == ErrorKind::NotSent)
        {
            return Err(miss.clone());
        }
        let (view, now) = (entry.view(), self.clock.now());
        let (mut asked, mut answer) = (first, answer);
        if let Some(other) = hop(&view.lanes, first, permits, now).filter(|_| now < due) {
            match (self.ask(entry, other, Work::Ask(permits), (now, due)).await, &answer) {
                // One shard has denied; that the other can't be reached does not change it.
                (Err(Miss::Failed(_)), Ok(_)) => {}
                (second, _) => (asked, answer) = (other.slot, second),
            }
        }
        let found = answer?;
        if found.verdict.granted > 0 {
            return Ok(allowed(entry, permits, &found));
        }
        // Home lent so much of its share while the call was on its way that it can't hold the permits any more. By now
        // the new plan is known, and they can be gathered.
        if found.verdict.lack == NEVER {
            return Err(Miss::Stale);
        }
        entry.pass_turn(turn, Over::Dry);
        let now = self.clock.now();
        let opens_in = |lane: &Arc<Lane>| lane.opens_in(&lane.ceiling.known(), permits, now);
        let elsewhere = view.lanes.iter().filter(|other| other.slot != asked && !other.is_sick(now));
        let elsewhere = elsewhere.filter_map(opens_in).min();
        // Its ceiling lets nobody through a little longer than the shard itself said. What others ask for on their way is no
        // matter: they may well be denied.
        let ceiling = found.lane().ceiling.known().opens_in(&found.share, permits, 0, now).unwrap_or(0);
        let here = found.time(found.verdict.lack).max(ceiling);
        let facts = StoreFacts { part: found.verdict.part(&found.share), ..found.facts };
        Ok(Decision::denied_by_store(facts, elsewhere.map_or(here, |other| other.min(here))))
    }

    pub(super) async fn ask(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        lane: &Arc<Lane>,
        work: Work,
        (now, due): (Micros, Micros),
    ) -> Answer {
        let waker = poll_fn(|context| Poll::Ready(context.waker().clone())).await;
        Asked::new(self, entry, lane, work, (now, due), waker).await
    }
}
