//! One call on a shared store, from its check to its decision.

use std::borrow::Cow;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Poll, Waker};

use tracing::Instrument;

use super::entry::Entry;
use super::held::Asked;
use super::job::{Answer, Miss, Outcome, Work};
use super::lane::Lane;
use super::view::View;
use super::{SharedLimit, escrow, gather};
use crate::clock::Micros;
use crate::decision::{Decision, Receipt, StoreFacts};
use crate::error::{Error, ErrorKind};
use crate::kernel::batch::NEVER;
use crate::key::Slot;
use crate::observe;
use crate::policy::FailurePolicy;
use crate::selector::Candidates;
use crate::sync::Arc;

/// Every client that spends by a plan asks home at least this often: home's word is how it learns of another plan.
pub(super) const SILENCE: Micros = 1_000_000;
/// A client that has not heard from home for so long was idle, or home was out of reach.
const IDLE: Micros = 3 * SILENCE;
/// How often a call may find its plan replaced under it.
pub(super) const ATTEMPTS: usize = 5;

impl SharedLimit {
    /// As [`acquire`](Self::acquire), for a key that may not be in use.
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub(crate) async fn acquire_by_key(
        self: &Arc<Self>,
        key: &[u8],
        permits: u64,
        within: Option<Micros>,
    ) -> Result<Decision, Error> {
        if let Some(decision) = self.try_acquire_by_key(key, permits)? {
            return Ok(decision);
        }
        let entry = self.entry(key);
        self.ask_store(&entry, permits, self.clock.now(), within).await
    }

    /// Ends `within` so many microseconds, or within the limiter's deadline if it says none.
    ///
    /// # Cancel safety
    /// Before it was sent it costs nothing; after that its permits are given back when the answer comes.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        permits: u64,
        within: Option<Micros>,
    ) -> Result<Decision, Error> {
        self.check_permits(permits)?;
        let now = self.clock.now();
        if let Some(decision) = self.at_once(entry, permits, now) {
            return Ok(decision);
        }
        self.ask_store(entry, permits, now, within).await
    }

    pub(super) async fn ask_store(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        permits: u64,
        now: Micros,
        within: Option<Micros>,
    ) -> Result<Decision, Error> {
        self.engine.check()?;
        let call = Call { permits, turn: entry.next_turn(now), due: now + within.unwrap_or(self.deadline) };
        if let Some(span) = observe::acquire(&self.name, &entry.key, permits) {
            return Box::pin(self.decide(entry, call, now, 1).instrument(span)).await;
        }
        self.decide(entry, call, now, 1).await
    }

    /// All calls wait in this future, and go from core to core in it, so it is small: what few of them come to is left to
    /// [`go_on`](Self::go_on).
    #[expect(
        clippy::manual_async_fn,
        reason = "what a block captures it has once, what an async function is given twice"
    )]
    fn decide<'a>(
        self: &'a Arc<Self>,
        entry: &'a Arc<Entry>,
        call: Call,
        now: Micros,
        attempt: usize,
    ) -> impl Future<Output = Result<Decision, Error>> + Send + 'a {
        async move {
            let mut now = now;
            if let Some(home) = self.home_to_hear(entry, now) {
                // Not for all of its time: if home does not answer, another shard may.
                let _ = self.put_until(entry, &home, Work::Make, now + call.due.saturating_sub(now) / 2).await;
                now = self.clock.now();
            }
            if call.permits > entry.load().ledger.limit().burst() {
                Box::pin(escrow::ask_home_until(self, entry, call.due)).await;
            }
            let waker = waker().await;
            let asked = match self.begin(entry, call, now, waker)? {
                Begun::Asked(asked) => Some(asked),
                Begun::Decided(decision) => return Ok(self.last_look(entry, call.permits, decision)),
                Begun::All => None,
            };
            let Some(mut asked) = asked else { return self.go_on(entry, call, attempt, None).await };
            match (&mut asked).await {
                Ok(found) if found.verdict.granted > 0 => {
                    observe::allowed(&self.name, &entry.key, call.permits, call.turn);
                    Ok(allowed(entry, call.permits, &found))
                }
                answer => {
                    let is_unknown = is_unknown(&answer);
                    let decided = self.go_on(entry, call, attempt, Some((asked.slot, answer))).await;
                    if is_unknown
                        && matches!(&decided, Ok(decision) if decision.is_allowed())
                        && asked.admit()
                        && let Some(lane) = entry.load().lanes.iter().find(|lane| lane.slot == asked.slot)
                    {
                        self.owe(lane, call.permits);
                    }
                    decided
                }
            }
        }
    }

    /// After the first answer if that did not allow the call; without one if no shard alone holds so many permits.
    fn go_on<'a>(
        self: &'a Arc<Self>,
        entry: &'a Arc<Entry>,
        call: Call,
        attempt: usize,
        first: Option<(Slot, Answer)>,
    ) -> Pin<Box<dyn Future<Output = Result<Decision, Error>> + Send + 'a>> {
        Box::pin(async move {
            let Call { permits, turn, due } = call;
            let asked = first.as_ref().map(|(slot, _)| *slot);
            let decided = match first {
                Some((slot, answer)) => self.ask_another(entry, slot, call, answer).await,
                None => gather::gather(self, entry, permits, due).await,
            };
            let now = self.clock.now();
            match decided {
                Ok(decision) if decision.is_allowed() => {
                    observe::allowed(&self.name, &entry.key, permits, turn);
                    Ok(decision)
                }
                Ok(denied) => Ok(self.last_look(entry, permits, denied)),
                // The plan is another by now; and it is another shard's turn than the one's that was found stale.
                Err(Miss::Stale) if attempt < ATTEMPTS && now < due => {
                    self.decide(entry, Call { turn: turn.wrapping_add(1), ..call }, now, attempt + 1).await
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
        })
    }

    /// If a call is denied, a lease may have come since, and taken what it was denied.
    fn last_look(self: &Arc<Self>, entry: &Arc<Entry>, permits: u64, denied: Decision) -> Decision {
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

    /// Home is asked once in a while, also where the selector does not. A client that was idle waits for its word, unless it
    /// is out of reach: what is known here may be long past. Then its lane comes back.
    fn home_to_hear(self: &Arc<Self>, entry: &Arc<Entry>, now: Micros) -> Option<Arc<Lane>> {
        if entry.silence(now) < SILENCE {
            return None;
        }
        let view = entry.load();
        if view.is_split() {
            if entry.silence(now) > IDLE && !view.home().is_sick(now) {
                return Some(Arc::clone(view.home()));
            }
            if entry.is_due(now, SILENCE) {
                self.nudge(entry, view.home());
            }
        }
        None
    }

    /// Takes a seat for the shard that the selector picks, or for one that could have enough if that can't.
    fn begin<'a>(
        self: &'a Arc<Self>,
        entry: &'a Arc<Entry>,
        call: Call,
        now: Micros,
        waker: Waker,
    ) -> Result<Begun<'a>, Error> {
        let Call { permits, turn, due } = call;
        let view = entry.load();
        // Home's limit rules, also where it is not the one that was defined here.
        view.ledger.limit().check_permits(permits)?;
        let Some(lanes) = candidates(&view, permits) else {
            return Ok(self.shut(entry, &view, permits, now).map_or(Begun::All, Begun::Decided));
        };
        let first = match lanes.len() {
            1 => 0,
            count => self.selector.select(&Candidates { lanes: &lanes, turn, now }) % count,
        };
        let mut lane = &lanes[first];
        let is_sick = lane.is_sick(now);
        if is_sick || self.ceiling > 0 && lane.opens_in(&lane.ceiling.known(), permits, now) != Some(0) {
            match hop(&lanes, lane.slot, permits, now) {
                Some(other) => lane = other,
                None if is_sick => {
                    self.try_again(entry, lane, now);
                    let decision = self.by_policy(entry, lane, permits, now, true, || lane.sick(now))?;
                    return Ok(Begun::Decided(decision));
                }
                None => {
                    // The others have nothing left. Of those that are sick, the policy may know better.
                    if let Some(sick) = lanes.iter().find(|lane| lane.is_sick(now))
                        && self.policy() != FailurePolicy::Error
                    {
                        self.try_again(entry, sick, now);
                        return Ok(Begun::Decided(self.by_policy(entry, sick, permits, now, true, || sick.sick(now))?));
                    }
                    if let Some(denied) = self.shut(entry, &view, permits, now) {
                        return Ok(Begun::Decided(denied));
                    }
                }
            }
        }
        Ok(Begun::Asked(Asked::new(self, entry, lane, Work::Ask(permits), (now, due), waker)))
    }

    /// A shard has denied, or surely was not asked: one other that could have enough is.
    async fn ask_another(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        first: Slot,
        Call { permits, due, .. }: Call,
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
        entry.pass_turn();
        let now = self.clock.now();
        let opens_in = |lane: &Arc<Lane>| lane.opens_in(&lane.ceiling.known(), permits, now);
        let elsewhere = view.lanes.iter().filter(|other| other.slot != asked && !other.is_sick(now));
        let elsewhere = elsewhere.filter_map(opens_in).min();
        // Its ceiling lets nobody through a little longer than the shard itself said. What others ask for on their way is no
        // matter: they may well be denied.
        let ceiling = found.round.lane.ceiling.known().opens_in(&found.share, permits, 0, now).unwrap_or(0);
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
        Asked::new(self, entry, lane, work, (now, due), waker().await).await
    }
}

