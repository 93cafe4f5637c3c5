//! One call on a shared store, from its check to the first shard's answer. What few of them come to after that is in `further`.

use std::borrow::Cow;
use std::pin::Pin;
use std::task::{Context, Poll};

use tracing::Instrument;

use super::SharedLimit;
use super::entry::Entry;
use super::further::Further;
use super::held::Asked;
use super::job::{Outcome, Work};
use super::lane::Lane;
use super::turn::Over;
use super::view::View;
use crate::clock::Micros;
use crate::decision::{Decision, Receipt};
use crate::error::Error;
use crate::key::Slot;
use crate::observe;
use crate::policy::FailurePolicy;
use crate::selector::Candidates;
use crate::sync::Arc;

/// Every client that spends by a plan asks home at least this often: home's word is how it learns of another plan.
pub(super) const SILENCE: Micros = 1_000_000;
/// A client that has not heard from home for so long was idle, or home was out of reach.
const IDLE: Micros = 3 * SILENCE;

/// What a call wants.
#[derive(Clone, Copy)]
pub(super) struct Call {
    pub permits: u64,
    pub turn: u64,
    /// When it is to end, by this process's clock.
    pub due: Micros,
    /// The first is 1; with each that finds its plan replaced under it, one more.
    pub attempt: u32,
}

impl SharedLimit {
    /// A call for a key that may not be in use.
    ///
    /// # Cancel safety
    /// As [`ask_store`](Self::ask_store).
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
        // It was idle, and nobody was told yet that it may have use for leases.
        if let Some(purse) = entry.purse.as_ref().filter(|purse| purse.is_new() && self.is_worth_leasing(&entry)) {
            purse.miss(permits);
            self.refill(&entry, purse);
        }
        self.ask_store(&entry, permits, self.clock.now(), within).await
    }

    /// What this process decides by itself; else what `otherwise` comes to, for a call that began at that moment. No part of the future below,
    /// and made where the caller wants it: a decision that is moved on its way costs a tenth of the call each time.
    #[inline(never)]
    pub(crate) fn decide_here(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        permits: u64,
        otherwise: impl FnOnce(Micros) -> Poll<Result<Decision, Error>>,
    ) -> Poll<Result<Decision, Error>> {
        if let Err(error) = self.check_permits(permits) {
            return Poll::Ready(Err(error));
        }
        let now = self.clock.now();
        match self.at_once(entry, permits, now) {
            Some(decision) => Poll::Ready(Ok(decision)),
            None => otherwise(now),
        }
    }

    /// For what can't be decided in process. Ends `within` so many microseconds, or within the limiter's deadline if it says none.
    ///
    /// # Cancel safety
    /// Before it was sent it costs nothing; after that its permits are given back when the answer comes.
    #[inline]
    pub(crate) fn ask_store<'a>(
        self: &'a Arc<Self>,
        entry: &'a Arc<Entry>,
        permits: u64,
        now: Micros,
        within: Option<Micros>,
    ) -> Acquiring<'a> {
        Acquiring { limit: self, entry, state: State::New { permits, now, within } }
    }

    /// One after the other, for those with whom a future more is no matter.
    ///
    /// # Cancel safety
    /// As [`ask_store`](Self::ask_store).
    pub(super) async fn acquire(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        permits: u64,
        within: Option<Micros>,
    ) -> Result<Decision, Error> {
        self.check_permits(permits)?;
        let now = self.clock.now();
        match self.at_once(entry, permits, now) {
            Some(decision) => Ok(decision),
            None => self.ask_store(entry, permits, now, within).await,
        }
    }

    /// As [`ask_store`](Self::ask_store), for a call that was begun before.
    pub(super) fn begin_again<'a>(self: &'a Arc<Self>, entry: &'a Arc<Entry>, call: Call) -> Acquiring<'a> {
        Acquiring { limit: self, entry, state: State::Checked(call) }
    }

    /// The same, for one that has heard from home.
    pub(super) fn begin_after_home<'a>(self: &'a Arc<Self>, entry: &'a Arc<Entry>, call: Call) -> Acquiring<'a> {
        Acquiring { limit: self, entry, state: State::Heard(call) }
    }
}

