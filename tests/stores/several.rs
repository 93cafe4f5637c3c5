//! Several asks at once on the embedded store: a decision for each, or one for all of them.

use std::time::Duration;

use crate::support::{Manual, ask, block_on, left};
use proptest::prelude::*;
use shardlimit::{AllAllowed, AllDecision, Ask, ErrorKind, FakeClock, Limiter, NamedLimit};

const LIMITS: [&str; 6] = [
    "token-bucket 10/s burst 6",
    "leaky-bucket 7/s capacity 5",
    "fixed-window 8/s",
    "sliding-window 9/s precision 10",
    "sliding-log 6/s",
    "token-bucket 10/s burst 7 + fixed-window 20/3s + sliding-window 6/s precision 10",
];

fn limits(clock: &FakeClock) -> (Limiter, Vec<NamedLimit>) {
    let limiter = Limiter::builder().clock(clock).build().unwrap();
    let define = |(place, text): (usize, &&str)| limiter.define(&format!("l{place}"), text.parse().unwrap()).unwrap();
    let limits = LIMITS.iter().enumerate().map(define).collect();
    (limiter, limits)
}

fn all(limiter: &Limiter, asks: Vec<Ask>) -> AllDecision {
    block_on(limiter.acquire_all(asks)).unwrap()
}

