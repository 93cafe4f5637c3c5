//! How a shard's calls are decided while it can't be asked.
//!
//! What this process was granted by the shard lately is what it goes by meanwhile: the processes that shared it then share what is
//! left of it now, without knowing of each other.

use std::time::Duration;

use super::SharedLimit;
use super::entry::Entry;
use super::lane::Lane;
use super::local::Local;
use super::meter::Meter;
use crate::clock::Micros;
use crate::decision::{DecidedBy, Decision, Receipt};
use crate::error::Error;
use crate::policy::FailurePolicy;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, lock};

/// What was granted is measured over the last one to two periods of the limit, and of at least and at the most these, in µs. Of a limit a
/// minute one second says nothing, and of a limit a day nobody would hear in time.
const SPANS: (Micros, Micros) = (1_000_000, 60_000_000);

/// Over which time what was granted is measured, of a limit of so long a period.
pub(super) fn span(period: Duration) -> Micros {
    (period.as_micros() as Micros).clamp(SPANS.0, SPANS.1)
}

/// What this process had of a shard lately, and goes by without it.
#[derive(Debug)]
pub(crate) struct Fallback {
    /// Admitted without the shard and not charged to it yet.
    owed: AtomicU64,
    /// Something was decided without the shard since it last answered.
    is_active: AtomicBool,
    span: Micros,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    meter: Meter,
    /// What it granted a second before it was out of reach. The policy may ask for it much later, when the meter has forgotten.
    before: Option<f64>,
    /// While the shard is out of reach, and for a while after that: it may be so again before anything was granted that could be
    /// gone by.
    local: Option<Local>,
    /// When it was in reach again,
    ended: Option<Micros>,
    /// after it had been out of reach.
    anew: bool,
}

impl Fallback {
    /// For a limit of so long a period; what was granted by it lately, if that is known.
    pub(super) fn new(period: Duration, lately: Meter) -> Self {
        let span = span(period);
        let inner = Inner { meter: lately, ..Inner::default() };
        Self { owed: AtomicU64::new(0), is_active: AtomicBool::new(false), span, inner: Mutex::new(inner) }
    }

    /// What was granted lately.
    pub(super) fn lately(&self) -> Meter {
        lock(&self.inner).meter
    }

    /// Permits a second.
    pub(super) fn rate(&self, now: Micros) -> f64 {
        self.lately().rate(self.span, now)
    }

    /// The same, as spans of this length would have it.
    pub(super) fn lately_by(&self, span: Micros, now: Micros) -> Meter {
        self.lately().by(self.span, span, now)
    }

    /// Whether there is more to go by than what was granted lately: something is owed, or the shard was out of reach not long ago.
    pub(super) fn is_in_use(&self, now: Micros) -> bool {
        let had_something = |inner: &Inner| inner.local.is_some() || inner.before.is_some_and(|rate| rate > 0.0);
        let goes_by_it = |inner: &Inner| had_something(inner) && inner.ended.is_none_or(|at| !self.is_over(at, now));
        self.owes() || goes_by_it(&lock(&self.inner))
    }

    /// By now the shard has been back for so long that what it granted since is what counts.
    fn is_over(&self, ended: Micros, now: Micros) -> bool {
        now.saturating_sub(ended) >= 2 * self.span
    }

    /// The shard granted so many permits to this process.
    pub(super) fn granted(&self, permits: u64, now: Micros) {
        lock(&self.inner).meter.add(permits, self.span, now);
    }

    /// So many of them were leased, and go back unspent: what a process takes ahead is no claim of its own.
    pub(super) fn unspent(&self, permits: u64, now: Micros) {
        lock(&self.inner).meter.take_off(permits, self.span, now);
    }

    /// The shard is out of reach. What it granted until `then` is what counts, whatever decides meanwhile.
    pub(super) fn begin(&self, then: Micros) {
        self.begin_by(&mut lock(&self.inner), then);
    }

    fn begin_by(&self, inner: &mut Inner, then: Micros) -> f64 {
        let begins_anew = std::mem::take(&mut inner.anew);
        match inner.ended.take() {
            Some(ended) if self.is_over(ended, then) => (inner.before, inner.local) = (None, None),
            // With nothing.
            Some(_) if begins_anew => inner.local.iter_mut().for_each(|local| local.drain(then)),
            _ => {}
        }
        let Inner { before, meter, .. } = inner;
        *before.get_or_insert_with(|| meter.rate(self.span, then))
    }

