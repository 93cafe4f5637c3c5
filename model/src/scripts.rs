//! What the scripts of `lua/` do, each named after its own, for the bucket's kernel.

use super::message::Rewriting;
use super::server::{Held, Home, Known, SubKey};
use super::setup::Broken;
use crate::clock::Micros;
use crate::kernel::rewrite::{Back, Rewrite, rewrite};
use crate::kernel::{Ask, Batch, Refund, Verdict};
use crate::limit::Share;
use crate::plan::Definition;
use crate::sync::Arc;
use crate::wire::{CloseReply, GrantId, InstallReply, Kind, Ledger, Status};

/// More than any bucket here holds: an acquire takes all there is. That keeps the model small; calls that take a part of it are
/// left to the tests on real servers.
const ALL: u64 = 100;

/// `bucket.lua` with asks for a permit each. What is there afterwards if it changed, and how many were granted.
pub(super) fn acquire(held: Held, now: Micros) -> (Held, u64) {
    let asks = [Ask { permits: 1, count: ALL }];
    let mut verdicts = [Verdict::default()];
    let (share, state) = held.parts();
    let mut state = Some(state);
    crate::kernel::state::run(&mut state, &share, now, &Batch { asks: &asks, ..Batch::default() }, &mut verdicts);
    (Held::new(share, state.expect("a run leaves a state")), verdicts[0].granted)
}

/// `bucket.lua` with a refund alone.
pub(super) fn refund(held: Held, permits: u64, now: Micros) -> Held {
    let refunds = [Refund { permits, at: now, line: 0 }];
    let (share, state) = held.parts();
    let mut state = Some(state);
    crate::kernel::state::run(&mut state, &share, now, &Batch { refunds: &refunds, ..Batch::default() }, &mut []);
    Held::new(share, state.expect("a run leaves a state"))
}

/// The home that `bucket.lua` makes where nothing is: full, since nobody ever used it.
pub(super) fn new_home(definition: Definition, now: Micros) -> Home {
    let known = Known::new(GrantId::of_definition(&definition), Ledger::new(definition));
    let Share::Bucket(share) = Share::whole(&definition.limit) else { panic!("the model knows buckets only") };
    let bucket = crate::kernel::bucket::Bucket { level: share.capacity, seen: now };
    Home { known, held: Held { share, bucket }, returned: Vec::new() }
}

/// `install.lua`: the reply, and what is written if anything is. A shard is never home here, so that line is missing.
pub(super) fn install(
    stored: Option<&SubKey>,
    state: &[u8],
    not_after: Micros,
    now: Micros,
    broken: Option<Broken>,
) -> (InstallReply, Option<SubKey>) {
    let (new_id, mut held) = Held::unpack(state);
    match stored {
        Some(SubKey::Lent(id, _)) if *id == new_id => return (InstallReply::Installed { now }, None),
        Some(there) if there.id().stamp >= new_id.stamp => return (InstallReply::Newer { now }, None),
        _ => {}
    }
    if now > not_after && broken != Some(Broken::InstallsLate) {
        return (InstallReply::Late { now }, None);
    }
    held.bucket.seen = now;
    (InstallReply::Installed { now }, Some(SubKey::Lent(new_id, held)))
}

/// `close.lua`: the reply, and what is written if anything is.
pub(super) fn close(stored: Option<&SubKey>, id: GrantId, now: Micros) -> (CloseReply, Option<SubKey>) {
    let closed =
        |held: Option<Held>| CloseReply::Closed { tombstone: held.map(|held| held.pack(Kind::Tombstone, id)), now };
    let left = match stored {
        Some(SubKey::Tombstone(its, held)) if *its == id => return (closed(*held), None),
        Some(there) if there.id() != id && there.id().stamp >= id.stamp => return (CloseReply::Newer { now }, None),
        // It refills until now, and never again.
        Some(SubKey::Lent(its, held)) if *its == id => Some(held.at(now).undated()),
        _ => None,
    };
    (closed(left), Some(SubKey::Tombstone(id, left)))
}

/// `home_bucket.lua`: home as it is written, or none if it is refused.
pub(super) fn home(
    stored: Option<&Home>,
    run: &Rewriting,
    now: Micros,
    broken: Option<Broken>,
) -> Option<Result<Home, String>> {
    let uncompared = broken == Some(Broken::ReturnsUncompared) && !run.write.back.is_empty() && stored.is_some();
    if stored.map(|home| home.known.id) != run.expected && !uncompared {
        return None;
    }
    let mut ledger = run.write.ledger.clone();
    let old = ledger.grants.len() - run.new;
    let lent: Vec<Share> = ledger.grants[old..].iter().map(|grant| ledger.share_of(grant)).collect();
    let back: Vec<(GrantId, Held)> =
        run.write.back.iter().filter(|(_, left)| !left.is_empty()).map(|(_, left)| Held::unpack(left)).collect();
    let mut backs: Vec<Back> =
        back.iter().map(|(_, held)| Back { permits: held.share.burst, left: Some(held.parts()) }).collect();
    backs.resize(run.write.back.len(), Back { permits: 0, left: None });
    let home = match &ledger.next {
        Some(next) if broken == Some(Broken::RaisesFirst) => Share::whole(&next.limit),
        _ => match (broken, run.write.carry, stored) {
            (Some(Broken::KeepsBurst), Some(_), Some(stored)) => {
                Share::part(ledger.limit(), ledger.cost, ledger.home_parts().0, stored.held.share.burst)
            }
            _ => ledger.home_share(),
        },
    };
    let to = Rewrite {
        home,
        carry: run.write.carry.map(|(carry, before)| (carry, before, ledger.limit().burst())),
        deduct: run.write.deduct,
        back: &backs,
        lent: &lent,
    };
    let (state, states) = rewrite(stored.map(|home| home.held.parts()), now, &to);
    let held = Held::new(to.home, state);
    for ((grant, share), its) in ledger.grants[old..].iter_mut().zip(&lent).zip(states) {
        let Status::Pending { state, .. } = &mut grant.status else { panic!("a new grant is pending") };
        *state = Held::new(share.clone(), its).undated().pack(Kind::Lent, grant.id);
    }
    // As a client reads it: what it can't read is a fault of whoever wrote it.
    let ledger = match Ledger::decode(&ledger.encode()) {
        Ok(ledger) => ledger,
        Err(bad) => return Some(Err(bad.to_string())),
    };
    let mut returned = stored.map(|home| home.returned.clone()).unwrap_or_default();
    returned.extend(back.iter().map(|(id, _)| *id));
    Some(Ok(Home { known: Known::new(run.id, ledger), held, returned }))
}

/// What a client that has restarted takes for the ledger: that of a key that nobody has used.
pub(super) fn unknown(definition: Definition) -> Arc<Known> {
    Known::new(GrantId::of_definition(&definition), Ledger::new(definition))
}