/// A call on its way.
///
/// All calls wait in this, and go from core to core in it, so it is small. And it is one future, not one in another for every
/// function that waits: each of them would be gone through twice a call, and have the decision moved once more.
///
/// # Cancel safety
/// As [`SharedLimit::ask_store`].
#[must_use = "futures do nothing unless polled"]
pub(crate) struct Acquiring<'a> {
    limit: &'a Arc<SharedLimit>,
    entry: &'a Arc<Entry>,
    state: State<'a>,
}

enum State<'a> {
    New {
        permits: u64,
        now: Micros,
        within: Option<Micros>,
    },
    /// It is for the store to decide; home may have to be heard first.
    Checked(Call),
    /// It was.
    Heard(Call),
    /// It waits for one shard.
    Asked(Call, Asked<'a>),
    /// One that is followed by a span, hears home first, or does not know by the first shard's answer.
    Further(Further<'a>),
    Over,
}

impl Acquiring<'_> {
    /// Its decision, if it has one at once. Else it waits for a shard, or goes further.
    fn begin(&mut self, context: &Context<'_>) -> Result<Option<Decision>, Error> {
        let Self { limit, entry, .. } = *self;
        let view = entry.load();
        let (call, now) = match self.state {
            State::New { permits, now, within } => {
                limit.engine.check()?;
                let due = now + within.unwrap_or(limit.deadline);
                let call = Call { permits, turn: entry.next_turn(&view, now), due, attempt: 1 };
                if let Some(span) = observe::acquire(&limit.name, &entry.key, permits) {
                    self.state = State::Further(Box::pin(limit.begin_again(entry, call).instrument(span)));
                    return Ok(None);
                }
                (call, now)
            }
            State::Checked(call) | State::Heard(call) => (call, limit.clock.now()),
            State::Asked(..) | State::Further(_) | State::Over => unreachable!("it has begun"),
        };
        if !matches!(self.state, State::Heard(_))
            && let Some(hearing) = limit.hear_first(entry, &view, call, now)
        {
            self.state = State::Further(hearing);
            return Ok(None);
        }
        self.state = match limit.ask_first(entry, &view, call, now, context)? {
            First::Asked(asked) => State::Asked(call, asked),
            First::Decided(decision) => return Ok(Some(limit.last_look(entry, call.permits, decision))),
            First::All => State::Further(limit.go_further(entry, call, None)),
        };
        Ok(None)
    }
}

impl Future for Acquiring<'_> {
    type Output = Result<Decision, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if matches!(this.state, State::New { .. } | State::Checked(_) | State::Heard(_))
            && let Some(decided) = this.begin(context).transpose()
        {
            this.state = State::Over;
            return Poll::Ready(decided);
        }
        if let State::Asked(call, asked) = &mut this.state {
            let (call, Poll::Ready(answer)) = (*call, Pin::new(&mut *asked).poll(context)) else {
                return Poll::Pending;
            };
            if let Ok(found) = &answer
                && found.verdict.granted > 0
            {
                observe::allowed(&this.limit.name, &this.entry.key, call.permits, call.turn, this.limit.sample);
                let decision = allowed(this.entry, call.permits, found);
                this.state = State::Over;
                return Poll::Ready(Ok(decision));
            }
            if let State::Asked(_, asked) = std::mem::replace(&mut this.state, State::Over) {
                this.state = State::Further(this.limit.go_further(this.entry, call, Some((asked, answer))));
            }
        }
        let State::Further(further) = &mut this.state else { panic!("a call was polled after its end") };
        let decided = further.as_mut().poll(context);
        if decided.is_ready() {
            this.state = State::Over;
        }
        decided
    }
}

