//! A round: the calls that go to a shard together, and the one answer that all of them read.
//!
//! Few allocations a round instead of one a call. Whoever answers it wakes all who wait; each finds its own verdict by
//! its place. Whoever goes away before that says so, and what was granted to it comes back to the lane. So does what is granted
//! to a call whose deadline has passed: the limiter lets it go, as if it had gone by itself.

use smallvec::SmallVec;

use super::job::{Miss, Work};
use super::lane::Lane;
use super::row::{Caller, LAST, Late, Place, Row, Seats, Taken, Trip};
use crate::clock::Micros;
use crate::decision::StoreFacts;
use crate::kernel::{Ask, Header, Refund};
use crate::limit::Share;
use crate::sync::{Arc, Mutex, MutexGuard, lock};
use crate::wire::{GrantId, Verdicts};

pub(super) struct Round {
    pub trip: Arc<Trip>,
    /// Of the threads that have some, in the order in which they came; none comes once it is sealed.
    rows: Mutex<SmallVec<[Arc<Row>; 1]>>,
}

/// What a run decided.
pub(super) struct Decided {
    pub header: Header,
    /// What the shard's numbers are to be read by.
    pub share: Share,
    pub id: GrantId,
    /// When the run was sent, by this process's clock.
    pub sent: Micros,
    /// What is left on all shards after it.
    pub facts: StoreFacts,
    pub verdicts: Verdicts,
}

/// What a round comes to when it is sent.
#[derive(Default)]
pub(super) struct Sealed {
    /// Of each row's calls.
    places: SmallVec<[Vec<Place>; 1]>,
    pub asks: Vec<Ask>,
    /// Permits that leases ask for together, and for how long a shard keeps room for them.
    leased: u64,
    pub held_for: Micros,
    pub refunds: Vec<Refund>,
    pub debt: u64,
    pub reset: bool,
    pub make: bool,
    /// Whether there is anything to send.
    pub wanted: bool,
    /// Permits that its calls ask for, without leases; also those that are not sent.
    pub asked: u64,
}

impl Round {
    pub(super) fn new(lane: &Arc<Lane>) -> Arc<Self> {
        Arc::new(Self { trip: Trip::new(lane), rows: Mutex::default() })
    }

    /// The row that it has for all threads.
    pub(super) fn row(&self) -> Arc<Row> {
        let first = lock(&self.rows).first().map(Arc::clone);
        first.unwrap_or_else(|| self.new_row())
    }

    pub(super) fn new_row(&self) -> Arc<Row> {
        let row = Row::new(&self.trip);
        lock(&self.rows).push(Arc::clone(&row));
        row
    }

    /// What is to be sent: nothing for calls that nobody waits for, or whose deadline has passed, unless they were admitted for its
    /// sake. Nobody may join after this.
    pub(super) fn seal(&self, now: Micros) -> Sealed {
        let rows = lock(&self.rows);
        let seats: SmallVec<[_; 1]> = rows.iter().map(|row| lock(&row.seats)).collect();
        let places = seats.iter().map(|seats| vec![Place::Late; seats.taken.len()]).collect();
        let mut sealed = Sealed { places, ..Sealed::default() };
        for (_, row, index) in by_arrival(&seats) {
            let (row, index) = (row as usize, index as usize);
            let (seats, seat) = (&seats[row], &seats[row].taken[index]);
            sealed.asked += if let Work::Ask(permits) = seat.work { permits } else { 0 };
            let is_late =
                matches!(seat.caller, Caller::Late { .. }) || seats.due(seat) <= now && seat.caller != Caller::Admitted;
            let is_off = is_late || seat.caller == Caller::Gone && seat.work.dies_with_its_caller();
            if !is_off {
                sealed.places[row][index] = sealed.add(&seat.work);
            }
        }
        if sealed.leased > 0 {
            sealed.asks.push(Ask { permits: 1, count: sealed.leased });
        }
        sealed
    }

    /// The first deadline of those who wait.
    pub(super) fn first_due(&self) -> Micros {
        let dues = |row: &Arc<Row>| lock(&row.seats).first_due;
        lock(&self.rows).iter().map(dues).min().unwrap_or(Micros::MAX)
    }