/// What a call wants.
#[derive(Clone, Copy)]
struct Call {
    permits: u64,
    turn: u64,
    /// When it is to end, by this process's clock.
    due: Micros,
}

/// How a call begins.
enum Begun<'a> {
    Decided(Decision),
    /// It waits for one shard.
    Asked(Asked<'a>),
    /// No share alone holds so many permits.
    All,
}

/// What wakes the caller.
async fn waker() -> Waker {
    poll_fn(|context| Poll::Ready(context.waker().clone())).await
}

fn is_unknown(answer: &Answer) -> bool {
    matches!(answer, Err(Miss::Failed(error)) if error.kind() == ErrorKind::Unknown)
}

fn allowed(entry: &Entry, permits: u64, found: &Outcome) -> Decision {
    let wait = if found.share.is_paced() { found.wait() } else { 0 };
    let receipt = Receipt::of_shard(entry.owner, &found.charge(permits));
    Decision::allowed_by_store(found.facts, wait, receipt)
}

/// Another shard that could have enough: of those the one that can have the most.
fn hop(lanes: &[Arc<Lane>], denied: Slot, permits: u64, now: Micros) -> Option<&Arc<Lane>> {
    let others = lanes.iter().filter(|lane| lane.slot != denied && lane.is_open(permits, now));
    others.max_by_key(|lane| lane.most(now))
}

/// The lanes to shards that can hold so many permits; none if no single one can.
fn candidates(view: &View, permits: u64) -> Option<Cow<'_, [Arc<Lane>]>> {
    if permits <= view.least_burst {
        return Some(Cow::Borrowed(&view.lanes));
    }
    let fitting: Vec<_> = view.lanes.iter().filter(|lane| lane.burst >= permits).cloned().collect();
    if fitting.is_empty() { None } else { Some(Cow::Owned(fitting)) }
}
