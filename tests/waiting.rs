//! Calls that wait: in order, never overtaken, gone without a trace when they are dropped.

mod support;

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use shardlimit::{Decision, FakeClock, Limiter, NamedLimit};
use support::{Manual, allowed, ask, block_on, left, limit};

const MINUTE: Duration = Duration::from_secs(60);

/// Ten a second, all taken.
fn drained(text: &str) -> (NamedLimit, FakeClock) {
    let (limit, time) = limit(text);
    while ask(&limit, "k", 1) {}
    (limit, time)
}

fn is_allowed(poll: Poll<Result<Decision, shardlimit::Error>>) -> Option<bool> {
    match poll {
        Poll::Ready(decision) => Some(decision.unwrap().is_allowed()),
        Poll::Pending => None,
    }
}

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

/// A future at the head that nobody polls must not hold up the line beyond its own deadline.
#[test]
fn a_forgotten_head_is_cleared_away() {
    let (limit, time) = drained("token-bucket 10/s burst 2");
    let mut forgotten = Manual::new(limit.acquire_within("k", 1, Duration::from_millis(200)));
    let mut next = Manual::new(limit.acquire_within("k", 1, MINUTE));
    assert!(forgotten.is_pending() && next.is_pending());
    time.advance(Duration::from_millis(201));
    assert_eq!(next.woken.times(), 1);
    assert_eq!(is_allowed(next.poll()), Some(true));
    assert!(ask(&limit, "k", 1), "no line, one permit left");
    assert_eq!(is_allowed(forgotten.poll()), Some(false));
}

#[test]
fn a_forgotten_head_does_not_lock_out_calls_that_do_not_wait() {
    let (limit, time) = drained("token-bucket 10/s burst 2");
    let mut forgotten = Manual::new(limit.acquire_within("k", 1, Duration::from_millis(200)));
    assert!(forgotten.is_pending());
    time.advance(Duration::from_millis(201));
    assert!(ask(&limit, "k", 1));
}

/// A call whose time was over was cleared away; when it came back it once found a newcomer under its own number, and took its
/// place, or threw it out.
#[test]
fn a_late_call_does_not_take_a_newcomers_place() {
    for dropped in [true, false] {
        let (limit, time) = drained("token-bucket 10/s burst 1");
        let mut late = Manual::new(limit.acquire_within("k", 1, Duration::from_millis(200)));
        assert!(late.is_pending());
        time.advance(Duration::from_millis(201));
        assert!(ask(&limit, "k", 1), "the late one is cleared away");
        let mut next = Manual::new(limit.acquire_within("k", 1, MINUTE));
        assert!(next.is_pending());
        time.advance(Duration::from_millis(100));
        if dropped {
            drop(late);
        } else {
            assert_eq!(is_allowed(late.poll()), Some(false));
        }
        assert_eq!(is_allowed(next.poll()), Some(true));
    }
}

/// A dead call that was not the head when it died must not stall the line when it would become the head.
#[test]
fn a_dead_call_in_the_middle_is_cleared_away() {
    for served in [true, false] {
        let (limit, time) = drained("token-bucket 10/s burst 5");
        let mut head = Manual::new(limit.acquire_within("k", 5, MINUTE));
        let mut dead = Manual::new(limit.acquire_within("k", 4, Duration::from_millis(10)));
        let mut last = Manual::new(limit.acquire_within("k", 1, MINUTE));
        assert!(head.is_pending() && dead.is_pending() && last.is_pending());
        time.advance(Duration::from_millis(500));
        if served {
            assert_eq!(is_allowed(head.poll()), Some(true));
        } else {
            drop(head);
        }
        assert_eq!(last.woken.times(), 1, "it is at the head now");
        if served {
            assert!(last.is_pending());
            let Decision::Denied(denied) = limit.try_acquire("k", 1).unwrap().unwrap() else { panic!("overtaken") };
            assert_eq!(denied.retry_after(), Duration::from_millis(200), "the dead one wants nothing any more");
            time.advance(Duration::from_millis(100));
        }
        assert_eq!(is_allowed(last.poll()), Some(true));
    }
}

/// Clearing a call whose deadline has passed does not take one along whose deadline is now.
#[test]
fn a_deadline_that_is_now_has_not_passed() {
    let (limit, time) = drained("token-bucket 10/s burst 1");
    let mut dead = Manual::new(limit.acquire_within("k", 1, Duration::from_millis(199)));
    let mut in_time = Manual::new(limit.acquire_within("k", 1, Duration::from_millis(200)));
    assert!(dead.is_pending() && in_time.is_pending());
    time.advance(Duration::from_millis(200));
    assert_eq!(is_allowed(in_time.poll()), Some(true));
}

/// A task may move to another executor between two polls.
#[test]
fn the_latest_waker_is_the_one_that_is_woken() {
    let (limit, time) = drained("token-bucket 10/s burst 5");
    let mut head = Manual::new(limit.acquire_within("k", 5, MINUTE));
    let mut moved = Manual::new(limit.acquire_within("k", 1, MINUTE));
    assert!(head.is_pending() && moved.is_pending());
    let new_home = Arc::new(support::Woken::default());
    assert!(moved.poll_with(&Arc::clone(&new_home).into()).is_pending());
    drop(head);
    assert_eq!((moved.woken.times(), new_home.times()), (0, 1));
    time.advance(Duration::from_millis(100));
    assert_eq!(is_allowed(moved.poll()), Some(true));
}

