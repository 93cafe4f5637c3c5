//! A purse neither loses permits nor makes any, whichever threads spend them.

use std::collections::BTreeMap;
use std::thread;

use proptest::prelude::*;

use super::super::purse::{Lease, Purse};
use crate::clock::Micros;
use crate::decision::Charge;
use crate::key::Slot;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::wire::GrantId;

/// `at` names the lease.
fn lease(at: Micros, permits: u64, until: Micros) -> Lease {
    let (slot, id) = (Slot::of(b"key"), GrantId { stamp: 1, random: 1 });
    Lease { charge: Charge { slot, id, permits, at, line: 0 }, until }
}

#[derive(Clone, Debug)]
enum Step {
    Add {
        permits: u64,
        ttl: Micros,
    },
    /// By a thread that the purse has not seen: its stripes are taken in turn.
    Spend(u64),
    /// By this one.
    SpendHere(u64),
    Wait(Micros),
    TakeBackExpired,
    TakeBackAll,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (1..60_u64, 1..100_u64).prop_map(|(permits, ttl)| Step::Add { permits, ttl }),
        6 => (1..4_u64).prop_map(Step::Spend),
        6 => (1..4_u64).prop_map(Step::SpendHere),
        3 => (1..40_u64).prop_map(Step::Wait),
        1 => Just(Step::TakeBackExpired),
        1 => Just(Step::TakeBackAll),
    ];
    prop::collection::vec(step, 1..80)
}

/// What is left of each lease, and until when it may be spent.
#[derive(Default)]
struct Model {
    leases: BTreeMap<Micros, (u64, Micros)>,
    now: Micros,
    used: u64,
}

impl Model {
    fn spendable(&self) -> u64 {
        self.leases.values().filter(|(_, until)| self.now < *until).map(|(left, _)| left).sum()
    }

    fn held(&self) -> u64 {
        self.leases.values().map(|(left, _)| left).sum()
    }

    fn spent(&mut self, permits: u64, charge: Option<Charge>) {
        let Some(charge) = charge else {
            assert!(permits > 1 || self.spendable() == 0, "{} are there and not found", self.spendable());
            return;
        };
        assert_eq!(charge.permits, permits);
        self.used += permits;
        let (left, until) = self.leases.get_mut(&charge.at).expect("a lease that is not given back");
        assert!(self.now < *until, "spent at {} what expired at {until}", self.now);
        *left = left.checked_sub(permits).expect("no more than the lease had");
    }

    fn taken_back(&mut self, back: &[Lease], all: bool) {
        for Lease { charge, until } in back {
            let known = self.leases.get_mut(&charge.at).expect("a lease that is not given back");
            assert_eq!(known.1, *until);
            assert!(all || self.now >= *until, "taken back at {} what lasts until {until}", self.now);
            known.0 = known.0.checked_sub(charge.permits).expect("no more than the lease had");
        }
        let over = |until: Micros| all || self.now >= until;
        let left: u64 = self.leases.values().filter(|(_, until)| over(*until)).map(|(left, _)| left).sum();
        assert_eq!(left, 0, "all of it is taken back");
        let now = self.now;
        self.leases.retain(|_, (_, until)| !all && now < *until);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_was_added_is_spent_held_or_taken_back(steps in steps()) {
        let (purse, mut model) = (Purse::new(), Model { now: 1, ..Model::default() });
        for (number, step) in steps.into_iter().enumerate() {
            let now = model.now;
            let spend = |permits| purse.spend(permits, now).map(|spent| spent.charge);
            match step {
                Step::Add { permits, ttl } => {
                    purse.add(lease(number as Micros, permits, now + ttl));
                    model.leases.insert(number as Micros, (permits, now + ttl));
                }
                Step::Spend(permits) => {
                    let charge = thread::scope(|scope| scope.spawn(|| spend(permits)).join()).unwrap();
                    model.spent(permits, charge);
                }
                Step::SpendHere(permits) => model.spent(permits, spend(permits)),
                Step::Wait(time) => model.now += time,
                Step::TakeBackExpired => model.taken_back(&purse.take_back(Some(now)), false),
                Step::TakeBackAll => model.taken_back(&purse.take_back(None), true),
            }
            prop_assert_eq!(purse.held(), model.held());
            prop_assert_eq!(purse.held_of(Slot::of(b"key")), model.held());
            prop_assert_eq!(purse.held_of(Slot::of(b"another")), 0);
            prop_assert_eq!(purse.used(), model.used);
        }
        model.taken_back(&purse.take_back(None), true);
        prop_assert!(purse.is_out());
    }
}

/// The same while threads spend, add and take back at once.
#[test]
fn threads_share_a_purse() {
    const LEASES: u64 = 2_000;
    const EACH: u64 = 50;
    let purse = Purse::new();
    let (clock, done) = (AtomicU64::new(1), AtomicBool::new(false));
    let spender = |permits: u64| {
        let mut spent = vec![0; LEASES as usize];
        loop {
            let is_done = done.load(Ordering::Acquire);
            let now = clock.load(Ordering::Relaxed);
            match purse.spend(permits, now) {
                Some(found) => {
                    assert!(now < found.charge.at + 20, "spent at {now} what came at {}", found.charge.at);
                    spent[found.charge.at as usize] += found.charge.permits;
                }
                None if is_done => return spent,
                None => thread::yield_now(),
            }
        }
    };
    let mut back = Vec::new();
    let spent = thread::scope(|scope| {
        let spenders = [1, 1, 2, 3].map(|permits| scope.spawn(move || spender(permits)));
        for at in 0..LEASES {
            clock.store(at, Ordering::Relaxed);
            purse.add(lease(at, EACH, at + 20));
            if at % 7 == 0 {
                back.extend(purse.take_back(Some(at)));
            }
            if at % 100 == 0 {
                back.extend(purse.take_back(None));
            }
            if at % 20 == 0 {
                thread::yield_now();
            }
        }
        done.store(true, Ordering::Release);
        spenders.map(|spender| spender.join().unwrap())
    });
    back.extend(purse.take_back(None));
    for at in 0..LEASES {
        let spent: u64 = spent.iter().map(|spent| spent[at as usize]).sum();
        let back: u64 = back.iter().filter(|lease| lease.charge.at == at).map(|lease| lease.charge.permits).sum();
        assert_eq!(spent + back, EACH, "lease {at}: {spent} spent, {back} taken back");
    }
    assert!(purse.is_out());
}
