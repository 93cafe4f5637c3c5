//! A client: what it knows of a key and what it does next, as `src/flow/sharded/moves.rs` and `escrow.rs` have it.

use std::hash::{Hash, Hasher};

use super::message::{Request, Rewriting};
use super::mistakes;
use super::scripts::unknown;
use super::server::{Home, Known};
use super::setup::{Broken, Setup, TICK};
use crate::clock::Micros;
use crate::escrow::{self, News, Report, Step, Wish, Write, news, next_step};
use crate::plan::Definition;
use crate::sync::Arc;
use crate::wire::{CloseReply, Grant, GrantId, InstallReply, Ledger, Status};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Client {
    /// Which of the limits it was told.
    pub told: u8,
    /// Whether it has ever heard from home.
    pub heard: bool,
    pub view: Arc<Known>,
    pub attempt: Option<Attempt>,
    /// Its last attempt has failed: it waits for a while, and home is heard before that is over.
    pub failed: bool,
    /// Ids that it has made, also before it crashed: random numbers don't repeat themselves.
    pub ids: u16,
}

/// What it is at. One thing at a time, as in the library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    /// Moves shares. What shards have said.
    Settle(Vec<(GrantId, Report)>),
    /// Tells home again what it has forgotten. What was found there.
    Assert(Option<Arc<Known>>),
    /// A shard did not know its grant: home is asked whether that is still in force.
    Stale(GrantId),
}

impl Hash for Attempt {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        match self {
            Self::Settle(reports) => {
                hasher.write_u8(0);
                for (id, report) in reports {
                    (id, std::mem::discriminant(report)).hash(hasher);
                    if let Report::Closed(left) = report {
                        left.hash(hasher);
                    }
                }
            }
            Self::Assert(found) => (1u8, found).hash(hasher),
            Self::Stale(id) => (2u8, id).hash(hasher),
        }
    }
}

/// What is the case around a client that takes a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Around {
    pub plan: u8,
    pub now: u8,
    /// Shards out of reach.
    pub away: u8,
}

