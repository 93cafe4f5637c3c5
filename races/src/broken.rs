//! The same scenes with a mistake in them. The checker finds each.

use loom::thread;

use super::lane::counted;
use super::{LATER, NOW, Shard, check};
use crate::flow::sharded::ceiling::Note;
use crate::flow::sharded::job::Work;
use crate::flow::sharded::queue::{Load, Sending, Start};
use crate::sync::Arc;

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
