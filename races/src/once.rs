//! What only one of several threads may do.

use loom::thread;

use super::{NOW, check};
use crate::flow::sharded::fallback::Fallback;
use crate::flow::sharded::health::Health;
use crate::flow::sharded::lane::is_due;
use crate::flow::sharded::turn::{STAY, Turns};
use crate::sync::Arc;
use crate::sync::atomic::AtomicU64;

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
