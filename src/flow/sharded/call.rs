//! One call on a shared store, from its check to its decision.

use std::borrow::Cow;
use std::time::Duration;

use tracing::Instrument;

use super::entry::{Entry, View};
use super::held::{Asked, Turn};
use super::job::{Answer, Miss, Outcome, Work, outcome};
use super::lane::Lane;
use super::{SharedLimit, gather};
use crate::clock::Micros;
use crate::decision::{Decision, Peek, Receipt, StoreFacts};
use crate::error::{Error, ErrorKind};
use crate::kernel::batch::NEVER;
use crate::observe;
use crate::selector::Candidates;
use crate::sync::Arc;

/// Every client that spends by a plan asks home at least this often: home's word is how it learns of another plan.
const SILENCE: Micros = 1_000_000;
/// How often a call may find its plan replaced under it.
pub(super) const ATTEMPTS: usize = 5;

impl SharedLimit {
    /// # Cancel safety
    /// Before it was sent it costs nothing; after that its permits are given back when the answer comes.
    pub(crate) async fn acquire(self: &Arc<Self>, entry: &Arc<Entry>, permits: u64) -> Result<Decision, Error> {
        self.limit.check_permits(permits)?;
        let span = observe::acquire(&self.name, &entry.key, permits);
        self.decide(entry, permits).instrument(span).await
    }

    async fn decide(self: &Arc<Self>, entry: &Arc<Entry>, permits: u64) -> Result<Decision, Error> {
        let turn = entry.next_turn();
        let mut miss = None;
        for _ in 0..ATTEMPTS {
            let view = entry.view();
            self.hear_from_home(entry, &view);
            // Home's limit rules, also where it is not the one that was defined here.
            view.ledger.limit.check_permits(permits)?;
            let decided = match candidates(&view, permits) {
                Some(lanes) => self.ask_one(entry, &view, &lanes, permits, turn).await,
                None => gather::gather(self, entry, &view, permits).await,
            };
            match decided {
                Ok(decision) => {
                    self.tell(entry, permits, turn, &decision);
                    return Ok(decision);
                }
                Err(Miss::Failed(error)) => return Err(error),
                Err(Miss::Stale) => miss = Some(Miss::Stale),
            }
        }
        Err(error_of(miss.unwrap_or(Miss::Stale)))
    }

    fn tell(&self, entry: &Entry, permits: u64, turn: u64, decision: &Decision) {
        if decision.is_allowed() {
            observe::allowed(&self.name, &entry.key, permits, turn);
        } else {
            observe::denied(&self.name, &entry.key, permits);
        }
    }

    /// Has home asked once in a while, also where the selector does not. No call waits for it: home may be out of reach.
    fn hear_from_home(self: &Arc<Self>, entry: &Arc<Entry>, view: &View) {
        if view.is_split() && entry.is_due(self.clock.now(), SILENCE) {
            drop(self.put(entry, view.home(), Work::Make));
        }
    }

    /// Asks the shard that the selector picks. If that denies, or surely was not asked, one other that could have enough.
    async fn ask_one(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        view: &View,
        lanes: &[Arc<Lane>],
        permits: u64,
        turn: u64,
    ) -> Result<Decision, Miss> {
        let first = match lanes.len() {
            1 => 0,
            count => self.selector.select(&Candidates { lanes, turn, now: self.clock.now() }) % count,
        };
        let (mut lane, mut answer) = (&lanes[first], self.ask(entry, &lanes[first], permits).await);
        let may_hop = match &answer {
            Ok(found) => found.verdict.granted == 0,
            Err(Miss::Failed(error)) => error.kind() == ErrorKind::NotSent,
            Err(Miss::Stale) => false,
        };
        if may_hop && let Some(other) = self.hop(lanes, first, permits) {
            match (self.ask(entry, other, permits).await, &answer) {
                // One shard has denied; that the other can't be reached does not change it.
                (Err(Miss::Failed(_)), Ok(_)) => {}
                (second, _) => (lane, answer) = (other, second),
            }
        }
        let found = answer?;
        // Home lent so much of its share while the call was on its way that it can't hold the permits any more. By now
        // the new plan is known, and they can be gathered.
        if found.verdict.granted == 0 && found.verdict.lack == NEVER {
            return Err(Miss::Stale);
        }
        Ok(self.decision(entry, view, lane, permits, &found))
    }

