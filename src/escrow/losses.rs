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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Slot;
    use crate::plan::Shards;
    use crate::wire::GrantId;

    fn ledger(status: &Status) -> Ledger {
        let definition = Definition::new("token-bucket 30/s burst 30".parse().unwrap(), 1, Shards::PerMaster);
        let mut ledger = Ledger::new(definition);
        let (slot, id) = (Slot::new(7).unwrap(), GrantId { stamp: 1, random: 1 });
        let (permits, burst, cost) = (10, 10, ledger.cost);
        ledger.grants.push(Grant { slot, id, permits, burst, cost, status: status.clone() });
        ledger
    }

    /// What a home comes to that found a grant like that, by one who knows it like this.
    #[test]
    fn what_was_in_use_never_passes_for_unused() {
        let pending = Status::Pending { not_after: 5, state: vec![1] };
        let unused = Status::Recalled { unused: vec![1] };
        let (live, used) = (Status::Live, Status::RECALLED);
        for (found, known, then) in [
            (&pending, &live, Some(&live)),
            (&pending, &used, Some(&used)),
            (&pending, &unused, None),
            (&pending, &pending, None),
            (&unused, &live, Some(&used)),
            (&unused, &used, Some(&used)),
            (&unused, &unused, None),
            (&unused, &pending, None),
            (&used, &live, None),
            (&used, &pending, None),
            (&live, &used, None),
            (&live, &unused, None),
            (&live, &pending, None),
        ] {
            let write = assert_again(&ledger(known), Some(&ledger(found)));
            let written = write.as_ref().map(|write| &write.ledger.grants[0].status);
            assert_eq!(written, then, "found {found:?}, known {known:?}");
            assert!(write.is_none_or(|write| write.deduct == 0), "home knows of it");
        }
    }
}
