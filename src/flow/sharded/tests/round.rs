//! Every call of a round finds in its one answer what it would have got by itself, and nothing granted is lost.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread;

use proptest::prelude::*;

use super::super::job::{Answer, Miss, Outcome, Work};
use super::super::lane::Lane;
use super::super::queue::{Sending, Start};
use super::super::round::{Decided, Round, Sealed};
use super::super::row::{Late, Row};
use super::super::seat::Seat;
use crate::decision::{DecidedBy, StoreFacts};
use crate::error::{Error, ErrorKind};
use crate::kernel::state::{run, run_one};
use crate::kernel::{Ask, Batch, Refund, State, UNSPENT, Verdict};
use crate::key::Slot;
use crate::limit::Share;
use crate::sync::Arc;
use crate::sync::atomic::Ordering;
use crate::wire::{GrantId, Verdicts};

const NOW: u64 = 1_000_000_007;

fn share(text: &str) -> Share {
    Share::whole(&text.parse().unwrap())
}

fn new_round() -> Arc<Round> {
    let (slot, share) = (Slot::new(7).unwrap(), share("10/s"));
    let lane =
        Lane::new(slot, Box::default(), GrantId { stamp: 1, random: 1 }, share, (10, 10), true, 0, Arc::default());
    Round::new(&Arc::new(lane))
}

/// With more of them than go together, each round that failed was followed by another at once, for as long as the server was away.
#[test]
fn refunds_that_could_not_be_sent_wait_for_somebody() {
    let lane = Arc::clone(&new_round().trip.lane);
    let refund = Refund { permits: 2, at: NOW, line: 0 };
    assert_eq!(lane.keep(vec![refund; 2_000]), 0);
    let (seat, Start::Send(mut load)) = lane.put(Work::Look, (NOW, NOW + 1_000), &mut None) else { panic!("idle") };
    let mut sending = Sending::new(Arc::clone(&lane), Some(&load));
    assert_eq!(load.refunds.len(), 1_024);
    assert_eq!(lane.keep(std::mem::take(&mut load.refunds)), 0);
    lane.miss(&load.round, load.round.seal(NOW), Miss::Stale);
    assert!(sending.next().is_none(), "nobody has asked for another");
    assert!(lane.has_kept());

    // Once the shard has taken some, all of them go.
    drop(seat);
    let (_seat, Start::Send(load)) = lane.put(Work::Look, (NOW, NOW + 1_000), &mut None) else { panic!("idle") };
    let mut sending = Sending::new(Arc::clone(&lane), Some(&load));
    lane.send_kept();
    lane.miss(&load.round, load.round.seal(NOW), Miss::Stale);
    assert_eq!(sending.next().expect("the rest").refunds.len(), 2_000 - 1_024);
    // There is room for so many, and the others are lost.
    assert_eq!(lane.keep(vec![refund; 10_007]), 14);
}

/// What the shard says to a round.
pub(super) fn decide(share: Share, state: &mut Option<State>, sealed: &Sealed) -> Decided {
    let mut verdicts: Verdicts = sealed.asks.iter().map(|_| Verdict::default()).collect();
    let batch = Batch { asks: &sealed.asks, ..Batch::default() };
    let header = run(state, &share, NOW, &batch, &mut verdicts);
    let facts = StoreFacts { remaining: 0, reset_after: 0, exact: true, decided_by: DecidedBy::Store, part: 0 };
    Decided { header, share, id: GrantId { stamp: 1, random: 1 }, sent: 5, facts, verdicts }
}

fn join(round: &Arc<Round>, work: Work) -> Seat {
    round.row().join(work, (10, 1_000), None)
}

/// Lets those go who are due; says how many that were.
fn expire(round: &Round, now: u64) -> u64 {
    let mut late = Late::default();
    round.expire(now, &mut late);
    let calls = late.calls;
    late.wake();
    calls
}

fn poll(seat: &mut Seat) -> Option<Answer> {
    match pin!(seat).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}

fn found(mut seat: Seat) -> Outcome {
    poll(&mut seat).expect("it is answered").expect("by the shard")
}

const EVERY: [&str; 5] = [
    "token-bucket 1/day burst 20",
    "leaky-bucket 1/day capacity 20",
    "pacing-queue 1/day capacity 20",
    "fixed-window 20/day",
    "sliding-window 20/day",
];

