//! Permits that threads spend from one purse.

use loom::thread;

use super::{NOW, check};
use crate::decision::Charge;
use crate::flow::sharded::purse::{Lease, Purse};
use crate::key::Slot;
use crate::sync::Arc;
use crate::sync::atomic::Ordering;
use crate::wire::GrantId;

fn lease(permits: u64) -> Lease {
    let (slot, id) = (Slot::new(7).expect("a slot"), GrantId { stamp: 1, random: 1 });
    Lease { charge: Charge { slot, id, permits, at: NOW, line: 0 }, until: NOW + 100 }
}

fn permits(leases: &[Lease]) -> u64 {
    leases.iter().map(|lease| lease.charge.permits).sum()
}

/// With so many permits, and as this thread has it after its first calls: with room for a slice of them.
fn purse_of(permits: u64) -> Arc<Purse> {
    let purse = Purse::new();
    purse.add(lease(1));
    assert!(purse.spend(1, NOW).is_some());
    purse.add(lease(permits));
    Arc::new(purse)
}

/// Threads spend while another adds: each permit is spent once, or still held.
pub fn permits_are_spent_once() {
    check(|| {
        let purse = Arc::new(Purse::new());
        purse.add(lease(1));
        let spender = thread::spawn({
            let purse = Arc::clone(&purse);
            move || purse.spend(1, NOW).map_or(0, |spent| spent.charge.permits)
        });
        purse.add(lease(1));
        let spent = purse.spend(1, NOW).map_or(0, |spent| spent.charge.permits);
        let spent = spent + spender.join().expect("it spent");
        assert_eq!((spent + purse.held(), purse.used()), (2, spent));
    });
}

/// Whoever gives everything back gets what nobody has spent, also a slice that is on its way to a stripe.
pub fn what_is_taken_back_is_not_spent() {
    check(|| {
        let purse = purse_of(32);
        let taker = thread::spawn({
            let purse = Arc::clone(&purse);
            move || permits(&purse.take_back(None))
        });
        let spent = purse.spend(1, NOW).map_or(0, |spent| spent.charge.permits);
        let back = taker.join().expect("it took");
        assert_eq!((spent + back, purse.held()), (32, 0));
    });
}

/// A key is struck off the list of those with leases when its purse is out: then it stays out.
pub fn a_purse_that_is_out_stays_out() {
    check(|| {
        let purse = purse_of(32);
        let taker = thread::spawn({
            let purse = Arc::clone(&purse);
            move || {
                purse.take_back(None);
                // As `SharedLimit::look_through` says of a key that fell quiet.
                purse.take_back(None).is_empty() && purse.is_out()
            }
        });
        assert!(purse.spend(1, NOW).is_none_or(|spent| spent.charge.permits == 1));
        let is_out = taker.join().expect("it took");
        assert!(!is_out || purse.held() == 0, "{} are held by nobody's leave", purse.held());
    });
}

/// A key is struck off the list just when its purse is filled again: it is on the list afterwards, and once.
pub fn a_purse_with_permits_is_listed_once() {
    check(|| {
        let purse = Arc::new(Purse::new());
        assert!(purse.is_to_be_listed());
        let filler = thread::spawn({
            let purse = Arc::clone(&purse);
            move || {
                purse.refilling.store(true, Ordering::Release);
                purse.add(lease(1));
                let lists = purse.is_to_be_listed();
                purse.refilling.store(false, Ordering::Release);
                u32::from(lists)
            }
        });
        let places = 1 - u32::from(purse.is_struck_off());
        let places = places + filler.join().expect("it filled");
        assert_eq!((places, purse.held()), (1, 1));
        assert!(!purse.is_to_be_listed(), "the purse knows");
    });
}
