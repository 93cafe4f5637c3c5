//! Calls that wait: in order, never overtaken, gone without a trace when they are dropped.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::support::{MINUTE, Manual, allowed, ask, block_on, drained, is_allowed, left, limit};
use shardlimit::{Decision, Limiter};

const EVERY: [&str; 5] = [
    "token-bucket 10/s burst 2",
    "leaky-bucket 10/s capacity 2",
    "fixed-window 10/s",
    "sliding-window 10/s",
    "sliding-log 10/s",
];

#[test]
fn a_call_waits_until_its_permit_exists_and_no_longer() {
    for text in EVERY {
        let (limit, time) = drained(text);
        let Decision::Denied(denied) = block_on(limit.acquire("k")).unwrap() else { panic!("{text}: drained") };
        let mut call = Manual::new(limit.acquire_within("k", 1, MINUTE));
        assert!(call.is_pending());
        time.advance(denied.retry_after() - Duration::from_micros(1));
        assert_eq!(call.woken.times(), 0, "{text}: nothing to wake for yet");
        time.advance(Duration::from_micros(1));
        assert_eq!(call.woken.times(), 1, "{text}");
        assert_eq!(is_allowed(call.poll()), Some(true), "{text}");
    }
}

#[test]
fn calls_are_served_in_the_order_of_their_arrival() {
    let (limit, time) = drained("token-bucket 10/s burst 2");
    let mut calls: Vec<_> = (0..5).map(|_| Manual::new(limit.acquire_within("k", 1, MINUTE))).collect();
    assert!(calls.iter_mut().all(Manual::is_pending));
    for served in 0..5 {
        time.advance(Duration::from_millis(100));
        // Even when the later ones are polled first.
        for waiting in (served + 1..5).rev() {
            assert!(calls[waiting].is_pending(), "{waiting} overtook {served}");
        }
        assert_eq!(is_allowed(calls[served].poll()), Some(true));
    }
    assert!(!ask(&limit, "k", 1));
}

/// A line had no bound: whoever waits takes memory until his deadline, and so would an attacker.
#[test]
fn a_full_line_takes_nobody_in() {
    const MOST: usize = 100_000;
    let (limit, time) = drained("token-bucket 10/s burst 2");
    let mut calls: Vec<_> = (0..MOST).map(|_| Manual::new(limit.acquire_within("k", 1, MINUTE))).collect();
    assert!(calls.iter_mut().all(Manual::is_pending));
    let Poll::Ready(Ok(Decision::Denied(denied))) = Manual::new(limit.acquire_within("k", 1, MINUTE)).poll() else {
        panic!("one more waits")
    };
    assert!(denied.retry_after() > Duration::ZERO);
    // Once one is served, there is room for one.
    time.advance(Duration::from_millis(100));
    assert_eq!(is_allowed(calls[0].poll()), Some(true));
    assert!(Manual::new(limit.acquire_within("k", 1, MINUTE)).is_pending());
}

#[test]
fn nobody_overtakes_a_waiting_call() {
    let (limit, time) = drained("token-bucket 10/s burst 5");
    let mut large = Manual::new(limit.acquire_within("k", 5, MINUTE));
    assert!(large.is_pending());
    let hot = limit.handle("k").unwrap();
    for _ in 0..4 {
        time.advance(Duration::from_millis(100));
        let Decision::Denied(denied) = limit.try_acquire("k", 1).unwrap().unwrap() else { panic!("overtaken") };
        assert!(denied.remaining().permits > 0, "there are some, but they are spoken for");
        assert!(denied.retry_after() > Duration::ZERO);
        assert!(!hot.try_acquire(1).unwrap().unwrap().is_allowed());
        assert!(large.is_pending());
    }
    assert!(ask(&limit, "another key", 5));
    time.advance(Duration::from_millis(100));
    assert_eq!(is_allowed(large.poll()), Some(true));
    assert_eq!(left(&limit, "k"), 0);
}