fn works() -> impl Strategy<Value = Vec<Work>> {
    let work = prop_oneof![
        6 => (1..4_u64).prop_map(Work::Ask),
        1 => (10..30_u64).prop_map(Work::Ask),
        2 => (1..12_u64, 0..2_u32).prop_map(|(permits, held_for)| Work::Lease { permits, held_for }),
        1 => Just(Work::Look),
        1 => Just(Work::Make),
    ];
    prop::collection::vec(work, 1..24)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_call_finds_what_it_would_have_got_by_itself(
        limit in 0..EVERY.len(),
        works in works(),
        // 1, 2: before it is sealed, and before it is answered. 3: its deadline passes before that.
        gone in prop::collection::vec(0..4_u8, 24),
        // By which of several threads.
        rows in prop::collection::vec(0..3_usize, 24),
    ) {
        let share = share(EVERY[limit]);
        let round = new_round();
        let due = |gone: u8| if gone == 3 { 50 } else { 1_000 };
        let all_rows = [round.row(), round.new_row(), round.new_row()];
        let mut seats: Vec<Option<Seat>> = works.iter().zip(&gone).zip(&rows).zip(10..)
            .map(|(((work, gone), row), now)| Some(all_rows[*row].join(work.clone(), (now, due(*gone)), None))).collect();
        let leave = |seats: &mut Vec<Option<Seat>>, when: u8| {
            for (seat, _) in seats.iter_mut().zip(&gone).filter(|(_, gone)| **gone == when) {
                *seat = None;
            }
        };
        leave(&mut seats, 1);
        let sealed = round.seal(0);
        leave(&mut seats, 2);
        let late = gone[..works.len()].iter().map(|gone| u64::from(*gone == 3)).sum::<u64>();
        prop_assert_eq!((expire(&round, 49), expire(&round, 50), expire(&round, 51)), (0, late, 0));
        let decided = decide(share.clone(), &mut None, &sealed);
        let surplus = round.answer(sealed, Ok(decided));
        // Only a queue has places in line.
        let line_of = |line: i64| if share.is_paced() || line == UNSPENT { line } else { 0 };
        let mut back = Vec::new();

        // Leases are behind all others.
        let (mut state, mut verdicts) = (None, vec![Verdict::default(); works.len()]);
        for is_lease in [false, true] {
            for ((work, gone), alone) in works.iter().zip(&gone).zip(&mut verdicts) {
                // Who left before it was sealed costs nothing.
                let is_now = matches!(work, Work::Lease { .. }) == is_lease && *gone != 1;
                let Some(Ask { permits, count }) = work.ask().filter(|_| is_now) else { continue };
                for call in 0..count {
                    let (_, verdict) = run_one(&mut state, &share, NOW, Ask { permits, count: 1 });
                    alone.granted += verdict.granted;
                    (alone.line, alone.lack) = (if call == 0 { verdict.line } else { alone.line }, verdict.lack);
                }
            }
        }
        for (((work, seat), gone), alone) in works.iter().zip(seats).zip(&gone).zip(verdicts) {
            let Some(Ask { permits, count }) = work.ask().filter(|_| *gone != 1) else { continue };
            let outcome = match seat.filter(|_| *gone != 3) {
                Some(seat) => found(seat),
                // What was granted to one who left later is nobody's.
                None if alone.granted > 0 => {
                    let line = alone.line + (permits * alone.granted) as i64 * share.cost();
                    back.push((permits * alone.granted, line_of(if work.is_held() { UNSPENT } else { line })));
                    continue;
                }
                None => continue,
            };
            prop_assert_eq!(outcome.verdict.granted, alone.granted, "{:?}", work);
            if alone.granted < count {
                prop_assert_eq!(outcome.verdict.lack, alone.lack, "{:?}", work);
            }
            if alone.granted > 0 && share.is_paced() {
                prop_assert_eq!(outcome.verdict.line, alone.line, "{:?}", work);
            }
        }
        let mut came_back: Vec<_> = surplus.iter().map(|refund| (refund.permits, line_of(refund.line))).collect();
        came_back.sort_unstable();
        back.sort_unstable();
        prop_assert_eq!(came_back, back, "nothing else, and nothing less");
    }

    /// A call whose deadline has passed learns so, whenever it looks: it never finds what went back.
    #[test]
    fn who_is_late_gets_nothing(sent in any::<bool>(), looks_before in any::<bool>(), fails in any::<bool>()) {
        let round = new_round();
        let mut seat = round.row().join(Work::Ask(2), (10, 50), None);
        let sealed = round.seal(49);
        round.trip.sent.store(sent, Ordering::Relaxed);
        prop_assert_eq!((poll(&mut seat).is_none(), seat.is_over(), expire(&round, 50)), (true, false, 1));
        prop_assert!(seat.is_over());
        let kind = |answer: Option<Answer>| match answer {
            Some(Err(Miss::Failed(error))) => Some(error.kind()),
            _ => None,
        };
        if looks_before {
            let known = if sent { ErrorKind::Unknown } else { ErrorKind::NotSent };
            prop_assert_eq!(kind(poll(&mut seat)), Some(known));
        }
        let decided = decide(share(EVERY[0]), &mut None, &sealed);
        let lost = Miss::Failed(Error::new(ErrorKind::Unknown, "redis", "lost"));
        let surplus = round.answer(sealed, if fails { Err(lost) } else { Ok(decided) });
        prop_assert_eq!(surplus.iter().map(|refund| refund.permits).sum::<u64>(), if fails { 0 } else { 2 });
        let known = if fails { ErrorKind::Unknown } else { ErrorKind::NotSent };
        prop_assert_eq!(kind(poll(&mut seat)), Some(known));
        drop(seat);
    }
}