    /// Somebody who asked has not come to his deadline yet.
    pub(super) fn is_waited_for(&self, now: Micros) -> bool {
        let waits = |seats: &Seats, seat: &Taken| {
            seat.caller == Caller::Waits && matches!(seat.work, Work::Ask(_)) && seats.due(seat) > now
        };
        lock(&self.rows).iter().any(|row| {
            let seats = &*lock(&row.seats);
            seats.taken.iter().any(|seat| waits(seats, seat))
        })
    }

    /// Permits that its calls give back, as long as it has no answer.
    pub(super) fn returning(&self) -> u64 {
        let back = |seat: &Taken| if let Work::Refund(refund) = &seat.work { refund.permits } else { 0 };
        let of = |row: &Arc<Row>| lock(&row.seats).taken.iter().map(back).sum::<u64>();
        lock(&self.rows).iter().map(of).sum()
    }

    /// When its first seat was taken.
    pub(super) fn since(&self) -> Micros {
        let since = |row: &Arc<Row>| lock(&row.seats).since;
        lock(&self.rows).iter().map(since).min().unwrap_or(0)
    }

    /// See [`Row::expire`].
    pub(super) fn expire(&self, now: Micros, late: &mut Late) {
        lock(&self.rows).iter().for_each(|row| row.expire(now, late));
    }

    /// Answers everybody, once. What comes back are permits that nobody waits for.
    pub(super) fn answer(&self, sealed: Sealed, result: Result<Decided, Miss>) -> Vec<Refund> {
        let Sealed { places, asks, .. } = sealed;
        self.trip.tell(asks, result);
        let mut surplus = Vec::new();
        let rows = lock(&self.rows).clone();
        for (row, places) in rows.iter().zip(places.into_iter().chain(std::iter::repeat_with(Vec::new))) {
            row.answer(places, &mut surplus);
        }
        surplus
    }
}

/// Who has a seat: when it was taken, in which row, and which of its seats; in the order in which they came. Of those who came in the
/// same microsecond the first are those whose row is older, so calls of one thread are in order in any case.
fn by_arrival(seats: &[MutexGuard<'_, Seats>]) -> SmallVec<[(Micros, u32, u32); 1]> {
    let mut arrivals: SmallVec<[(Micros, u32, u32); 1]> =
        SmallVec::with_capacity(seats.iter().map(|seats| seats.taken.len()).sum());
    for (row, seats) in seats.iter().enumerate() {
        let of = |(index, seat)| (seats.at(seat), row as u32, index as u32);
        arrivals.extend(seats.taken.iter().enumerate().map(of));
    }
    if seats.len() > 1 {
        // Made of few runs that are in order: such a sort only merges them.
        arrivals.sort_by_key(|(at, ..)| *at);
    }
    arrivals
}

impl Sealed {
    /// Permits that leases ask for.
    pub(super) fn leased(&self) -> u64 {
        self.leased
    }

    /// How many calls had a seat.
    pub(super) fn calls(&self) -> usize {
        self.places.iter().map(Vec::len).sum()
    }

    fn add(&mut self, work: &Work) -> Place {
        self.wanted = true;
        match work {
            Work::Ask(_) | Work::Look => {}
            Work::Lease { permits, held_for } => {
                let ahead = self.leased;
                self.leased += permits;
                self.held_for = self.held_for.max(Micros::from(*held_for));
                return Place::Ask { ask: LAST, ahead, count: *permits };
            }
            Work::Make => self.make = true,
            Work::Reset => self.reset = true,
            Work::Debt(permits) => self.debt = self.debt.saturating_add(*permits),
            Work::Refund(refund) => self.refunds.push(**refund),
        }
        let Some(Ask { permits, count }) = work.ask() else {
            return if matches!(work, Work::Refund(_)) { Place::Refund } else { Place::Header };
        };
        let mut ahead = 0;
        match self.asks.last_mut() {
            Some(ask) if ask.permits == permits => {
                ahead = ask.count;
                ask.count += count;
            }
            _ => self.asks.push(Ask { permits, count }),
        }
        Place::Ask { ask: self.asks.len() as u32 - 1, ahead, count }
    }
}