/// While others wait, "not before" counts them in.
#[test]
fn a_denied_call_is_told_of_those_ahead() {
    let (limit, _) = drained("token-bucket 10/s burst 5");
    let mut calls: Vec<_> = (0..3).map(|_| Manual::new(limit.acquire_within("k", 1, MINUTE))).collect();
    assert!(calls.iter_mut().all(Manual::is_pending));
    let Decision::Denied(denied) = limit.try_acquire("k", 1).unwrap().unwrap() else { panic!("overtaken") };
    assert_eq!(denied.retry_after(), Duration::from_millis(400));
}

#[test]
fn a_dropped_call_leaves_the_line_and_no_charge() {
    let (limit, time) = drained("token-bucket 10/s burst 2");
    let mut first = Manual::new(limit.acquire_within("k", 2, MINUTE));
    let mut second = Manual::new(limit.acquire_within("k", 1, MINUTE));
    let mut third = Manual::new(limit.acquire_within("k", 1, MINUTE));
    assert!(first.is_pending() && second.is_pending() && third.is_pending());
    time.advance(Duration::from_millis(100));
    drop(first);
    assert_eq!(second.woken.times(), 1, "the next one is at the head now");
    drop(second);
    assert_eq!(is_allowed(third.poll()), Some(true));
    assert_eq!(left(&limit, "k"), 0);
    time.advance(Duration::from_millis(200));
    assert!(ask(&limit, "k", 2), "the line is empty again");
}

/// A call that was woken, but dropped before it looked, takes nothing along.
#[test]
fn a_woken_and_dropped_call_costs_nothing() {
    let (limit, time) = drained("token-bucket 10/s burst 1");
    let mut call = Manual::new(limit.acquire_within("k", 1, MINUTE));
    assert!(call.is_pending());
    time.advance(Duration::from_millis(100));
    assert_eq!(call.woken.times(), 1);
    drop(call);
    assert!(ask(&limit, "k", 1));
}

#[test]
fn a_call_that_cannot_be_served_in_time_is_denied_at_once() {
    for text in EVERY {
        let (limit, _) = drained(text);
        let mut call = Manual::new(limit.acquire_within("k", 1, Duration::from_millis(1)));
        assert_eq!(is_allowed(call.poll()), Some(false), "{text}");
    }
}

#[test]
fn a_call_behind_others_is_denied_at_its_deadline() {
    let (limit, time) = drained("token-bucket 10/s burst 5");
    let mut large = Manual::new(limit.acquire_within("k", 5, MINUTE));
    let mut short = Manual::new(limit.acquire_within("k", 1, Duration::from_millis(250)));
    assert!(large.is_pending() && short.is_pending());
    time.advance(Duration::from_millis(250));
    assert_eq!(short.woken.times(), 1);
    let Poll::Ready(Ok(Decision::Denied(denied))) = short.poll() else { panic!("past its deadline") };
    assert_eq!(denied.retry_after(), Duration::from_millis(250), "what the one ahead still lacks");
    time.advance(Duration::from_millis(250));
    assert_eq!(is_allowed(large.poll()), Some(true));
}

#[test]
fn a_permit_that_comes_at_the_deadline_is_in_time() {
    let (limit, time) = drained("token-bucket 10/s burst 1");
    let mut call = Manual::new(limit.acquire_within("k", 1, Duration::from_millis(100)));
    assert!(call.is_pending());
    time.advance(Duration::from_millis(100));
    assert_eq!(is_allowed(call.poll()), Some(true));

    let (limit, time) = crate::support::limit("pacing-queue 10/s capacity 5");
    assert!(ask(&limit, "k", 1));
    let mut call = Manual::new(limit.acquire_within("k", 1, Duration::from_millis(100)));
    assert!(call.is_pending());
    time.advance(Duration::from_millis(100));
    assert_eq!(is_allowed(call.poll()), Some(true));
}