/// Who leaves before the round is sent is not asked for; a refund is sent whoever waits for it.
#[test]
fn a_seat_that_is_left_in_time_costs_nothing() {
    let round = new_round();
    let kept = join(&round, Work::Ask(3));
    let refund = Refund { permits: 2, at: 1, line: 0 };
    let works = [
        Work::Ask(5),
        Work::Lease { permits: 7, held_for: 3 },
        Work::Look,
        Work::Refund(Box::new(refund)),
        Work::Debt(4),
        Work::Make,
    ];
    for work in works {
        drop(join(&round, work));
    }
    let sealed = round.seal(0);
    assert_eq!(sealed.asks, [Ask { permits: 3, count: 1 }]);
    assert_eq!((sealed.refunds.as_slice(), sealed.debt, sealed.make), ([refund].as_slice(), 4, true));
    assert_eq!((sealed.calls(), sealed.asked), (7, 8), "the lane has to hear of all of them");
    let decided = decide(share(EVERY[0]), &mut None, &sealed);
    assert!(round.answer(sealed, Ok(decided)).is_empty());
    assert_eq!(found(kept).verdict.granted, 1);

    let round = new_round();
    drop((join(&round, Work::Ask(1)), join(&round, Work::Lease { permits: 1, held_for: 0 })));
    assert!(!round.seal(0).wanted, "nothing is to be sent");
}

/// Who came too early is told that it was not sent, except who gives something back.
#[test]
fn a_call_that_waited_too_long_is_not_sent() {
    let round = new_round();
    let mut old = round.row().join(Work::Ask(1), (9, 20), None);
    let refund = round.row().join(Work::Refund(Box::new(Refund { permits: 2, at: 1, line: 0 })), (9, u64::MAX), None);
    let new = round.row().join(Work::Ask(2), (10, 21), None);
    let sealed = round.seal(20);
    assert_eq!((sealed.asks.as_slice(), sealed.refunds.len()), ([Ask { permits: 2, count: 1 }].as_slice(), 1));
    let decided = decide(share(EVERY[0]), &mut None, &sealed);
    round.answer(sealed, Ok(decided));
    assert!(matches!(poll(&mut old), Some(Err(Miss::Failed(error))) if error.kind() == ErrorKind::NotSent));
    assert_eq!(found(new).verdict.granted, 1);
    found(refund);
}

/// Callers leave just when the answer comes: what was granted is theirs, or comes back, but never both nor neither.
#[test]
fn who_leaves_while_it_is_answered_loses_nothing() {
    const SEATS: u64 = 64;
    for number in 0..300 {
        let round = new_round();
        let mut seats: Vec<Seat> = (0..SEATS).map(|_| join(&round, Work::Ask(1))).collect();
        let sealed = round.seal(0);
        let decided = decide(share("token-bucket 1/day burst 40"), &mut None, &sealed);
        let (kept, surplus) = thread::scope(|scope| {
            let leaving = scope.spawn(|| {
                let granted = |seat: &mut Seat| matches!(seat.leave(), Some(Ok(found)) if found.verdict.granted == 1);
                seats.iter_mut().map(|seat| u64::from(granted(seat))).sum::<u64>()
            });
            (0..number % 10 * 50).for_each(|_| std::hint::spin_loop());
            let surplus = round.answer(sealed, Ok(decided)).len() as u64;
            (leaving.join().unwrap(), surplus)
        });
        assert_eq!(kept + surplus, 40, "{kept} kept, {surplus} came back");
    }
}