    /// The shard answers, after it was out of reach or not.
    pub(super) fn end(&self, was_away: bool, now: Micros) {
        if was_away || self.is_active.swap(false, Ordering::Relaxed) {
            let inner = &mut *lock(&self.inner);
            inner.ended = Some(now);
            inner.anew |= was_away;
        }
    }

    pub(super) fn owes(&self) -> bool {
        self.owed.load(Ordering::Relaxed) > 0
    }

    /// So many permits were admitted without it.
    pub(super) fn owe(&self, permits: u64) {
        self.owed.fetch_add(permits, Ordering::Relaxed);
    }

    /// So many of them are not wanted after all, or fewer if the rest was paid already. Says how many.
    fn forgive(&self, permits: u64) -> u64 {
        let mut forgiven = 0;
        let less = |owed: u64| {
            forgiven = owed.min(permits);
            (forgiven > 0).then(|| owed - forgiven)
        };
        if self.owed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
            && let Some(local) = &mut lock(&self.inner).local
        {
            local.give_back(forgiven);
        }
        forgiven
    }

    /// What is to be charged to the shard first, once.
    pub(super) fn take_owed(&self) -> u64 {
        if self.owes() { self.owed.swap(0, Ordering::Relaxed) } else { 0 }
    }

    /// Takes permits at `ratio` of what was granted lately, of `most` permits a second at the most, and of `without` a second if
    /// nothing was granted. `Err`: not before so many microseconds from now.
    fn take(&self, permits: u64, ratio: f64, (most, without): (f64, f64), now: Micros) -> Result<(), Micros> {
        self.is_active.store(true, Ordering::Relaxed);
        let inner = &mut *lock(&self.inner);
        let lately = self.begin_by(inner, now);
        let rate = ratio * if lately > 0.0 { lately.min(most) } else { without };
        let local = inner.local.get_or_insert_with(|| Local::new(rate, now));
        // Somebody has changed the ratio, or the limit.
        if local.rate.to_bits() != rate.to_bits() {
            *local = local.at(rate, now);
        }
        local.take(permits, now)
    }
}

#[cfg(any(test, races))]
impl Default for Fallback {
    fn default() -> Self {
        Self::new(Duration::from_secs(1), Meter::default())
    }
}

impl Entry {
    /// What a call was admitted without its shard is given back: it is not charged when the shard is back. What was charged by then is
    /// not known by its call any more, and stays.
    pub(super) fn forgive(&self, permits: u64) {
        let mut left = permits;
        for lane in &self.view().lanes {
            left -= lane.counts.fallback.forgive(left);
        }
    }
}

impl SharedLimit {
    pub(super) fn policy(&self) -> FailurePolicy {
        self.policy.get().or_else(|| self.policy_of_all.get()).unwrap_or_default()
    }

    pub(crate) fn set_policy(&self, policy: Option<FailurePolicy>) {
        self.policy.set(policy);
    }

    /// Decides a call whose shard can't. `owes`: the shard surely has not charged it, and is to when it is back. `error`: what
    /// the caller learns if that is the policy.
    pub(super) fn by_policy(
        self: &Arc<Self>,
        entry: &Entry,
        lane: &Lane,
        permits: u64,
        now: Micros,
        owes: bool,
        error: impl FnOnce() -> Error,
    ) -> Result<Decision, Error> {
        let fallback = &lane.counts.fallback;
        let taken = match self.policy() {
            FailurePolicy::Error => return Err(error()),
            FailurePolicy::Open => Ok(()),
            FailurePolicy::Closed => Err(lane.tried_in(now)),
            FailurePolicy::Local { ratio } => {
                let most = lane.permits as f64 / entry.load().ledger.limit().period().as_secs_f64();
                let without = if self.gateways == 0 { 0.0 } else { most / f64::from(self.gateways) };
                fallback.take(permits, ratio, (most, without), now)
            }
        };
        // A key that is decided without its shard is more to keep than others, until it is back.
        self.call_collector();
        let facts = entry.outlook(now, DecidedBy::Fallback);
        Ok(match taken {
            Ok(()) => {
                self.failures.allowed.fetch_add(1, Ordering::Relaxed);
                if owes {
                    self.owe(lane, permits);
                }
                Decision::allowed_by_store(facts, 0, Receipt::local(entry.owner, permits, now, 0))
            }
            Err(wait) => {
                self.failures.denied.fetch_add(1, Ordering::Relaxed);
                self.tell_denied(&entry.key, permits, now);
                // One that answers may have enough before that.
                let elsewhere = entry.load().opens_elsewhere_in(permits, now);
                Decision::denied_by_store(facts, elsewhere.map_or(wait, |other| other.clamp(1, wait.max(1))))
            }
        })
    }

