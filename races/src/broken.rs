//! The same scenes with a mistake in them. The checker finds each.

use loom::thread;

use super::lane::counted;
use super::{LATER, NOW, Shard, check};
use crate::flow::sharded::ceiling::Note;
use crate::flow::sharded::job::Work;
use crate::flow::sharded::queue::{Load, Sending, Start};
use crate::flow::sharded::seat::Seat;
use crate::sync::{Arc, lock};

/// The right to send is given up twice: the second time it is somebody else's.
pub fn broken_right_to_send() {
    fn call(shard: &Arc<Shard>) {
        let send = |load: Load| {
            let mut sending = Sending::new(Arc::clone(&shard.lane), Some(&load));
            shard.answer(&load.round);
            while let Some(next) = sending.next() {
                shard.answer(&next.round);
            }
            while let Some(next) = sending.next() {
                shard.answer(&next.round);
            }
        };
        let (_seat, start) = shard.lane.put(Work::Ask(1), (NOW, LATER), &mut None);
        if let Start::Send(load) = start {
            send(load);
        }
    }
    check(|| {
        let shard = Shard::new("token-bucket 1/day burst 10");
        let others = [0; 2].map(|_| {
            let shard = Arc::clone(&shard);
            thread::spawn(move || call(&shard))
        });
        call(&shard);
        for other in others {
            other.join().expect("it was answered");
        }
    });
}

/// A round is sealed before those who join it untold are kept out.
pub fn broken_end_of_a_row() {
    check(|| {
        let shard = Shard::new("fixed-window 1000/day");
        let (_first, start) = shard.lane.put(Work::Ask(1), (NOW, LATER), &mut None);
        assert!(matches!(start, Start::Send(_)), "the lane is idle");
        let joining = thread::spawn({
            let shard = Arc::clone(&shard);
            move || [0; 3].map(|_| shard.lane.put(Work::Ask(1), (NOW, LATER), &mut None).0)
        });
        let round = lock(&shard.lane.queue).rounds.pop_front();
        let sealed = round.as_ref().map(|round| round.seal(NOW).calls());
        let _ = shard.lane.stripes.close();
        let seats = joining.join().expect("it joined");
        if let (Some(round), Some(calls)) = (round, sealed) {
            let joined = |seat: &Seat| seat.row.as_ref().is_some_and(|row| Arc::ptr_eq(&row.trip, &round.trip));
            assert_eq!(seats.iter().filter(|seat| joined(seat)).count(), calls, "one was left behind");
        }
    });
}

/// An answer is noted before its calls are on their way no more.
pub fn broken_order_of_an_answer() {
    check(|| {
        counted(|lane, sealed, decided| {
            let (share, header) = (&decided.share, &decided.header);
            lane.ceiling.note(&Note { share, header, denied: None, sent: NOW, cap: 1_000_000 });
            lane.leave(sealed);
        });
    });
}
