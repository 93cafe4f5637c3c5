//! What is done wrong on purpose by a client. What servers do wrong is in `scripts`.

use super::server::Held;
use super::setup::Broken;
use crate::escrow::{Report, Write};
use crate::kernel::State;
use crate::kernel::bucket::Bucket;
use crate::limit::Share;
use crate::wire::{Grant, GrantId, Kind, Ledger};

/// What a client takes for heard of each grant.
pub(super) fn report(broken: Option<Broken>, ledger: &Ledger, reports: &mut [Option<Report>]) {
    if broken != Some(Broken::TakesRecalledForClosed) || ledger.next.is_none() {
        return;
    }
    for (grant, report) in ledger.grants.iter().zip(reports) {
        if grant.status.is_recalled() {
            report.get_or_insert_with(|| Report::Closed(Vec::new()));
        }
    }
}

/// What a client has home write that knows this ledger.
pub(super) fn write(broken: Option<Broken>, known: &Ledger, write: &mut Write) {
    match broken {
        Some(Broken::KeepsReturned) => {
            let is_gone = |grant: &&Grant| write.ledger.grants.iter().all(|other| other.id != grant.id);
            let kept: Vec<Grant> = known.grants.iter().filter(is_gone).cloned().collect();
            write.fresh.retain(|fresh| kept.iter().all(|grant| grant.slot != fresh.slot));
            write.ledger.grants.extend(kept);
        }
        Some(Broken::DropsOutOfReach) if write.carry.is_some() => write.ledger.grants.clear(),
        _ => {}
    }
}

/// What a client that knows this ledger tells a home that has forgotten it.
pub(super) fn assert_again(broken: Option<Broken>, known: &Ledger, write: &mut Write) {
    if broken != Some(Broken::AssertsOtherLimit) {
        return;
    }
    for grant in &mut write.ledger.grants {
        if let Some(known) = known.grants.iter().find(|known| known.id == grant.id) {
            *grant = known.clone();
        }
    }
}

/// A grant of this ledger with all that it can hold.
pub(super) fn full(ledger: &Ledger, id: GrantId) -> Vec<u8> {
    let Some(grant) = ledger.grants.iter().find(|grant| grant.id == id) else { return Vec::new() };
    let share = Share::part(ledger.limit(), grant.cost, grant.permits, grant.burst);
    let Share::Bucket(bucket) = share else { panic!("the model knows buckets only") };
    let full = State::Bucket(Bucket { level: bucket.capacity, seen: 0 });
    Held::new(share, full).pack(Kind::Tombstone, id)
}