#[test]
fn whoever_clears_a_dead_head_wakes_the_next() {
    let (limit, time) = drained("token-bucket 10/s burst 5");
    let mut dead = Manual::new(limit.acquire_within("k", 5, Duration::from_millis(500)));
    let mut next = Manual::new(limit.acquire_within("k", 5, MINUTE));
    assert!(dead.is_pending() && next.is_pending());
    time.advance(Duration::from_millis(501));
    assert_eq!(next.woken.times(), 1, "by its own alarm");
    assert!(!ask(&limit, "k", 5));
    assert_eq!(next.woken.times(), 2, "by the call that found the head dead");
}

#[test]
fn a_permit_that_comes_at_the_deadline_is_in_time() {
    let (limit, time) = drained("token-bucket 10/s burst 1");
    let mut call = Manual::new(limit.acquire_within("k", 1, Duration::from_millis(100)));
    assert!(call.is_pending());
    time.advance(Duration::from_millis(100));
    assert_eq!(is_allowed(call.poll()), Some(true));

    let (limit, time) = support::limit("pacing-queue 10/s capacity 5");
    assert!(ask(&limit, "k", 1));
    let mut call = Manual::new(limit.acquire_within("k", 1, Duration::from_millis(100)));
    assert!(call.is_pending());
    time.advance(Duration::from_millis(100));
    assert_eq!(is_allowed(call.poll()), Some(true));
}

#[test]
fn a_turn_that_comes_too_late_says_by_how_much() {
    let (limit, _) = support::limit("pacing-queue 3/10s capacity 3");
    assert!(ask(&limit, "k", 1));
    let late = block_on(limit.acquire_within("k", 1, Duration::from_secs(3))).unwrap();
    let Decision::Denied(denied) = late else { panic!("its turn comes after 10/3 s") };
    assert_eq!(denied.retry_after(), Duration::from_micros(333_334));
}

/// One waker that panics must not keep the others asleep.
#[test]
fn a_panicking_waker_wakes_the_others_all_the_same() {
    struct Panics;

    impl std::task::Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("as a broken executor would");
        }
    }

    let time = FakeClock::new();
    let limiter = Limiter::builder().clock(&time).build().unwrap();
    let limit = limiter.define("test", "token-bucket 10/s burst 1".parse().unwrap()).unwrap();
    assert!(ask(&limit, "a", 1) && ask(&limit, "b", 1));
    let mut broken = Manual::new(limit.acquire_within("a", 1, MINUTE));
    let mut sound = Manual::new(limit.acquire_within("b", 1, MINUTE));
    assert!(broken.poll_with(&Arc::new(Panics).into()).is_pending() && sound.is_pending());
    let advance = || time.advance(Duration::from_millis(100));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(advance)).is_err());
    assert_eq!(sound.woken.times(), 1);
}

/// A clock that moves while a call is about to sleep once left it asleep for good.
#[test]
fn a_fake_clock_loses_no_wake_up() {
    for round in 0..2_000u32 {
        let (limit, time) = drained("token-bucket 10/s burst 1");
        let started = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                started.wait();
                assert!(block_on(limit.acquire_within("k", 1, MINUTE)).unwrap().is_allowed());
            });
            started.wait();
            for _ in 0..round % 64 * 20 {
                std::hint::spin_loop();
            }
            time.advance(Duration::from_millis(100));
        });
    }
}

#[test]
fn a_clock_set_back_wakes_those_who_sleep_by_it() {
    let (limit, time) = drained("token-bucket 10/s burst 1");
    let mut call = Manual::new(limit.acquire_within("k", 1, MINUTE));
    assert!(call.is_pending());
    time.step_back(Duration::from_secs(3_600));
    assert_eq!(call.woken.times(), 1);
    assert!(call.is_pending());
    time.advance(Duration::from_millis(100));
    assert_eq!(is_allowed(call.poll()), Some(true), "the limit follows the clock, and so does the call");
}

/// The line may hold the last reference to a task that nobody wants any more. Letting go of it drops the task, and with it a
/// call that waits for the very key whose lock is held: that once was a deadlock.
#[test]
fn the_last_waker_may_drop_its_own_call() {
    #[derive(Default)]
    struct Task(std::sync::Mutex<Option<std::pin::Pin<Box<dyn Future<Output = ()> + Send>>>>);

    impl std::task::Wake for Task {
        fn wake(self: Arc<Self>) {}
    }

    let (limit, time) = drained("token-bucket 10/s burst 5");
    let mut head = Manual::new(limit.acquire_within("k", 5, MINUTE));
    assert!(head.is_pending());
    let task = Arc::new(Task::default());
    let gone = Arc::downgrade(&task);
    let its_limit = limit.clone();
    let mut call = Box::pin(async move { drop(its_limit.acquire_within("k", 1, Duration::from_millis(100)).await) });
    let waker = std::task::Waker::from(Arc::clone(&task));
    assert!(call.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending());
    *task.0.lock().unwrap() = Some(call);
    drop((task, waker));
    drop(head); // the forgotten call is the head now
    time.advance(Duration::from_millis(101)); // its alarm rings and lets go of one waker; the line has the other
    assert!(gone.upgrade().is_some());
    assert!(ask(&limit, "k", 1));
    assert!(gone.upgrade().is_none(), "the task is gone with its last waker");
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
