//! Calls of several threads that join a round side by side: none is lost, and their order is that in which they came.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread;

use proptest::prelude::*;

use super::super::ahead::Ahead;
use super::super::job::{Miss, Work};
use super::super::lane::Lane;
use super::super::queue::{Load, MOST_ASKS, Sending, Start};
use super::super::row::Late;
use super::super::seat::Seat;
use super::super::stripes::UNTOLD;
use super::round::decide;
use crate::clock::Micros;
use crate::kernel::{Ask, State};
use crate::key::Slot;
use crate::limit::Share;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, lock};
use crate::wire::GrantId;

const NOW: Micros = 1_000_000_007;
const LATER: Micros = NOW + 1_000_000;

/// A lane to a share that never gets anything back.
fn new_lane(burst: u64) -> Arc<Lane> {
    let share = Share::whole(&format!("fixed-window {burst}/day").parse().unwrap());
    let (slot, id) = (Slot::new(7).unwrap(), GrantId { stamp: 1, random: 1 });
    Arc::new(Lane::new(slot, Box::default(), id, share, (burst, burst), true, 0, Arc::default()))
}

fn put(lane: &Arc<Lane>, permits: u64, times: (Micros, Micros)) -> (Seat, Start) {
    lane.put(Work::Ask(permits), times, &mut Some(Waker::noop().clone()))
}

/// A round is on its way, and so many calls wait for the next one, which came one after the other.
fn crowded(burst: u64, calls: usize) -> (Arc<Lane>, Sending, Vec<Seat>) {
    let lane = new_lane(burst);
    let (first, Start::Send(load)) = put(&lane, 1, (NOW, LATER)) else { panic!("it is idle") };
    let sending = Sending::new(Arc::clone(&lane), Some(&load));
    let mut seats = vec![first];
    seats.extend((0..calls).map(|_| put(&lane, 1, (NOW, LATER)).0));
    let sealed = load.round.seal(NOW);
    lane.miss(&load.round, sealed, Miss::Stale);
    (lane, sending, seats)
}

fn granted(seat: &mut Seat) -> Option<u64> {
    match pin!(seat).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(found)) => Some(found.verdict.granted),
        Poll::Ready(Err(_)) => Some(0),
        Poll::Pending => None,
    }
}

fn ahead(lane: &Lane) -> u64 {
    Ahead::all(lane.ahead.load(Ordering::Relaxed))
}

/// What joins without the lane's lock is in the next round all the same, and the lane knows of all of it by then.
#[test]
fn a_crowd_goes_along_as_a_whole() {
    const CALLS: usize = 500;
    let (lane, mut sending, seats) = crowded(1_000_000, CALLS);
    assert!(lane.waiting() < CALLS && lane.waiting() + UNTOLD >= CALLS, "{}", lane.waiting());
    assert_eq!(ahead(&lane), lane.waiting() as u64);
    let Load { round, .. } = sending.next().expect("they wait");
    assert_eq!((lane.waiting(), ahead(&lane)), (CALLS, CALLS as u64));
    let sealed = round.seal(NOW);
    assert_eq!((sealed.calls(), sealed.asks.as_slice()), (CALLS, [Ask { permits: 1, count: CALLS as u64 }].as_slice()));
    // Whoever comes now is with the next one.
    let (_late, start) = put(&lane, 1, (NOW, LATER));
    assert!(matches!(start, Start::Nothing));
    let decided = decide(lane.share.clone(), &mut None, &sealed);
    lane.leave(&sealed);
    lane.decide(&round, sealed, decided);
    assert!(seats.into_iter().skip(1).all(|mut seat| granted(&mut seat) == Some(1)));
    assert_eq!((lane.waiting(), ahead(&lane)), (1, 1));
    assert_eq!(sending.next().expect("one waits").round.seal(NOW).calls(), 1);
}