/// How a call begins.
enum First<'a> {
    Decided(Decision),
    /// It waits for one shard.
    Asked(Asked<'a>),
    /// No share alone holds so many permits.
    All,
}

impl SharedLimit {
    /// Home is asked once in a while, also where the selector does not. A client that was idle waits for its word, unless it
    /// is out of reach: what is known here may be long past. So does one that asks for more than is known to be possible.
    #[inline]
    fn hear_first<'a>(
        self: &'a Arc<Self>,
        entry: &'a Arc<Entry>,
        view: &View,
        call: Call,
        now: Micros,
    ) -> Option<Further<'a>> {
        let mut home = None;
        let silence = entry.silence(now);
        if silence >= SILENCE && view.is_split() {
            if silence > IDLE && !view.home().is_sick(now) {
                home = Some(Arc::clone(view.home()));
            } else if entry.is_due(now, SILENCE) {
                self.nudge(entry, view.home());
            }
        }
        if home.is_some() || call.permits > view.ledger.limit().burst() {
            return Some(self.hear_home_first(entry, call, home, now));
        }
        None
    }

    /// Takes a seat for the shard that the selector picks, or for one that could have enough if that can't.
    #[inline]
    fn ask_first<'a>(
        self: &'a Arc<Self>,
        entry: &'a Arc<Entry>,
        view: &View,
        call: Call,
        now: Micros,
        context: &Context<'_>,
    ) -> Result<First<'a>, Error> {
        let Call { permits, turn, due, .. } = call;
        // Home's limit rules, also where it is not the one that was defined here.
        view.ledger.limit().check_permits(permits)?;
        let Some(lanes) = candidates(view, permits) else {
            return Ok(self.shut(entry, view, permits, now).map_or(First::All, First::Decided));
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
                    return Ok(First::Decided(decision));
                }
                None => {
                    // The others have nothing left. Of those that are sick, the policy may know better.
                    if let Some(sick) = lanes.iter().find(|lane| lane.is_sick(now))
                        && self.policy() != FailurePolicy::Error
                    {
                        self.try_again(entry, sick, now);
                        return Ok(First::Decided(self.by_policy(entry, sick, permits, now, true, || sick.sick(now))?));
                    }
                    if let Some(denied) = self.shut(entry, view, permits, now) {
                        return Ok(First::Decided(denied));
                    }
                }
            }
        }
        let asked = Asked::new(self, entry, lane, Work::Ask(permits), (now, due), context.waker().clone());
        if asked.fills {
            entry.pass_turn(turn, Over::Full);
        }
        Ok(First::Asked(asked))
    }
}

#[inline]
pub(super) fn allowed(entry: &Entry, permits: u64, found: &Outcome) -> Decision {
    let wait = if found.share.is_paced() { found.wait() } else { 0 };
    let receipt = Receipt::of_shard(entry.owner, &found.charge(permits));
    Decision::allowed_by_store(found.facts, wait, receipt)
}

/// Another shard that could have enough: of those the one that can have the most.
pub(super) fn hop(lanes: &[Arc<Lane>], denied: Slot, permits: u64, now: Micros) -> Option<&Arc<Lane>> {
    let others = lanes.iter().filter(|lane| lane.slot != denied && lane.is_open(permits, now));
    others.max_by_key(|lane| lane.spare(now))
}

/// The lanes to shards that can hold so many permits; none if no single one can.
fn candidates(view: &View, permits: u64) -> Option<Cow<'_, [Arc<Lane>]>> {
    if permits <= view.least_burst {
        return Some(Cow::Borrowed(&view.lanes));
    }
    let fitting: Vec<_> = view.lanes.iter().filter(|lane| lane.burst >= permits).cloned().collect();
    if fitting.is_empty() { None } else { Some(Cow::Owned(fitting)) }
}