fn allowed(decision: AllDecision) -> AllAllowed {
    match decision {
        AllDecision::Allowed(allowed) => allowed,
        AllDecision::Denied(denied) => panic!("denied: {denied:?}"),
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Of each limit so many permits of a key, or nothing.
    All(Vec<(usize, u8, u64)>),
    Wait(u64),
    /// Gives back the last that was allowed.
    Refund,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let asks = prop::collection::vec((0..LIMITS.len(), 0..2_u8, 1..5_u64), 1..5);
    let step =
        prop_oneof![6 => asks.prop_map(Step::All), 3 => (1..400_u64).prop_map(Step::Wait), 1 => Just(Step::Refund)];
    prop::collection::vec(step, 1..60)
}

proptest! {
    /// The oracle is a second limiter that is looked at first, and asked one by one only where all of them can say yes.
    #[test]
    fn all_are_charged_or_none(steps in steps()) {
        let time = FakeClock::new();
        let ((limiter, limits), (_, oracle)) = (limits(&time), limits(&time));
        let mut last = None;
        for step in steps {
            match step {
                Step::Wait(millis) => time.advance(Duration::from_millis(millis)),
                Step::Refund => {
                    if let Some((receipt, mirrored)) = last.take() {
                        let receipt: shardlimit::AllReceipt = receipt;
                        block_on(receipt.refund()).unwrap();
                        for (place, key, receipt) in Vec::into_iter(mirrored) {
                            let (place, key): (usize, [u8; 1]) = (place, key);
                            block_on(oracle[place].refund(key, receipt)).unwrap();
                        }
                    }
                }
                Step::All(mut asks) => {
                    // The oracle looks at each key once.
                    asks.sort_unstable();
                    asks.dedup_by_key(|(place, key, _)| (*place, *key));
                    let can = |(place, key, permits): &(usize, u8, u64)| {
                        block_on(oracle[*place].peek([*key])).unwrap().remaining().permits >= *permits
                    };
                    let deny: Vec<_> = asks.iter().filter(|ask| !can(ask)).collect();
                    let asked = asks.iter().map(|(place, key, permits)| limits[*place].ask([*key], *permits));
                    match all(&limiter, asked.collect()) {
                        AllDecision::Allowed(allowed) => {
                            prop_assert!(deny.is_empty(), "{deny:?} should have denied");
                            let mirrored = asks.iter().map(|(place, key, permits)| {
                                let decision = block_on(oracle[*place].acquire_n([*key], *permits)).unwrap();
                                (*place, [*key], crate::support::allowed(decision).into_receipt())
                            });
                            last = Some((allowed.into_receipt(), mirrored.collect::<Vec<_>>()));
                        }
                        AllDecision::Denied(denied) => {
                            let names: Vec<_> = denied.denials().map(|(ask, _)| ask.limit().name().to_owned()).collect();
                            let expected: Vec<_> = deny.iter().map(|(place, ..)| format!("l{place}")).collect();
                            prop_assert_eq!(names, expected);
                            let longest = denied.denials().map(|(_, denied)| denied.retry_after()).max();
                            prop_assert_eq!(Some(denied.retry_after()), longest);
                        }
                    }
                }
            }
            for (one, other) in limits.iter().zip(&oracle) {
                for key in 0..2_u8 {
                    let [one, other] = [one, other].map(|limit| block_on(limit.peek([key])).unwrap().remaining());
                    prop_assert_eq!(one, other);
                }
            }
        }
    }
}

#[test]
fn where_the_third_denies_the_first_two_are_as_before() {
    let (limiter, limits) = limits(&FakeClock::new());
    while ask(&limits[2], "k", 1) {}
    let before = [0, 1].map(|place: usize| left(&limits[place], "k"));
    let asks = || limits[..3].iter().map(|limit| limit.ask("k", 2)).collect();
    let AllDecision::Denied(denied) = all(&limiter, asks()) else { panic!("the third has nothing left") };
    assert_eq!(denied.denials().map(|(ask, _)| ask.limit().name()).collect::<Vec<_>>(), ["l2"]);
    assert_eq!([0, 1].map(|place: usize| left(&limits[place], "k")), before);
}

#[test]
fn what_makes_no_sense_is_found_before_anything_is_taken() {
    let (limiter, limits) = limits(&FakeClock::new());
    for (wrong, kind) in [
        (limits[1].ask("k", 0), ErrorKind::InvalidPermits),
        (limits[1].ask("k", 100), ErrorKind::Never),
        (limits[1].ask("", 1), ErrorKind::InvalidKey),
    ] {
        let error = block_on(limiter.acquire_all([limits[0].ask("k", 1), wrong.clone()])).unwrap_err();
        assert_eq!(error.kind(), kind);
        assert!(error.to_string().contains("\"l1\""), "{error}");
        assert_eq!(left(&limits[0], "k"), 6);
        // Each by itself: the others are decided.
        let each = block_on(limiter.acquire_many([limits[0].ask("other", 1), wrong]));
        assert!(each[0].as_ref().unwrap().is_allowed());
        assert_eq!(each[1].as_ref().unwrap_err().kind(), kind);
    }
    assert!(block_on(limiter.acquire_many([])).is_empty());
    assert!(all(&limiter, Vec::new()).is_allowed(), "nobody said no");
}

/// Twice four of a key that holds six was "not yet", for ever.
#[test]
fn asks_of_one_key_are_checked_together() {
    let (limiter, limits) = limits(&FakeClock::new());
    let twice = |permits| [limits[0].ask("k", permits), limits[0].clone().ask("k", permits)];
    assert_eq!(block_on(limiter.acquire_all(twice(4))).unwrap_err().kind(), ErrorKind::Never);
    assert_eq!(left(&limits[0], "k"), 6);
    assert!(block_on(limiter.acquire_all(twice(3))).unwrap().is_allowed());
    // Of another key, or another limit, it is another matter.
    let apart = [limits[0].ask("a", 4), limits[0].ask("b", 4), limits[1].ask("a", 1)];
    assert!(block_on(limiter.acquire_all(apart)).unwrap().is_allowed());
}

#[test]
fn one_receipt_is_good_for_all() {
    let (limiter, limits) = limits(&FakeClock::new());
    let take = || allowed(all(&limiter, limits.iter().map(|limit| limit.ask("k", 2)).collect())).into_receipt();
    let whole: Vec<_> = limits.iter().map(|limit| left(limit, "k")).collect();
    block_on(take().refund()).unwrap();
    assert_eq!(limits.iter().map(|limit| left(limit, "k")).collect::<Vec<_>>(), whole);
    block_on(take().settle(&[1, 2, 3, 0, 1, 3])).unwrap();
    let costs: Vec<_> = limits.iter().zip(&whole).map(|(limit, whole)| whole - left(limit, "k")).collect();
    assert_eq!(costs, [1, 2, 3, 0, 1, 3]);
    assert_eq!(block_on(take().settle(&[1])).unwrap_err().kind(), ErrorKind::InvalidPermits);
}

/// Whoever waits in line keeps his place: a call of several does not overtake him, nor does it wait.
#[test]
fn a_line_denies_the_whole_call() {
    let time = FakeClock::new();
    let (limiter, limits) = limits(&time);
    while ask(&limits[0], "k", 1) {}
    let mut waiting = Manual::new(limits[0].acquire_within("k", 2, crate::support::MINUTE));
    assert!(waiting.is_pending());
    time.advance(Duration::from_millis(100));
    let decision = all(&limiter, vec![limits[1].ask("k", 1), limits[0].ask("k", 1)]);
    assert!(!decision.is_allowed());
    assert_eq!(left(&limits[1], "k"), 5);
}

#[test]
fn calls_of_several_can_be_sent_to_other_threads() {
    fn is_send(_: &impl Send) {}
    let (limiter, _) = limits(&FakeClock::new());
    is_send(&limiter.acquire_all(Vec::new()));
    is_send(&limiter.acquire_many(Vec::new()));
}