/// What home holds, as a client hears it.
pub(super) enum Heard<'a> {
    Written(&'a Arc<Known>),
    Refused(Option<&'a Arc<Known>>),
}

impl Client {
    pub(super) fn new(setup: &Setup, told: u8, ids: u16) -> Self {
        Self { told, heard: false, view: unknown(setup.definition(told)), attempt: None, failed: false, ids }
    }

    /// Whether a home that is not there may be made by its calls: not if it had lent something.
    pub(super) fn may_make_home(&self) -> bool {
        self.view.ledger.grants.is_empty() && self.view.ledger.next.is_none()
    }

    /// The shares that its calls may use.
    pub(super) fn lanes(&self) -> impl Iterator<Item = &Grant> {
        self.view.ledger.grants.iter().filter(|grant| grant.status == Status::Live)
    }

    /// The grant that its calls on a shard name.
    pub(super) fn lane_at(&self, slot: usize) -> Option<GrantId> {
        self.lanes().find(|grant| usize::from(grant.slot.number()) == slot).map(|grant| grant.id)
    }

    /// What shards have said in this attempt.
    pub(super) fn heard_reports(&self) -> impl Iterator<Item = &Report> {
        let heard = match &self.attempt {
            Some(Attempt::Settle(heard)) => heard.as_slice(),
            _ => &[],
        };
        heard.iter().map(|(_, report)| report)
    }

    fn reports(&self) -> Vec<Option<Report>> {
        let Some(Attempt::Settle(heard)) = &self.attempt else { return vec![None; self.view.ledger.grants.len()] };
        let report = |grant: &Grant| heard.iter().find(|(id, _)| *id == grant.id).map(|(_, report)| report.clone());
        self.view.ledger.grants.iter().map(report).collect()
    }

    fn next_step(&self, setup: &Setup, plan: u8) -> Step {
        let mut reports = self.reports();
        mistakes::report(setup.broken, &self.view.ledger, &mut reports);
        let slots = |ledger: &Ledger| Some(setup.slots(plan, ledger));
        let wish = Wish { definition: setup.definition(self.told), slots: &slots };
        next_step(&self.view.ledger, &reports, &wish)
    }

    /// Whether there is anything to do, unless it waits for a reply.
    pub(super) fn has_errand(&self, setup: &Setup, plan: u8) -> bool {
        match self.attempt {
            Some(Attempt::Assert(_) | Attempt::Stale(_)) => true,
            Some(Attempt::Settle(_)) => self.next_step(setup, plan) != Step::Done,
            None => self.heard && !self.failed && self.next_step(setup, plan) != Step::Done,
        }
    }

    /// Takes the next step. What it sends.
    pub(super) fn step(&mut self, setup: &Setup, around: Around, home: Option<&Home>) -> Vec<Request> {
        match self.attempt.take() {
            Some(Attempt::Stale(id)) => {
                self.hear_home(home.map(|home| &home.known), true);
                if self.attempt.is_none() && self.lanes().any(|grant| grant.id == id) {
                    self.attempt = Some(Attempt::Settle(vec![(id, Report::Lost)]));
                }
                Vec::new()
            }
            Some(Attempt::Assert(found)) => self.assert_again(setup, found, around.now),
            attempt => {
                self.attempt = attempt;
                match self.next_step(setup, around.plan) {
                    Step::Done => {
                        self.attempt = None;
                        Vec::new()
                    }
                    Step::Ask(grants) => {
                        self.attempt.get_or_insert_with(|| Attempt::Settle(Vec::new()));
                        grants.iter().map(|index| Request::about(&self.view.ledger.grants[*index])).collect()
                    }
                    Step::Write(write) => self.write(setup, around, *write),
                }
            }
        }
    }

    fn write(&mut self, setup: &Setup, around: Around, mut write: Write) -> Vec<Request> {
        mistakes::write(setup.broken, &self.view.ledger, &mut write);
        let fresh = self.fresh(setup, around, &write);
        let same = Ledger { cost: self.view.ledger.cost, ..write.ledger.clone() } == self.view.ledger;
        // All that is left to do is to lend to shards that can't be reached.
        if fresh.is_empty() && same && write.back.is_empty() {
            self.fail();
            return Vec::new();
        }
        self.attempt.get_or_insert_with(|| Attempt::Settle(Vec::new()));
        vec![self.send(Some(self.view.id), write, fresh, around.now)]
    }

    /// The new grants of a ledger, with the time until which they may be installed. A shard whose clock can't be asked gets none.
    fn fresh(&mut self, setup: &Setup, around: Around, write: &Write) -> Vec<Grant> {
        let mut grants = Vec::new();
        for target in &write.fresh {
            let slot = usize::from(target.slot.number());
            if around.away >> slot & 1 == 1 {
                continue;
            }
            let not_after = setup.clock(slot, around.now) + Micros::from(setup.install_within) * TICK;
            grants.push(Grant {
                slot: target.slot,
                id: self.next_id(around.now),
                permits: target.permits,
                burst: target.burst,
                cost: write.ledger.cost,
                status: Status::Pending { not_after, state: Vec::new() },
            });
        }
        grants
    }

    /// As late as home's clock, which every answer of home shows.
    fn next_id(&mut self, now: u8) -> GrantId {
        self.ids += 1;
        self.view.id.after(Setup::home_clock(now) / 1_000, self.ids.into())
    }

    fn send(&mut self, expected: Option<GrantId>, mut write: Write, fresh: Vec<Grant>, now: u8) -> Request {
        let (known, id, new) = (self.view.id, self.next_id(now), fresh.len());
        write.ledger.grants.extend(fresh);
        Request::Home(Arc::new(Rewriting { expected, known, id, write, new }))
    }

    fn assert_again(&mut self, setup: &Setup, found: Option<Arc<Known>>, now: u8) -> Vec<Request> {
        if found.as_ref().is_some_and(|found| found.id.stamp >= self.view.id.stamp) {
            return Vec::new();
        }
        let write = escrow::assert_again(&self.view.ledger, found.as_ref().map(|found| &found.ledger));
        match (write, found) {
            (Some(mut write), found) => {
                mistakes::assert_again(setup.broken, &self.view.ledger, &mut write);
                let request = self.send(found.as_ref().map(|found| found.id), write, Vec::new(), now);
                self.attempt = Some(Attempt::Assert(found));
                vec![request]
            }
            (None, Some(found)) => {
                self.view = found;
                Vec::new()
            }
            (None, None) => {
                self.view = unknown(setup.definition(self.told));
                Vec::new()
            }
        }
    }

    /// Home's word, in answer to a call or a look. `is_after`: that was sent after the client heard of the ledger that it knows.
    pub(super) fn hear_home(&mut self, home: Option<&Arc<Known>>, is_after: bool) {
        let Some(known) = home else {
            if is_after {
                self.attempt.get_or_insert(Attempt::Assert(None));
            }
            return;
        };
        self.heard = true;
        self.failed = false;
        match news(self.view.id, known.id, is_after) {
            News::Same | News::Old => {}
            News::Later => self.view = Arc::clone(known),
            News::Forgot => {
                self.attempt.get_or_insert_with(|| Attempt::Assert(Some(Arc::clone(known))));
            }
        }
    }

    /// A shard did not know its grant. Whether that is news.
    pub(super) fn find_stale(&mut self, id: GrantId) -> bool {
        let is_news = self.attempt.is_none() && self.lanes().any(|grant| grant.id == id);
        if is_news {
            self.attempt = Some(Attempt::Stale(id));
        }
        is_news
    }

    /// Home's word, in answer to a ledger that was to be written.
    pub(super) fn hear_written(&mut self, definition: Definition, run: &Rewriting, heard: &Heard<'_>) {
        let instead = match heard {
            // Home has forgotten its last ledger: the next call on it will say so.
            Heard::Refused(Some(known)) if self.view.id.stamp > known.id.stamp => {
                return self.fail();
            }
            Heard::Written(known) | Heard::Refused(Some(known)) => Arc::clone(known),
            Heard::Refused(None) => unknown(definition),
        };
        // Unless it has heard something else since it sent that.
        if self.view.id == run.known {
            self.view = instead;
        }
        match &mut self.attempt {
            // The library tries again at once, some times, before it waits for a call to make home: in vain.
            Some(Attempt::Settle(_)) if matches!(heard, Heard::Refused(None)) => self.fail(),
            Some(Attempt::Settle(reports)) => reports.retain(|(_, report)| *report == Report::Unreachable),
            attempt => *attempt = None,
        }
    }

    pub(super) fn fail(&mut self) {
        (self.attempt, self.failed) = (None, true);
    }

    /// What became of a request to a shard; none if nobody knows.
    pub(super) fn hear_shard(&mut self, id: GrantId, report: Option<Report>) {
        if let Some(Attempt::Settle(reports)) = &mut self.attempt {
            reports.retain(|(other, _)| *other != id);
            reports.push((id, report.unwrap_or(Report::Unreachable)));
            reports.sort_by_key(|(id, _)| (id.stamp, id.random));
        }
    }

    pub(super) fn installed(reply: InstallReply) -> Report {
        match reply {
            InstallReply::Installed { .. } => Report::Installed,
            InstallReply::Newer { .. } | InstallReply::Late { .. } => Report::NotInstalled,
        }
    }

    pub(super) fn closed(&self, id: GrantId, reply: CloseReply, broken: Option<Broken>) -> Report {
        let left = match reply {
            CloseReply::Closed { tombstone, .. } => tombstone.unwrap_or_default(),
            CloseReply::Newer { .. } => Vec::new(),
        };
        if broken == Some(Broken::AbsentIsFull) && left.is_empty() {
            return Report::Closed(mistakes::full(&self.view.ledger, id));
        }
        Report::Closed(left)
    }
}
