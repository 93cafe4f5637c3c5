//! The next step of a key.

use super::targets::{Target, permits_under, settle_cost, targets};
use crate::key::Slot;
use crate::limit::Carry;
use crate::plan::Definition;
use crate::wire::{Grant, Ledger, Status};

/// What a shard said about its grant in this attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// A pending share is there.
    Installed,
    /// It is not, and will never be: too late, or something newer is there.
    NotInstalled,
    /// A recalled share is closed. What was left of it; empty if nothing was there.
    Closed(Vec<u8>),
    /// A live share was not there when it was asked.
    Lost,
    /// It can't be asked now. Its share stays lent.
    Unreachable,
}

/// What this client wants of the key.
pub(crate) struct Wish<'a> {
    /// What it was told the limit is.
    pub definition: Definition,
    /// The slots of the key's shards under this ledger, home's first; none if nothing is to be moved now.
    pub slots: &'a (dyn Fn(&Ledger) -> Option<Vec<Slot>> + Sync),
}

/// What is to be done next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The key is as it should be, as far as it can be reached.
    Done,
    /// These grants, by their index: pending ones are to be installed, recalled ones to be closed.
    Ask(Vec<usize>),
    Write(Box<Write>),
}

/// Home is to write another ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    /// Without the new grants, which still need an id and a time.
    pub ledger: Ledger,
    pub fresh: Vec<Target>,
    /// Where the definition changes: what is carried over, and the burst of the limit before.
    pub carry: Option<(Carry, u64)>,
    /// Permits that home may have and others have spent.
    pub deduct: u64,
    /// Shares that come back: permits, and what was left.
    pub back: Vec<(u64, Vec<u8>)>,
}

/// The next step of a key with this ledger, given what was heard of each of its grants.
pub(crate) fn next_step(ledger: &Ledger, reports: &[Option<Report>], wish: &Wish<'_>) -> Step {
    let unheard = |(index, grant): (usize, &Grant)| {
        let waits = matches!(grant.status, Status::Pending { .. } | Status::Recalled { .. });
        (waits && reports[index].is_none()).then_some(index)
    };
    let ask: Vec<usize> = ledger.grants.iter().enumerate().filter_map(unheard).collect();
    if !ask.is_empty() {
        return Step::Ask(ask);
    }
    let mut next = Next::after(ledger, reports);
    next.follow_definition(wish);
    if next.write.ledger.next.is_none()
        && let Some(slots) = (wish.slots)(&next.write.ledger)
    {
        next.follow_plan(&slots);
    }
    settle_cost(&mut next.write.ledger, next.cost, &mut next.write.fresh);
    let Write { ledger: new, fresh, back, .. } = &next.write;
    if new == ledger && fresh.is_empty() && back.is_empty() { Step::Done } else { Step::Write(Box::new(next.write)) }
}

/// What is to be written, as it comes about.
struct Next {
    write: Write,
    /// Of each grant of its ledger: it can't be reached in this attempt.
    unreachable: Vec<bool>,
    /// The cost that home's level is in, as long as the definition is the same.
    cost: Option<i64>,
}

impl Next {
    /// What the reports come to.
    fn after(ledger: &Ledger, reports: &[Option<Report>]) -> Self {
        let mut grants = Vec::with_capacity(ledger.grants.len());
        let (mut unreachable, mut back) = (Vec::new(), Vec::new());
        for (grant, report) in ledger.grants.iter().zip(reports) {
            let status = match (&grant.status, report) {
                (Status::Recalled { unused }, Some(Report::Closed(left))) => {
                    // What is there has refilled since.
                    back.push((grant.permits, if left.is_empty() { unused.clone() } else { left.clone() }));
                    continue;
                }
                (Status::Pending { .. }, Some(Report::Installed)) => Status::Live,
                // Closed before it comes home: a request to install it may still be on its way.
                (status @ Status::Pending { .. }, Some(Report::NotInstalled))
                | (status @ Status::Live, Some(Report::Lost)) => status.recalled(),
                (status, _) => status.clone(),
            };
            grants.push(Grant { status, ..grant.clone() });
            unreachable.push(*report == Some(Report::Unreachable));
        }
        let ledger = Ledger { grants, ..ledger.clone() };
        let cost = Some(ledger.cost);
        Self { write: Write { ledger, fresh: Vec::new(), carry: None, deduct: 0, back }, unreachable, cost }
    }

    /// A later definition than home's: first everything comes home that can be reached, then it is in force. So no share of
    /// one limit is ever used beside one of another, and a limit that is lowered is never exceeded by what is lent anew.
    fn follow_definition(&mut self, wish: &Wish<'_>) {
        let ledger = &mut self.write.ledger;
        if wish.definition.replaces(ledger.wanted()) {
            ledger.next = Some(wish.definition);
        }
        let Some(next) = ledger.next else { return };
        // The same again with everything it can have: that moves what there is, as another limit does.
        if next.limit == ledger.definition.limit && next.carry != Carry::Reset {
            (ledger.definition, ledger.next) = (next, None);
            return;
        }
        let mut all_heard = true;
        for (grant, unreachable) in ledger.grants.iter_mut().zip(&self.unreachable) {
            grant.status = grant.status.recalled();
            all_heard &= unreachable;
        }
        if !all_heard {
            return;
        }
        let before = ledger.definition.limit;
        for grant in &mut ledger.grants {
            // What is still out goes on at its old rate: so much of the new limit is not home's.
            grant.permits = permits_under(grant.permits, &before, &next.limit);
        }
        (ledger.definition, ledger.next) = (next, None);
        self.write.carry = Some((next.carry, before.burst()));
        self.cost = None;
    }

    /// One share at a time that does not serve any more is recalled; what home can spare is lent to where one is missing.
    fn follow_plan(&mut self, slots: &[Slot]) {
        let ledger = &mut self.write.ledger;
        let (kept, targets) = targets(ledger, slots);
        let serves = |grant: &Grant| targets.iter().any(|target| target.is_served_by(grant));
        let mut moving = ledger.grants.iter().zip(&self.unreachable);
        if !moving.any(|(grant, unreachable)| grant.status.is_recalled() && !unreachable)
            && let Some(grant) = ledger.grants.iter_mut().find(|grant| grant.status == Status::Live && !serves(grant))
        {
            grant.status = grant.status.recalled();
        }
        let (mut permits, mut burst) = ledger.home_parts();
        for target in targets {
            let is_taken = ledger.grants.iter().any(|grant| grant.slot == target.slot);
            if is_taken || permits < kept.0 + target.permits || burst < kept.1 + target.burst {
                continue;
            }
            (permits, burst) = (permits - target.permits, burst - target.burst);
            self.write.fresh.push(target);
        }
    }
}