    /// Has a shard that is sick tried, once in a while. Nobody waits for it.
    pub(super) fn try_again(self: &Arc<Self>, entry: &Arc<Entry>, lane: &Arc<Lane>, now: Micros) {
        if lane.counts.health.is_to_be_tried(now, self.timeout.as_micros() as Micros) {
            self.nudge(entry, lane);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::local::AGAIN;
    use super::*;

    const SECOND: Micros = 1_000_000;

    /// Grants `a_second` permits a second, in steps of a millisecond, for `seconds`.
    fn granted(a_second: u64, seconds: u64) -> (Fallback, Micros) {
        let fallback = Fallback::default();
        let begun = 77 * SECOND;
        for milli in 0..seconds * 1_000 {
            fallback.granted(a_second * (milli + 1) / 1_000 - a_second * milli / 1_000, begun + milli * 1_000);
        }
        (fallback, begun + seconds * SECOND)
    }

    fn admitted(fallback: &Fallback, from: Micros, seconds: u64, ratio: f64, most: f64) -> u64 {
        let moments = (0..seconds * 10_000).map(|tenth| from + tenth * 100);
        moments.filter(|now| fallback.take(1, ratio, (most, 0.0), *now).is_ok()).count() as u64
    }

    #[test]
    fn it_goes_on_at_the_ratio_of_what_was_granted() {
        for (rate, ratio) in [(1_000, 0.5), (1_000, 1.0), (300, 0.1), (4, 0.5)] {
            let (fallback, now) = granted(rate, 5);
            let due = (rate as f64 * ratio * 10.0) as u64;
            let admitted = admitted(&fallback, now, 10, ratio, 1e9);
            assert!((due * 9 / 10..=due).contains(&admitted), "{admitted} of {due} at {rate}/s and {ratio}");
        }
    }

    /// A burst that was just spent is no rate to go on at.
    #[test]
    fn it_stays_below_the_ratio_of_the_share() {
        let (fallback, now) = granted(10_000, 2);
        let admitted = admitted(&fallback, now, 10, 0.5, 20.0);
        assert!((90..=100).contains(&admitted), "{admitted}");
    }

    #[test]
    fn it_begins_with_nothing_and_denies_without_a_history() {
        let (fallback, now) = granted(1_000, 3);
        let wait = fallback.take(1, 0.5, (1e9, 0.0), now).unwrap_err();
        assert!((1_900..=2_100).contains(&wait), "{wait}: a permit of 500 a second");
        assert_eq!(fallback.take(1, 0.5, (1e9, 0.0), now + wait), Ok(()));

        let strange = Fallback::default();
        assert_eq!(strange.take(1, 0.5, (1e9, 0.0), now), Err(AGAIN));
        assert_eq!(strange.take(1, 0.5, (1e9, 0.0), now + 100 * SECOND), Err(AGAIN));
        let told = Fallback::default();
        assert!(told.take(1, 0.5, (1e9, 10.0), now).is_err());
        assert_eq!(told.take(1, 0.5, (1e9, 10.0), now + SECOND), Ok(()), "five a second");
    }

    /// What is remembered fades: a process that was idle has no claim.
    #[test]
    fn what_was_granted_long_ago_does_not_count() {
        let (fallback, now) = granted(1_000, 3);
        assert_eq!(fallback.take(1, 1.0, (1e9, 0.0), now + 2 * SECOND), Err(AGAIN));
    }

    /// Whatever decided until then, an operator who has it decide later finds what there was before the fault.
    #[test]
    fn what_was_granted_before_the_fault_counts_however_late_it_is_asked_for() {
        let (fallback, now) = granted(1_000, 3);
        fallback.begin(now);
        for second in 1..10 {
            fallback.begin(now + second * SECOND);
        }
        let later = now + 10 * SECOND;
        assert!(fallback.is_in_use(later));
        let half = admitted(&fallback, later, 2, 0.5, 1e9);
        assert!((900..=1_000).contains(&half), "{half}");
        fallback.end(true, later + 2 * SECOND);
        assert!(!fallback.is_in_use(later + 4 * SECOND));
        fallback.begin(later + 4 * SECOND);
        assert_eq!(fallback.take(1, 0.5, (1e9, 0.0), later + 5 * SECOND), Err(AGAIN), "it was back for long enough");
    }

    #[test]
    fn another_ratio_counts_at_once_and_brings_nothing_along() {
        let (fallback, now) = granted(1_000, 3);
        for (number, (ratio, due)) in [(0.5, 500), (0.1, 100), (1.0, 1_000), (0.5, 500)].into_iter().enumerate() {
            let admitted = admitted(&fallback, now + number as u64 * SECOND, 1, ratio, 1e9);
            assert!((due * 9 / 10..=due + 1).contains(&admitted), "{admitted} of {due} at {ratio}");
        }
        // What it holds by then it keeps, as far as that is held at the new ratio: 50 of 500 a second, and of those 10 of 100.
        let rested = now + 10 * SECOND;
        assert_eq!(fallback.take(10, 0.1, (1e9, 0.0), rested), Ok(()));
        assert!(fallback.take(1, 0.1, (1e9, 0.0), rested).is_err());
    }

    /// A process that takes ahead twice what it spends went on at its whole rate, where half of it is stated.
    #[test]
    fn what_was_leased_and_not_spent_does_not_count() {
        let (fallback, now) = granted(1_000, 3);
        fallback.unspent(500, now);
        let admitted = admitted(&fallback, now, 10, 0.5, 1e9);
        assert!((2_250..=2_500).contains(&admitted), "{admitted} of 2,500: 500 a second were spent");
        let (all, now) = granted(1_000, 3);
        all.unspent(1_000_000, now);
        assert_eq!(all.take(1, 0.5, (1e9, 0.0), now + SECOND), Err(AGAIN), "nothing was spent");
    }

    #[test]
    fn it_owes_what_it_admitted_once() {
        let fallback = Fallback::default();
        fallback.owe(3);
        fallback.owe(4);
        assert_eq!((fallback.take_owed(), fallback.take_owed()), (7, 0));
    }

    /// A shard that comes and goes: what it was worth before the first fault counts until it has been back for a while.
    #[test]
    fn a_shard_that_is_back_ends_it() {
        let (fallback, now) = granted(100, 3);
        assert!(fallback.take(1, 1.0, (1e9, 0.0), now).is_err());
        for second in 1..10 {
            let again = now + second * SECOND;
            fallback.end(true, again);
            assert_eq!(fallback.take(1, 1.0, (1e9, 0.0), again + 9), Err(10_000), "{second}: it begins with nothing");
            assert_eq!(fallback.take(1, 1.0, (1e9, 0.0), again + 9 + 10_000), Ok(()), "{second}");
        }
        fallback.end(true, now + 10 * SECOND);
        // The next fault goes by what was granted before that: nothing.
        assert_eq!(fallback.take(1, 1.0, (1e9, 0.0), now + 12 * SECOND), Err(AGAIN));
    }

    /// A call that found its queue full was decided without a shard that was never away: what was granted then was gone by for ever.
    #[test]
    fn a_shard_that_was_never_away_ends_it_too() {
        let (fallback, now) = granted(100, 3);
        assert!(fallback.take(1, 1.0, (1e9, 0.0), now).is_err());
        fallback.end(false, now);
        assert_eq!(fallback.take(1, 1.0, (1e9, 0.0), now + 10_000), Ok(()), "it goes on where it was");
        assert!(fallback.is_in_use(now + 60 * SECOND), "nobody has answered");
        fallback.end(false, now);
        assert!(fallback.is_in_use(now + SECOND) && !fallback.is_in_use(now + 2 * SECOND));
        assert_eq!(fallback.take(1, 1.0, (1e9, 0.0), now + 2 * SECOND), Err(AGAIN));
    }

    /// Of a limit a minute, a minute counts; and an answer that was sent before the minute's edge does not end it.
    #[test]
    fn it_goes_by_the_period_of_the_limit() {
        let fallback = Fallback::new(Duration::from_secs(60), Meter::default());
        let edge = 600 * SECOND;
        fallback.granted(120, edge - 10 * SECOND);
        fallback.granted(0, edge + SECOND);
        fallback.granted(0, edge - 1);
        let wait = fallback.take(1, 1.0, (1e9, 0.0), edge + 2 * SECOND).unwrap_err();
        assert!((500_000..=1_000_000).contains(&wait), "{wait}: one to two permits a second");
        let other = Fallback::new(Duration::from_secs(60), fallback.lately());
        assert_eq!(other.take(1, 1.0, (1e9, 0.0), edge + 2 * SECOND), Err(wait), "an idle key goes on by it");
    }
}