    /// Another shard that could have enough: of those the one that can have the most.
    fn hop<'a>(&self, lanes: &'a [Arc<Lane>], denied: usize, permits: u64) -> Option<&'a Arc<Lane>> {
        let now = self.clock.now();
        let others = lanes.iter().enumerate().filter(|(index, _)| *index != denied).map(|(_, lane)| lane);
        others.filter(|lane| lane.allows(permits, now)).max_by_key(|lane| lane.ceiling.most(now))
    }

    pub(super) async fn ask(self: &Arc<Self>, entry: &Arc<Entry>, lane: &Arc<Lane>, permits: u64) -> Answer {
        Asked::new(self, entry, lane, permits).answer().await
    }

    fn decision(&self, entry: &Entry, view: &View, lane: &Lane, permits: u64, found: &Outcome) -> Decision {
        let Outcome { header, verdict, share, .. } = found;
        let time = |units: i64| (units.max(0) as u64).div_ceil(share.rate() as u64) + (header.at - header.now);
        let facts = self.facts(view, Some((lane, found)));
        if verdict.granted == 0 {
            let now = self.clock.now();
            let elsewhere = view.lanes.iter().filter(|other| other.slot != lane.slot);
            let elsewhere = elsewhere.filter_map(|other| other.ceiling.wait_for(permits, now)).min();
            let here = time(verdict.lack);
            return Decision::denied_by_store(facts, elsewhere.map_or(here, |other| other.min(here)));
        }
        let wait = if share.is_paced() && verdict.line > 0 { time(verdict.line) } else { 0 };
        let charges = vec![found.charge(lane.slot, permits)];
        Decision::allowed_by_store(facts, wait, Receipt::shared(entry.owner, charges))
    }

    /// What is left on all shards: exact where one shard is all there is, else what they can have at the most.
    pub(super) fn facts(&self, view: &View, latest: Option<(&Lane, &Outcome)>) -> StoreFacts {
        let now = self.clock.now();
        let mut facts = StoreFacts { remaining: 0, reset_after: 0, exact: view.lanes.len() == 1 };
        for lane in &view.lanes {
            match latest {
                Some((asked, Outcome { header, share, .. })) if asked.slot == lane.slot => {
                    facts.remaining += header.level.max(0) as u64 / share.cost() as u64;
                    let behind = header.at - header.now;
                    let missing = (header.missing.max(0) as u64).div_ceil(share.rate() as u64);
                    facts.reset_after = if missing == 0 { 0 } else { missing + behind };
                }
                _ => facts.remaining += lane.ceiling.most(now),
            }
        }
        facts
    }

    /// # Cancel safety
    /// It changes nothing, whenever it is dropped.
    pub(crate) async fn peek(self: &Arc<Self>, entry: &Arc<Entry>) -> Result<Peek, Error> {
        let (view, outcomes) = self.on_all(entry, Work::Look).await?;
        let mut facts = StoreFacts { remaining: 0, reset_after: 0, exact: view.lanes.len() == 1 };
        for Outcome { header, share, .. } in outcomes {
            facts.remaining += header.level.max(0) as u64 / share.cost() as u64;
            let missing = (header.missing.max(0) as u64).div_ceil(share.rate() as u64);
            facts.reset_after = facts.reset_after.max(missing);
        }
        Ok(Peek::by_store(facts))
    }

    /// # Cancel safety
    /// Some shards may be reset and others not.
    pub(crate) async fn reset(self: &Arc<Self>, entry: &Arc<Entry>) -> Result<(), Error> {
        let (view, _) = self.on_all(entry, Work::Reset).await?;
        view.lanes.iter().for_each(|lane| lane.ceiling.clear());
        Ok(())
    }

    /// The same on every shard at once; home first tells whether the plan is still this one.
    async fn on_all(self: &Arc<Self>, entry: &Arc<Entry>, work: Work) -> Result<(Arc<View>, Vec<Outcome>), Error> {
        let mut miss = Miss::Stale;
        for _ in 0..ATTEMPTS {
            let view = entry.view();
            let answers: Vec<_> = view.lanes.iter().map(|lane| self.put(entry, lane, work)).collect();
            let mut outcomes = Vec::with_capacity(answers.len());
            let mut missed = None;
            for answer in answers {
                match outcome(answer).await {
                    Ok(outcome) => outcomes.push(outcome),
                    Err(Miss::Failed(error)) => return Err(error),
                    Err(Miss::Stale) => missed = Some(Miss::Stale),
                }
            }
            match missed {
                None if entry.view().id == view.id => return Ok((view, outcomes)),
                None => {}
                Some(stale) => miss = stale,
            }
        }
        Err(error_of(miss))
    }

    /// Asks until it is allowed or `timeout` has passed, not before an answer says that it is worth it.
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub(crate) async fn acquire_within(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        permits: u64,
        timeout: Duration,
    ) -> Result<Decision, Error> {
        let timeout = Micros::try_from(timeout.as_micros()).unwrap_or(Micros::MAX);
        let deadline = self.clock.now().saturating_add(timeout);
        loop {
            let decision = self.acquire(entry, permits).await?;
            let (now, wait) = (self.clock.now(), decision.time_to_wait());
            let due = now.saturating_add(wait.as_micros() as Micros);
            match decision {
                Decision::Allowed(allowed) if wait.is_zero() => return Ok(Decision::Allowed(allowed)),
                Decision::Allowed(allowed) if due <= deadline => {
                    let turn = Turn::new(self, entry, allowed);
                    self.until(due).await;
                    let allowed = turn.take().expect("nobody else takes it");
                    return Ok(Decision::Allowed(allowed.waited()));
                }
                // A turn in a pacing queue that comes too late: it is given back, and the answer is no.
                Decision::Allowed(allowed) => {
                    let denied = allowed.denied_by(due - deadline);
                    self.refund(entry, allowed.receipt(), permits).await?;
                    return Ok(denied);
                }
                Decision::Denied(denied) if due > deadline || now >= deadline => return Ok(Decision::Denied(denied)),
                Decision::Denied(_) => self.until(due.max(now + 1)).await,
            }
        }
    }

    async fn until(&self, due: Micros) {
        let mut alarm = None;
        std::future::poll_fn(|context| {
            if self.clock.now() >= due {
                return std::task::Poll::Ready(());
            }
            alarm = Some(self.clock.wake_at(due, context.waker()));
            std::task::Poll::Pending
        })
        .await;
        drop(alarm);
    }
}

/// The lanes to shards that can hold so many permits; none if no single one can.
fn candidates(view: &View, permits: u64) -> Option<Cow<'_, [Arc<Lane>]>> {
    if view.lanes.iter().all(|lane| lane.burst >= permits) {
        return Some(Cow::Borrowed(&view.lanes));
    }
    let fitting: Vec<_> = view.lanes.iter().filter(|lane| lane.burst >= permits).cloned().collect();
    if fitting.is_empty() { None } else { Some(Cow::Owned(fitting)) }
}

pub(super) fn error_of(miss: Miss) -> Error {
    match miss {
        Miss::Failed(error) => error,
        Miss::Stale => Error::new(
            ErrorKind::NotSent,
            "redis",
            "the key's shares were moved again and again while the call was made; nothing was charged; try again",
        ),
    }
}
