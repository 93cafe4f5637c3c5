//! Where calls of several threads join the next round side by side.
//!
//! Calls of a hot key that come by all threads of a process would pass the lines of a cache from core to core for each seat: the lane's
//! lock, its counts, the round's. So a lane to which calls come in crowds gives each thread a row of the next round, and tells it how many may
//! join there before the lane has to know of them. What the lane knows is that much behind, and exact again whenever a round is full or goes.

use std::task::Waker;

use crossbeam_utils::CachePadded;

use super::queue::MOST_ASKS;
use super::round::Round;
use super::row::{Joined, Room, Row};
use super::seat::Seat;
use crate::clock::Micros;
use crate::sync::{Arc, Mutex, OnceLock, lock, stripes, thread_number};

/// Calls that may join before the lane hears of them: then it costs them little, and rounds lose few seats to threads that do not fill
/// their rows.
pub(super) const UNTOLD: usize = if cfg!(races) { 2 } else { 32 };
/// And that all rows together may ask for: such a part of what the share holds. So the lane of a large share knows what is on its way to some
/// percent, and that of a small one always does.
const PART: u64 = 32;

/// Each thread's row of the round that calls join.
pub(super) struct Stripes(OnceLock<Box<[Stripe]>>);

type Stripe = CachePadded<Mutex<Option<Arc<Row>>>>;

impl Stripes {
    pub(super) fn new() -> Self {
        Self(OnceLock::new())
    }

    /// Calls come in crowds.
    pub(super) fn make(&self) {
        if self.0.get().is_none() {
            let _ = self.0.set((0..stripes()).map(|_| Stripe::default()).collect());
        }
    }

    #[inline]
    fn own(&self) -> Option<&Stripe> {
        let stripes = self.0.get()?;
        Some(&stripes[thread_number() & (stripes.len() - 1)])
    }

    /// A seat in this thread's row, if it has one, and there is room in it that the lane knows of.
    #[inline]
    pub(super) fn join(&self, permits: u64, times: (Micros, Micros), waker: &mut Option<Waker>) -> Option<Seat> {
        lock(self.own()?).as_ref()?.join_untold(permits, times, waker)
    }

    /// This thread's row of the round that calls join, if threads have rows of their own. Under the lane's lock.
    pub(super) fn row(&self, round: &Round) -> Option<Arc<Row>> {
        let own = &mut *lock(self.own()?);
        Some(Arc::clone(own.get_or_insert_with(|| round.new_row())))
    }

    /// Who may join there untold behind a call for `permits`, if a round has so many seats left, and the share such a burst. Whoever comes next is
    /// likely to ask for as many.
    pub(super) fn room(&self, left: usize, burst: u64, permits: u64) -> Room {
        let stripes = self.0.get().map_or(1, |stripes| stripes.len());
        let part = burst / (PART * stripes as u64);
        // Seats that nobody takes are half a round at the most, also where threads are many.
        let calls = left.min(UNTOLD).min(MOST_ASKS / (2 * stripes));
        Room { calls: calls.min((part / permits.max(1)) as usize), permits: part }
    }

    /// Takes back what room there is left. Says who has joined untold, and how many calls more could have. Under the lane's lock.
    pub(super) fn recall(&self) -> (Joined, usize) {
        self.close_each(|own| own.clone())
    }

    /// Nobody joins any more, until a round has rows again. Says who has joined untold. Under the lane's lock.
    pub(super) fn close(&self) -> Joined {
        self.close_each(Option::take).0
    }

    fn close_each(&self, row: impl Fn(&mut Option<Arc<Row>>) -> Option<Arc<Row>>) -> (Joined, usize) {
        let (mut untold, mut unused) = (Joined::default(), 0);
        for stripe in self.0.get().map_or(&[][..], Box::as_ref) {
            if let Some(row) = row(&mut lock(stripe)) {
                let (joined, left) = row.close();
                untold.add(joined);
                unused += left;
            }
        }
        (untold, unused)
    }
}
