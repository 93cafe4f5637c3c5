//! The right to send for a lane, and what is read of it without a lock.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use loom::future::block_on;
use loom::thread;

use super::{LATER, NOW, Shard, check, decide, is_granted, new_lane};
use crate::flow::sharded::ahead::Ahead;
use crate::flow::sharded::job::{Answer, Work};
use crate::flow::sharded::queue::{Drive, Load, Sending, Start};
use crate::sync::Arc;
use crate::sync::atomic::Ordering;

/// Sends until the lane is empty, as `drive` does; each answer takes a while.
async fn send(shard: Arc<Shard>, load: Option<Load>) {
    let mut sending = Sending::new(Arc::clone(&shard.lane), load.as_ref());
    let mut next = load;
    if next.is_none() {
        a_while().await;
        next = sending.next();
    }
    while let Some(load) = next {
        a_while().await;
        shard.answer(&load.round);
        next = sending.next();
    }
}

async fn a_while() {
    let mut is_over = false;
    poll_fn(|context| {
        context.waker().wake_by_ref();
        if std::mem::replace(&mut is_over, true) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

fn spawn(drive: Drive) {
    thread::spawn(|| block_on(drive));
}

/// A call that sends by itself while it is alone, as `held::Asked` does.
async fn call(shard: Arc<Shard>) -> Answer {
    let mut waker = Some(poll_fn(|context| Poll::Ready(context.waker().clone())).await);
    let (mut seat, start) = shard.lane.put(Work::Ask(1), (NOW, LATER), &mut waker);
    let mut drive: Option<Drive> = None;
    match start {
        Start::Nothing | Start::Full => {}
        Start::Crowded => panic!("there is room"),
        Start::Gather => spawn(Box::pin(send(Arc::clone(&shard), None))),
        Start::Send(load) => drive = Some(Box::pin(send(Arc::clone(&shard), Some(load)))),
        Start::Spawn(drive, waker) => {
            spawn(drive);
            waker.wake();
        }
    }
    let mut alone = drive.is_some();
    poll_fn(|context| {
        if std::mem::take(&mut alone)
            && let Some(mut mine) = drive.take().or_else(|| seat.take_over())
            && mine.as_mut().poll(context).is_pending()
        {
            match seat.leave_to(mine, context.waker()) {
                None if !seat.is_over() => {
                    alone = true;
                    return Poll::Pending;
                }
                None => seat.take_over().into_iter().for_each(spawn),
                Some(drive) => spawn(drive),
            }
        }
        Pin::new(&mut seat).poll(context)
    })
    .await
}

/// Two calls meet at an idle lane. One of them sends, alone or by a task, and neither waits for nothing.
pub fn two_calls_are_answered_whoever_sends() {
    two_calls_are_answered(false);
}

/// The same at a lane whose last round was shared: whoever comes first has a task wait for the other.
pub fn two_calls_are_answered_where_calls_are_let_in() {
    two_calls_are_answered(true);
}

fn two_calls_are_answered(is_shared: bool) {
    check(move || {
        let shard = new_shard(is_shared);
        let other = thread::spawn({
            let shard = Arc::clone(&shard);
            move || assert!(is_granted(&block_on(call(shard))))
        });
        assert!(is_granted(&block_on(call(Arc::clone(&shard)))));
        other.join().expect("it was answered");
        assert_eq!((shard.granted(), shard.lane.waiting()), (2, 0));
    });
}

/// Whoever sends goes away while another call comes: it is answered all the same, and the lane is free for the next.
pub fn nobody_waits_for_a_sender_that_is_gone() {
    a_sender_is_gone(false);
}

/// The same for the task that lets others in, and is gone before it sent anything.
pub fn nobody_waits_for_one_who_lets_in_and_is_gone() {
    a_sender_is_gone(true);
}

fn a_sender_is_gone(is_shared: bool) {
    check(move || {
        let shard = new_shard(is_shared);
        let lane = &shard.lane;
        let (mut seat, start) = lane.put(Work::Ask(1), (NOW, LATER), &mut None);
        let load = match start {
            Start::Send(load) if !is_shared => Some(load),
            Start::Gather if is_shared => None,
            _ => panic!("the lane is idle"),
        };
        let sending = Sending::new(Arc::clone(lane), load.as_ref());
        let gone = thread::spawn(move || drop((sending, load)));
        let answer = block_on(call(Arc::clone(&shard)));
        gone.join().expect("it is gone");
        let polled = pin!(&mut seat).poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(polled, Poll::Ready(Err(_))), "it was not sent");
        assert_eq!(u64::from(is_granted(&answer)), shard.granted());
        let next = block_on(call(Arc::clone(&shard)));
        assert!(is_granted(&next), "the lane is free");
    });
}

fn new_shard(is_shared: bool) -> Arc<Shard> {
    let shard = Shard::new("token-bucket 1/day burst 10");
    shard.lane.is_shared.store(is_shared, Ordering::Relaxed);
    shard
}

/// A thread's calls join a row of their own, the last one without the lane being told, while the round before is answered and theirs is
/// taken: all of them go along with one or the other.
pub fn whoever_joins_untold_goes_along() {
    check(|| {
        let shard = Shard::new("fixed-window 1000/day");
        let (first, start) = shard.lane.put(Work::Ask(1), (NOW, LATER), &mut None);
        let Start::Send(load) = start else { panic!("the lane is idle") };
        let joining = thread::spawn({
            let shard = Arc::clone(&shard);
            move || {
                [0; 3].map(|_| {
                    let (seat, start) = shard.lane.put(Work::Ask(1), (NOW, LATER), &mut None);
                    if let Start::Send(load) = start {
                        send_all(&shard, load);
                    }
                    seat
                })
            }
        });
        send_all(&shard, load);
        let joined = joining.join().expect("it joined");
        for mut seat in [first].into_iter().chain(joined) {
            let polled = pin!(&mut seat).poll(&mut Context::from_waker(Waker::noop()));
            assert!(matches!(polled, Poll::Ready(answer) if is_granted(&answer)), "it was left behind");
        }
        assert_eq!((shard.granted(), shard.lane.waiting()), (4, 0));
        assert_eq!(Ahead::all(shard.lane.ahead.load(Ordering::Relaxed)), 0);
    });
}

/// Calls by two threads are more than a round takes, and some of them join untold: the first round ends, and all go along with one or the
/// other.
pub fn whoever_joins_a_full_round_goes_along() {
    check(|| {
        let shard = Shard::new("fixed-window 1000/day");
        shard.lane.stripes.make();
        let (_first, start) = shard.lane.put(Work::Ask(1), (NOW, LATER), &mut None);
        let Start::Send(load) = start else { panic!("the lane is idle") };
        let others = [0; 2].map(|_| {
            let shard = Arc::clone(&shard);
            thread::spawn(move || [0; 3].map(|_| shard.lane.put(Work::Ask(1), (NOW, LATER), &mut None).0))
        });
        let seats: Vec<_> = others.into_iter().flat_map(|other| other.join().expect("it joined")).collect();
        send_all(&shard, load);
        for mut seat in seats {
            let polled = pin!(&mut seat).poll(&mut Context::from_waker(Waker::noop()));
            assert!(matches!(polled, Poll::Ready(answer) if is_granted(&answer)), "it was left behind");
        }
        assert_eq!((shard.granted(), shard.lane.waiting()), (7, 0));
        assert_eq!(Ahead::all(shard.lane.ahead.load(Ordering::Relaxed)), 0);
    });
}

/// A call that sends by itself is not polled any more. Another one by a thread with the same stripe is answered all the same.
pub fn nobody_depends_on_a_call_that_is_not_polled() {
    check(|| {
        let shard = Shard::new("fixed-window 1000/day");
        shard.lane.stripes.make();
        // The first thread and the third have the same stripe.
        thread::spawn(|| {}).join().expect("it has nothing to do");
        let other = thread::spawn({
            let shard = Arc::clone(&shard);
            move || assert!(is_granted(&block_on(call(shard))))
        });
        let mut waker = Some(Waker::noop().clone());
        let (seat, start) = shard.lane.put(Work::Ask(1), (NOW, LATER), &mut waker);
        match start {
            Start::Send(load) => {
                let mut drive: Drive = Box::pin(send(Arc::clone(&shard), Some(load)));
                let is_pending = drive.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending();
                if is_pending && let Some(drive) = seat.leave_to(drive, Waker::noop()) {
                    spawn(drive);
                }
            }
            Start::Spawn(drive, waker) => {
                spawn(drive);
                waker.wake();
            }
            Start::Nothing | Start::Full => {}
            Start::Gather | Start::Crowded => panic!("nothing is shared, and there is room"),
        }
        other.join().expect("it was answered");
        seat.take_over().into_iter().for_each(spawn);
    });
}

/// Whoever sends goes away while a thread joins untold: all of its calls learn so, or are with the next round.
pub fn nobody_waits_untold_for_a_sender_that_is_gone() {
    check(|| {
        let shard = Shard::new("fixed-window 1000/day");
        let lane = &shard.lane;
        lane.stripes.make();
        let (_first, start) = lane.put(Work::Ask(1), (NOW, LATER), &mut None);
        let Start::Send(load) = start else { panic!("the lane is idle") };
        let sending = Sending::new(Arc::clone(lane), Some(&load));
        let joining = thread::spawn({
            let shard = Arc::clone(&shard);
            move || {
                [0; 2].map(|_| {
                    let (seat, start) = shard.lane.put(Work::Ask(1), (NOW, LATER), &mut None);
                    if let Start::Send(load) = start {
                        send_all(&shard, load);
                    }
                    seat
                })
            }
        });
        drop((sending, load));
        let joined = joining.join().expect("it joined");
        let (mut next, start) = lane.put(Work::Ask(1), (NOW, LATER), &mut None);
        let Start::Send(load) = start else { panic!("the lane is free") };
        send_all(&shard, load);
        assert!(pin!(&mut next).poll(&mut Context::from_waker(Waker::noop())).is_ready());
        for mut seat in joined {
            assert!(pin!(&mut seat).poll(&mut Context::from_waker(Waker::noop())).is_ready(), "it was left behind");
        }
        assert_eq!((lane.waiting(), Ahead::all(lane.ahead.load(Ordering::Relaxed))), (0, 0));
    });
}

fn send_all(shard: &Arc<Shard>, load: Load) {
    let mut sending = Sending::new(Arc::clone(&shard.lane), Some(&load));
    let mut next = Some(load);
    while let Some(load) = next {
        shard.answer(&load.round);
        next = sending.next();
    }
}

/// A call goes away while its round is answered and sent: it keeps what it was granted, or that goes back with the next round.
pub fn who_leaves_gives_back_what_he_was_granted() {
    check(|| {
        let shard = Shard::new("token-bucket 1/day burst 10");
        let lane = Arc::clone(&shard.lane);
        let (mut seat, start) = lane.put(Work::Ask(1), (NOW, LATER), &mut None);
        let Start::Send(load) = start else { panic!("the lane is idle") };
        let leaving = thread::spawn(move || u64::from(seat.leave().as_ref().is_some_and(is_granted)));
        let mut sending = Sending::new(Arc::clone(&lane), Some(&load));
        shard.answer(&load.round);
        let back: u64 = sending.next().iter().flat_map(|load| &load.refunds).map(|refund| refund.permits).sum();
        let kept = leaving.join().expect("it left");
        assert_eq!(kept + back, shard.granted());
    });
}

/// What is known of a shard that had ten permits, while it answers that five were taken. Whoever asks for the other five is let
/// through: he never counts those five as both taken and on their way.
pub fn calls_are_not_counted_twice() {
    check(|| {
        counted(|lane, sealed, decided| {
            lane.note(sealed, &decided.header, &decided.share, &decided.verdicts, (NOW, 1_000_000));
        });
    });
}

/// `note` tells the lane of the answer.
pub(super) fn counted(note: fn(&crate::flow::sharded::Lane, &super::Sealed, &super::Decided)) {
    let lane = new_lane("token-bucket 1/day burst 10");
    let (_seat, start) = lane.put(Work::Ask(5), (NOW, LATER), &mut None);
    let Start::Send(load) = start else { panic!("the lane is idle") };
    let sealed = load.round.seal(NOW);
    let decided = decide(&lane, &mut None, &sealed);
    let reader = thread::spawn({
        let lane = Arc::clone(&lane);
        move || lane.opens_in(&lane.ceiling.known(), 5, NOW)
    });
    note(&lane, &sealed, &decided);
    assert_eq!(reader.join().expect("it was read"), Some(0), "five were counted twice");
    assert_eq!(lane.opens_in(&lane.ceiling.known(), 5, NOW), Some(0));
    assert_ne!(lane.opens_in(&lane.ceiling.known(), 6, NOW), Some(0));
}

/// A call with a deadline joins just when whoever sends decides when to look next: he looks in time, or is told to.
pub fn no_deadline_is_overlooked() {
    check(|| {
        let lane = new_lane("token-bucket 1/day burst 10");
        let (_first, start) = lane.put(Work::Ask(1), (NOW, LATER), &mut None);
        assert!(matches!(start, Start::Send(_)));
        let hurries = || pin!(lane.hurry.notified()).poll(&mut Context::from_waker(Waker::noop())).is_ready();
        assert!(hurries() && !hurries());
        // The last look was at a deadline before that of the call that comes.
        lane.looks_at.store(NOW, Ordering::Relaxed);
        let looks_at = thread::spawn({
            let lane = Arc::clone(&lane);
            move || lane.look_by(u64::MAX)
        });
        let _second = lane.put(Work::Ask(1), (NOW, NOW + 50), &mut None);
        let looks_at = looks_at.join().expect("it looked");
        assert!(looks_at <= NOW + 50 || hurries(), "nobody looks before {looks_at}");
    });
}