/// A round takes as many as a run can, whoever they come by.
#[test]
fn rounds_of_a_crowd_are_no_larger_than_a_run() {
    let (lane, mut sending, _seats) = crowded(100_000_000, 3 * MOST_ASKS);
    let mut sizes = Vec::new();
    while let Some(Load { round, .. }) = sending.next() {
        let sealed = round.seal(NOW);
        sizes.push(sealed.calls());
        lane.miss(&round, sealed, Miss::Stale);
    }
    assert_eq!(sizes, [MOST_ASKS; 3]);
    assert_eq!((lane.waiting(), ahead(&lane)), (0, 0));
}

/// By however many threads they come, and however small the share is: no seat stays empty because another thread could have had it.
#[test]
fn rounds_of_many_threads_are_full() {
    for burst in [100_000_000, 100_000, 5_000, 200] {
        let (lane, mut sending, _first) = crowded(burst, 0);
        lane.stripes.make();
        let _seats: Vec<_> = thread::scope(|scope| {
            // One after the other, so that each has room that it does not use.
            let of_thread = |_| scope.spawn(|| (0..3 * MOST_ASKS / 32).map(|_| put(&lane, 1, (NOW, LATER))).collect());
            (0..32).flat_map(|number| of_thread(number).join().unwrap_or_else(|_| Vec::new())).collect()
        });
        let mut sizes = Vec::new();
        while let Some(Load { round, .. }) = sending.next() {
            let sealed = round.seal(NOW);
            sizes.push(sealed.calls());
            lane.miss(&round, sealed, Miss::Stale);
        }
        assert_eq!(sizes, [MOST_ASKS; 3], "a share of {burst}");
        assert_eq!((lane.waiting(), ahead(&lane)), (0, 0));
    }
}

/// A turn ends with a quarter of the share, also where the lane hears of most calls later.
#[test]
fn a_lane_is_full_with_those_who_joined_untold() {
    let (lane, _sending, _first) = crowded(2_400, 0);
    lane.stripes.make();
    let puts: Vec<_> = (0..1_000).map(|_| put(&lane, 1, (NOW, LATER))).collect();
    let full: Vec<_> = (0..).zip(&puts).filter(|(_, (_, start))| matches!(start, Start::Full)).collect();
    assert_eq!(full.len(), 1);
    assert!((599 - UNTOLD..599 + UNTOLD).contains(&full[0].0), "{}", full[0].0);
}

/// Those who joined untold are let go by their deadline, while their round waits and when it is out.
#[test]
fn a_crowd_is_let_go_by_its_deadline() {
    let (lane, mut sending, mut seats) = crowded(1_000_000, 100);
    drop(seats.remove(0));
    let mut gone = Late::default();
    lane.expire(LATER - 1, &mut gone);
    assert_eq!((gone.calls, lane.first_due()), (0, LATER));
    lane.expire(LATER, &mut gone);
    assert_eq!((gone.calls, lane.first_due()), (100, Micros::MAX));
    let (mut patient, _) = put(&lane, 1, (LATER, LATER + 5));
    let Load { round, .. } = sending.next().expect("they wait");
    let sealed = round.seal(LATER);
    assert_eq!(sealed.asks.as_slice(), [Ask { permits: 1, count: 1 }].as_slice());
    round.expire(LATER + 5, &mut gone);
    assert_eq!(gone.calls, 101);
    let decided = decide(lane.share.clone(), &mut None, &sealed);
    lane.leave(&sealed);
    lane.decide(&round, sealed, decided);
    assert!(seats.iter_mut().chain([&mut patient]).all(|seat| granted(seat) == Some(0)));
    assert_eq!((lane.waiting(), ahead(&lane), lane.is_giving_back()), (0, 0, true));
}

/// Of a small share the lane knows each call that is on its way: those behind it are denied in process.
#[test]
fn a_small_share_knows_of_each_call() {
    let (lane, _sending, _seats) = crowded(255, 100);
    assert_eq!((lane.waiting(), ahead(&lane)), (100, 100));
}

