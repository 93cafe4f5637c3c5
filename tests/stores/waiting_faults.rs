//! What may go wrong around calls that wait: futures that nobody polls, wakers that panic or move, clocks that jump.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{MINUTE, Manual, ask, block_on, drained, is_allowed};
use shardlimit::{Decision, FakeClock, Limiter};

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
    let new_home = Arc::new(crate::support::Woken::default());
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
