//! What only one of several threads may do.

use loom::thread;

use super::{NOW, check};
use crate::flow::sharded::fallback::Fallback;
use crate::flow::sharded::health::Health;
use crate::flow::sharded::lane::is_due;
use crate::flow::sharded::one_task::OneTask;
use crate::flow::sharded::turn::{STAY, Turns};
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Arc, Mutex, lock};

/// Of two that find something due, one does it.
pub fn what_is_due_is_done_once() {
    check(|| {
        let last = Arc::new(AtomicU64::new(NOW));
        let other = thread::spawn({
            let last = Arc::clone(&last);
            move || is_due(&last, NOW + 10, 10)
        });
        let here = is_due(&last, NOW + 10, 10);
        assert!(here ^ other.join().expect("it looked"));
    });
}

/// Of two that find a turn over, one begins the next: no lane is passed over.
pub fn a_turn_is_ended_once() {
    check(|| {
        let turns = Arc::new(Turns::new());
        let first = turns.next(STAY, NOW);
        let other = thread::spawn({
            let turns = Arc::clone(&turns);
            move || turns.next(STAY, NOW + STAY)
        });
        let here = turns.next(STAY, NOW + STAY);
        let there = other.join().expect("it has a turn");
        let begun = turns.next(STAY, NOW + STAY);
        assert_eq!(begun, first.wrapping_add(1));
        assert!(here == begun || there == begun);
    });
}

/// A sick shard is tried by one of those who find that it is time; and once it has answered, by nobody.
pub fn a_sick_shard_is_tried_once() {
    check(|| {
        let health = Arc::new(Health::default());
        health.failed(NOW, "gone");
        let time = NOW + 250_000;
        let look = |health: &Arc<Health>| {
            let health = Arc::clone(health);
            move || u32::from(health.is_to_be_tried(time, 500_000))
        };
        let other = thread::spawn(look(&health));
        let tried = look(&health)() + other.join().expect("it looked");
        assert_eq!(tried, 1);
        let third = thread::spawn(look(&health));
        assert!(health.answered(), "it was sick");
        third.join().expect("it looked");
        assert!(!health.is_sick(time), "a look does not make it sick again");
    });
}

/// What was admitted without a shard is charged to it once.
pub fn what_is_owed_is_paid_once() {
    check(|| {
        let fallback = Arc::new(Fallback::default());
        fallback.owe(1);
        let paying = thread::spawn({
            let fallback = Arc::clone(&fallback);
            move || fallback.take_owed()
        });
        fallback.owe(2);
        let paid = fallback.take_owed() + paying.join().expect("it paid");
        assert_eq!(paid + fallback.take_owed(), 3);
    });
}

/// Something is left to a task of which there is one, by two at once: all of it is done when the task ends, and never by two.
pub fn nothing_is_left_when_the_one_task_ends() {
    #[derive(Default)]
    struct Parts {
        task: OneTask,
        left: AtomicUsize,
        is_at_it: AtomicBool,
        done: AtomicUsize,
    }
    fn work(Parts { task, left, is_at_it, done }: &Parts) {
        loop {
            assert!(!is_at_it.swap(true, Ordering::Relaxed), "two are at it");
            task.looks();
            let found = left.swap(0, Ordering::Relaxed);
            done.fetch_add(found, Ordering::Relaxed);
            is_at_it.store(false, Ordering::Relaxed);
            if found == 0 && task.rests() {
                return;
            }
        }
    }
    check(|| {
        let parts = Arc::new(Parts::default());
        let leave = |parts: &Arc<Parts>| {
            let parts = Arc::clone(parts);
            move || {
                parts.left.fetch_add(1, Ordering::Relaxed);
                if parts.task.call() {
                    work(&parts);
                }
            }
        };
        let other = thread::spawn(leave(&parts));
        leave(&parts)();
        other.join().expect("it left something");
        assert_eq!(parts.done.load(Ordering::Relaxed), 2);
    });
}

/// The same for what lies behind a lock, of those who call only if nobody has.
pub fn whoever_finds_it_called_is_seen() {
    fn work(task: &OneTask, left: &Mutex<usize>, done: &AtomicUsize) {
        loop {
            task.looks();
            let found = std::mem::take(&mut *lock(left));
            done.fetch_add(found, Ordering::Relaxed);
            if found == 0 && task.rests() {
                return;
            }
        }
    }
    check(|| {
        let parts = Arc::new((OneTask::default(), Mutex::new(0), AtomicUsize::new(0)));
        let leave = |parts: &Arc<(OneTask, Mutex<usize>, AtomicUsize)>| {
            let parts = Arc::clone(parts);
            move || {
                let (task, left, done) = &*parts;
                *lock(left) += 1;
                if !task.is_called() && task.call() {
                    work(task, left, done);
                }
            }
        };
        let others = [0; 2].map(|_| thread::spawn(leave(&parts)));
        leave(&parts)();
        for other in others {
            other.join().expect("it left something");
        }
        assert_eq!(parts.2.load(Ordering::Relaxed), 3);
    });
}
