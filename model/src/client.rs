//! A client: what it knows of a key and what it does next, as `src/flow/sharded/moves.rs` and `escrow.rs` have it.

use std::hash::{Hash, Hasher};

use super::message::{Request, Rewriting};
use super::scripts::unknown;
use super::server::{Held, Home, Known};
use super::setup::{Broken, Setup, TICK};
use crate::clock::Micros;
use crate::escrow::{self, Report, Step, Wish, Write, next_step};
use crate::plan::Definition;
use crate::sync::Arc;
use crate::wire::{CloseReply, Grant, GrantId, InstallReply, Kind, Status};

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
        let slots = |ledger: &crate::wire::Ledger| Some(setup.slots(plan, ledger));
        let wish = Wish { definition: setup.definition(self.told), slots: &slots };
        next_step(&self.view.ledger, &self.reports(), &wish)
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
    pub(super) fn step(&mut self, setup: &Setup, plan: u8, home: Option<&Home>, now: u8) -> Vec<Request> {
        match self.attempt.take() {
            Some(Attempt::Stale(id)) => {
                self.hear_home(home.map(|home| &home.known));
                if self.attempt.is_none() && self.lanes().any(|grant| grant.id == id) {
                    self.attempt = Some(Attempt::Settle(vec![(id, Report::Lost)]));
                }
                Vec::new()
            }
            Some(Attempt::Assert(found)) => self.assert_again(setup, found, now),
            attempt => {
                self.attempt = attempt;
                match self.next_step(setup, plan) {
                    Step::Done => {
                        self.attempt = None;
                        Vec::new()
                    }
                    Step::Ask(grants) => {
                        self.attempt.get_or_insert_with(|| Attempt::Settle(Vec::new()));
                        grants.iter().map(|index| Request::about(&self.view.ledger.grants[*index])).collect()
                    }
                    Step::Write(mut write) => {
                        if setup.broken == Some(Broken::KeepsReturned) {
                            self.keep_returned(&mut write);
                        }
                        self.attempt.get_or_insert_with(|| Attempt::Settle(Vec::new()));
                        let fresh = self.fresh(setup, &write, now);
                        vec![self.send(Some(self.view.id), *write, fresh, now)]
                    }
                }
            }
        }
    }

    /// The new grants of a ledger, with the time until which they may be installed.
    fn fresh(&mut self, setup: &Setup, write: &Write, now: u8) -> Vec<Grant> {
        let mut grants = Vec::new();
        for target in &write.fresh {
            let clock = setup.clock(target.slot.number().into(), now);
            let not_after = clock + Micros::from(setup.install_within) * TICK;
            grants.push(Grant {
                slot: target.slot,
                id: self.next_id(now),
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
            (Some(write), found) => {
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

    /// Home's word, in answer to a call or a look.
    pub(super) fn hear_home(&mut self, home: Option<&Arc<Known>>) {
        let Some(known) = home else {
            self.attempt.get_or_insert(Attempt::Assert(None));
            return;
        };
        self.heard = true;
        self.failed = false;
        if known.id == self.view.id {
            return;
        }
        if self.view.id.stamp > known.id.stamp {
            self.attempt.get_or_insert_with(|| Attempt::Assert(Some(Arc::clone(known))));
        } else {
            self.view = Arc::clone(known);
        }
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
        let grant = self.view.ledger.grants.iter().find(|grant| grant.id == id);
        if let (Some(Broken::AbsentIsFull), true, Some(grant)) = (broken, left.is_empty(), grant) {
            let share = crate::limit::Share::part(self.view.ledger.limit(), grant.cost, grant.permits, grant.burst);
            let crate::limit::Share::Bucket(bucket) = share else { panic!("the model knows buckets only") };
            let bucket = crate::kernel::bucket::Bucket { level: bucket.capacity, seen: 0 };
            let full = Held::new(share, crate::kernel::State::Bucket(bucket));
            return Report::Closed(full.pack(Kind::Tombstone, id));
        }
        Report::Closed(left)
    }

    /// What returned stays in the ledger: a mistake.
    fn keep_returned(&self, write: &mut Write) {
        let is_gone = |grant: &&Grant| write.ledger.grants.iter().all(|other| other.id != grant.id);
        let kept: Vec<Grant> = self.view.ledger.grants.iter().filter(is_gone).cloned().collect();
        write.fresh.retain(|fresh| kept.iter().all(|grant| grant.slot != fresh.slot));
        write.ledger.grants.extend(kept);
    }
}