/// Whoever was not given a place in an answer may have been charged all the same.
#[test]
fn who_has_no_place_in_an_answer_was_not_denied() {
    let round = new_round();
    let mut one = join(&round, Work::Ask(1));
    let sealed = round.seal(0);
    let decided = decide(share(EVERY[0]), &mut None, &sealed);
    let mut without = Sealed::default();
    without.asks.clone_from(&sealed.asks);
    assert!(round.answer(without, Ok(decided)).is_empty());
    assert!(matches!(poll(&mut one), Some(Err(Miss::Ended { sent: true }))));
}

/// A round whose sender goes away is over all the same, also for those who ask later; a late answer changes nothing.
#[test]
fn a_round_without_a_shard_is_answered() {
    let round = new_round();
    let (mut one, mut other) = (join(&round, Work::Ask(1)), join(&round, Work::Look));
    assert!(poll(&mut one).is_none());
    let sealed = round.seal(0);
    let decided = decide(share(EVERY[0]), &mut None, &sealed);
    round.answer(Sealed::default(), Err(Miss::Ended { sent: true }));
    for seat in [&mut one, &mut other] {
        assert!(matches!(poll(seat), Some(Err(Miss::Ended { sent: true }))));
    }
    round.answer(sealed, Ok(decided));
    assert!(matches!(poll(&mut one), Some(Err(_))));
    let mut refused = Row::refused(&new_round().trip.lane, Miss::not_sent("redis", "full"));
    assert!(matches!(refused.leave(), Some(Err(Miss::Failed(error))) if error.kind() == ErrorKind::NotSent));
}

/// A call that was let go and admitted without its shard is charged once, whenever the answer comes.
#[test]
fn who_is_late_and_admitted_is_charged_once() {
    let late = || {
        let round = new_round();
        let mut seat = round.row().join(Work::Ask(2), (10, 50), None);
        let sealed = round.seal(49);
        round.trip.sent.store(true, Ordering::Relaxed);
        expire(&round, 50);
        assert!(matches!(poll(&mut seat), Some(Err(_))));
        let decided = decide(share(EVERY[0]), &mut None, &sealed);
        (round, seat, sealed, decided)
    };
    let (round, mut seat, sealed, decided) = late();
    assert!(!seat.admit());
    drop(seat);
    assert!(round.answer(sealed, Ok(decided)).is_empty(), "what was granted is the call's");

    let (round, mut seat, sealed, decided) = late();
    assert_eq!(round.answer(sealed, Ok(decided)).len(), 1, "what was granted has gone back");
    assert!(seat.admit(), "so it is to be charged");

    let (round, mut seat, sealed, _) = late();
    round.answer(sealed, Err(Miss::Ended { sent: true }));
    assert!(!seat.admit(), "nobody knows");
}

/// An answer that comes while somebody waits for it is in time, whatever the limiter's deadline is.
#[test]
fn an_answer_is_in_time_for_whoever_still_waits() {
    let round = new_round();
    let brief = round.row().join(Work::Ask(1), (NOW, NOW + 10), None);
    let patient = round.row().join(Work::Ask(1), (NOW, NOW + 1_000), None);
    let _look = round.row().join(Work::Look, (NOW, u64::MAX), None);
    assert!(round.is_waited_for(NOW + 9) && round.is_waited_for(NOW + 999) && !round.is_waited_for(NOW + 1_000));
    drop(patient);
    assert!(round.is_waited_for(NOW + 9) && !round.is_waited_for(NOW + 10));
    drop(brief);
    assert!(!round.is_waited_for(NOW), "that somebody looks is no matter");
}

/// That it is late says little: what happened before is told, until the shard has answered.
#[test]
fn who_is_late_is_told_what_happened_the_last_time() {
    let said = |round: &Arc<Round>| {
        let mut seat = join(round, Work::Ask(1));
        assert_eq!(expire(round, 1_000), 1);
        round.trip.lane.counts.health.overdue(NOW);
        match poll(&mut seat) {
            Some(Err(Miss::Failed(error))) => error.to_string(),
            _ => panic!("it is late"),
        }
    };
    let round = new_round();
    assert!(!said(&round).contains("the last time"));
    round.trip.lane.failed(NOW, NOW, "nobody is there");
    let error = said(&round);
    assert!(error.contains("by the deadline (the last time: nobody is there); nothing was charged"), "{error}");
    round.trip.lane.counts.health.answered();
    assert!(!said(&round).contains("the last time"));
}
