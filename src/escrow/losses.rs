//! Home has forgotten something: a replica took over that had not seen its last ledger, or it was deleted.

use super::steps::Write;
use super::targets::{permits_under, settle_cost};
use crate::limit::Carry;
use crate::plan::{Definition, SET};
use crate::wire::{Grant, Ledger, Status};

/// What has to be written at a home that has `found`, or nothing, by a client that knows of a later ledger. None if home has
/// forgotten nothing that matters.
///
/// Shares that home does not know of any more are logged again, and what they may have spent is deducted. Shares that only
/// home knows of have come home before: they are recalled once more, and their tombstones say what was left.
pub(crate) fn assert_again(known: &Ledger, found: Option<&Ledger>) -> Option<Write> {
    let Some(found) = found else {
        let matters = !known.grants.is_empty() || known.wanted().revision >= SET;
        return matters.then(|| write(known.clone(), 0));
    };
    let same_limit = known.definition.limit == found.definition.limit;
    let mut ledger = found.clone();
    let mut deduct = 0;
    for grant in &mut ledger.grants {
        match known.grants.iter().find(|other| other.id == grant.id) {
            None => grant.status = Status::RECALLED,
            Some(known) => grant.status.was(&known.status),
        }
    }
    for grant in &known.grants {
        if ledger.grants.iter().any(|other| other.id == grant.id) {
            continue;
        }
        // An older share in the same slot was replaced by it.
        ledger.grants.retain(|other| other.slot != grant.slot);
        // A share of another limit than home's can only come home.
        let (status, permits) = if same_limit {
            (grant.status.clone(), grant.permits)
        } else {
            (Status::RECALLED, permits_under(grant.permits, known.limit(), found.limit()))
        };
        ledger.grants.push(Grant { permits, status, ..grant.clone() });
        deduct += grant.burst;
    }
    if known.wanted().replaces(ledger.wanted()) {
        // What it carried over it has carried over already.
        ledger.next = Some(Definition { carry: Carry::Keep, ..*known.wanted() });
    }
    if ledger == *found { None } else { Some(write(ledger, deduct)) }
}

fn write(mut ledger: Ledger, deduct: u64) -> Write {
    let cost = ledger.cost;
    settle_cost(&mut ledger, Some(cost), &mut Vec::new());
    Write { ledger, fresh: Vec::new(), carry: None, deduct, back: Vec::new() }
}
