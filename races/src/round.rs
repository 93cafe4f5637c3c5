//! Who waits, goes away, or is late while an answer comes.

use loom::future::block_on;
use loom::thread;

use super::{LATER, NOW, asked, check, is_granted, is_late};
use crate::flow::sharded::job::Miss;
use crate::flow::sharded::row::Late;
use crate::sync::Arc;

/// A call that waits is woken.
pub fn nobody_waits_for_an_answer_that_has_come() {
    check(|| {
        let (round, seat, sealed, decided) = asked(LATER);
        let waiting = thread::spawn(move || block_on(seat));
        assert!(round.answer(sealed, Ok(decided)).is_empty(), "somebody waits for it");
        assert!(is_granted(&waiting.join().expect("it was answered")));
    });
}

/// What was granted to a call that leaves is its own or comes back, never both nor neither.
pub fn what_is_granted_has_one_owner() {
    check(|| {
        let (round, mut seat, sealed, decided) = asked(LATER);
        let leaving = thread::spawn(move || usize::from(seat.leave().as_ref().is_some_and(is_granted)));
        let back = round.answer(sealed, Ok(decided)).len();
        assert_eq!(leaving.join().expect("it left") + back, 1);
    });
}

/// The same for a call whose deadline passes while it waits: and it is woken by one or the other.
pub fn who_is_late_has_nothing() {
    check(|| {
        let (round, seat, sealed, decided) = asked(NOW + 50);
        let waiting = thread::spawn(move || block_on(seat));
        let looking = thread::spawn({
            let round = Arc::clone(&round);
            move || {
                let mut late = Late::default();
                round.expire(NOW + 50, &mut late);
                late.wake();
            }
        });
        let back = round.answer(sealed, Ok(decided)).len();
        let answer = waiting.join().expect("it was answered");
        looking.join().expect("it looked");
        assert!(is_granted(&answer) || is_late(&answer));
        assert_eq!(usize::from(is_granted(&answer)) + back, 1);
    });
}

/// A call that was let go and admitted without its shard, while the answer comes: its shard charges it once.
pub fn who_is_admitted_late_is_charged_once() {
    check(|| {
        let (round, mut seat, sealed, decided) = asked(NOW + 50);
        let mut late = Late::default();
        round.expire(NOW + 50, &mut late);
        late.wake();
        let admitted = thread::spawn(move || seat.admit());
        let back = round.answer(sealed, Ok(decided)).len();
        // What came back is charged anew, and nothing else.
        assert_eq!(admitted.join().expect("it was admitted"), back == 1);
    });
}

/// The same where no answer comes: nothing is charged for it again.
pub fn who_is_admitted_without_an_answer_is_not_charged_again() {
    check(|| {
        let (round, mut seat, sealed, _) = asked(NOW + 50);
        let mut late = Late::default();
        round.expire(NOW + 50, &mut late);
        late.wake();
        let admitted = thread::spawn(move || seat.admit());
        round.answer(sealed, Err(Miss::Ended { sent: true }));
        assert!(!admitted.join().expect("it was admitted"));
    });
}