/// A call whose deadline is the first is known to whoever looks at deadlines.
#[test]
fn an_early_deadline_in_a_crowd_is_seen() {
    let (lane, _sending, _seats) = crowded(1_000_000, 100);
    assert_eq!(lane.first_due(), LATER);
    let _early = put(&lane, 1, (NOW, NOW + 5));
    assert_eq!(lane.first_due(), NOW + 5);
}

/// Whoever sends is gone: all of a crowd learn so, also those that the lane was not told of.
#[test]
fn a_crowd_without_a_sender_is_answered() {
    let (lane, sending, seats) = crowded(1_000_000, 500);
    drop(sending);
    assert!(seats.into_iter().all(|mut seat| granted(&mut seat) == Some(0)));
    assert_eq!((lane.waiting(), ahead(&lane)), (0, 0));
    let (_seat, start) = put(&lane, 1, (NOW, LATER));
    assert!(matches!(start, Start::Send(_)), "the lane is free");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// Who came first has what is left, by whichever thread he came.
    #[test]
    fn verdicts_are_in_the_order_of_arrival(threads in prop::collection::vec(0..3_usize, 1..60), left in 0..60_u64) {
        let (lane, mut sending, first) = crowded(100_000, UNTOLD);
        // Three threads that put what they are told to, at the time they are told.
        let seats: Vec<_> = thread::scope(|scope| {
            let (done, seats) = std::sync::mpsc::channel();
            let others: Vec<_> = (0..3).map(|_| {
                let (order, orders) = std::sync::mpsc::channel::<usize>();
                let (lane, done) = (Arc::clone(&lane), done.clone());
                scope.spawn(move || {
                    for index in orders {
                        let now = NOW + 1 + index as Micros;
                        done.send((index, put(&lane, 1, (now, LATER)).0)).unwrap();
                    }
                });
                order
            }).collect();
            let put = |(index, thread): (usize, &usize)| {
                others[*thread].send(index).unwrap();
                seats.recv().unwrap()
            };
            threads.iter().enumerate().map(put).collect()
        });
        let Load { round, .. } = sending.next().expect("they wait");
        let sealed = round.seal(NOW);
        prop_assert_eq!(sealed.calls(), UNTOLD + threads.len());
        // As if others had left so many.
        let share = Share::whole(&format!("fixed-window {}/day", UNTOLD as u64 + left + 1).parse().unwrap());
        let decided = decide(share, &mut None::<State>, &sealed);
        lane.leave(&sealed);
        lane.decide(&round, sealed, decided);
        drop(first);
        for (index, mut seat) in seats {
            prop_assert_eq!(granted(&mut seat), Some(u64::from((index as u64) < left + 1)), "call {}", index);
        }
    }
}

/// Threads that call as fast as they can, and one that sends: every call has its answer, and the shard grants what it has.
#[test]
fn threads_lose_no_call() {
    const THREADS: u64 = 4;
    const CALLS: u64 = 5_000;
    let lane = new_lane(THREADS * CALLS * 3 / 4);
    lane.stripes.make();
    let (state, allowed) = (Mutex::new(None), AtomicU64::new(0));
    let send = |mut next: Option<Load>, sending: &mut Sending| {
        while let Some(Load { round, .. }) = next {
            let sealed = round.seal(NOW);
            let decided = decide(lane.share.clone(), &mut lock(&state), &sealed);
            lane.leave(&sealed);
            lane.decide(&round, sealed, decided);
            next = sending.next();
        }
    };
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut seats = Vec::new();
                for call in 0..CALLS {
                    let (seat, start) = put(&lane, 1, (NOW + call, LATER));
                    seats.push(seat);
                    if let Start::Send(load) = start {
                        let mut sending = Sending::new(Arc::clone(&lane), Some(&load));
                        send(Some(load), &mut sending);
                    }
                }
                for mut seat in seats {
                    let verdict = loop {
                        if let Some(granted) = granted(&mut seat) {
                            break granted;
                        }
                        thread::yield_now();
                    };
                    allowed.fetch_add(verdict, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(allowed.into_inner(), THREADS * CALLS * 3 / 4);
    assert_eq!((lane.waiting(), ahead(&lane)), (0, 0));
}