#[test]
fn a_turn_that_comes_too_late_says_by_how_much() {
    let (limit, _) = limit("pacing-queue 3/10s capacity 3");
    assert!(ask(&limit, "k", 1));
    let late = block_on(limit.acquire_within("k", 1, Duration::from_secs(3))).unwrap();
    let Decision::Denied(denied) = late else { panic!("its turn comes after 10/3 s") };
    assert_eq!(denied.retry_after(), Duration::from_micros(333_334));
}

#[test]
fn refund_and_reset_wake_the_head() {
    let (limit, _) = limit("token-bucket 1/min burst 5");
    let receipt = allowed(block_on(limit.acquire_n("k", 5)).unwrap()).into_receipt();
    let mut first = Manual::new(limit.acquire_within("k", 5, 10 * MINUTE));
    let mut second = Manual::new(limit.acquire_within("k", 5, 10 * MINUTE));
    assert!(first.is_pending() && second.is_pending());
    block_on(limit.refund("k", receipt)).unwrap();
    assert_eq!((first.woken.times(), second.woken.times()), (1, 0));
    assert_eq!(is_allowed(first.poll()), Some(true));
    assert_eq!(second.woken.times(), 1, "it is at the head now");
    assert!(second.is_pending());
    block_on(limit.reset("k")).unwrap();
    assert_eq!(second.woken.times(), 2);
    assert_eq!(is_allowed(second.poll()), Some(true));
}

#[test]
fn in_a_pacing_queue_the_wait_includes_the_turn() {
    let (limit, time) = limit("pacing-queue 10/s capacity 5");
    assert!(ask(&limit, "k", 2));
    let mut call = Manual::new(limit.acquire_within("k", 1, MINUTE));
    assert!(call.is_pending());
    assert_eq!(left(&limit, "k"), 2, "it stands in the queue");
    time.advance(Duration::from_millis(199));
    assert!(call.is_pending());
    time.advance(Duration::from_millis(1));
    assert_eq!(call.woken.times(), 1);
    let Poll::Ready(Ok(decision)) = call.poll() else { panic!("its turn has come") };
    assert_eq!(allowed(decision).wait(), Duration::ZERO);
}

#[test]
fn a_pacing_queue_takes_a_dropped_call_back_and_refuses_a_late_one() {
    let (limit, _) = limit("pacing-queue 10/s capacity 5");
    assert!(ask(&limit, "k", 2));
    let mut call = Manual::new(limit.acquire_within("k", 1, MINUTE));
    assert!(call.is_pending());
    drop(call);
    assert_eq!(left(&limit, "k"), 3, "the tail went");
    let mut late = Manual::new(limit.acquire_within("k", 1, Duration::from_millis(199)));
    let Poll::Ready(Ok(Decision::Denied(denied))) = late.poll() else { panic!("its turn would come too late") };
    assert_eq!(denied.retry_after(), Duration::from_millis(1));
    assert_eq!(left(&limit, "k"), 3, "nothing was charged");
}

/// On the real clock, from threads that know nothing of a runtime: everyone is served, at the limit's pace.
#[test]
fn many_threads_wait_without_a_runtime() {
    let limit = Limiter::local().define("wait", "token-bucket 2000/s burst 1".parse().unwrap()).unwrap();
    let limit = Arc::new(limit);
    let start = std::time::Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..25 {
                    assert!(block_on(limit.acquire_within("k", 1, MINUTE)).unwrap().is_allowed());
                }
            });
        }
    });
    // 200 permits, one of them there at the beginning, cannot have come in less than 199 / 2000 s.
    assert!(start.elapsed() >= Duration::from_micros(99_500), "{:?}", start.elapsed());
}

#[test]
fn a_zero_timeout_does_not_wait() {
    let (limit, _) = drained("token-bucket 10/s burst 1");
    assert!(!block_on(limit.acquire_within("k", 1, Duration::ZERO)).unwrap().is_allowed());
    let mut forever = Manual::new(limit.acquire_within("k", 1, Duration::MAX));
    assert!(forever.is_pending());
}
