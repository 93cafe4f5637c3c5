//! The live overshoot: what all processes admitted of a split key, added up by store time.
//!
//! Each process adds what it was granted to a tally in the store, once a second, and gets back what all have. The tally lies
//! in another slot than home, so that it says something of a home that lost its writes. It is a sample: only split keys have
//! one, for only they are decided in several places, and what is lost on the way there is not sent again.

use std::collections::HashMap;
use std::time::Duration;

use super::SharedLimit;
use super::entry::Entry;
use super::lane::is_due;
use crate::clock::Micros;
use crate::kernel::{Ask, Refund, Verdict};
use crate::key::{Slot, sub_key};
use crate::limit::{Algorithm, Limit};
use crate::observe;
use crate::overshoot::Overshoot;
use crate::store::cluster::{Fault, Request};
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Arc, Mutex, lock};
use crate::wire::{Cell, MOST_CELLS, Script, TallyReply, TallyRun};

/// The length of a cell of store time.
const CELL: Micros = 100_000;
/// How many are judged together: half a minute.
const CELLS: u64 = MOST_CELLS as u64;
/// How often a process adds what it has.
const PERIOD: Micros = 1_000_000;
/// For how long a tally lives, and what was found by it counts.
const LIFE: Micros = 60_000_000;

/// Of one limit: which keys have a tally, and what was found.
pub(super) struct Tallies {
    /// The most keys that have one; zero: none.
    most: usize,
    used: AtomicUsize,
    /// By the hash of the key: when, by this process's clock, and what.
    found: Mutex<HashMap<u64, (Micros, Overshoot)>>,
}

/// Of one key: what this process has been granted and not told yet.
pub(super) struct Tally {
    of: Arc<Tallies>,
    cells: Mutex<Vec<Cell>>,
    told: AtomicU64,
    /// The first cell that the present limit is judged by: those before may have to do with another.
    since: AtomicU64,
    /// That limit.
    limit: Mutex<Option<Limit>>,
}

impl Tallies {
    pub(super) fn new(most: usize) -> Self {
        Self { most, used: AtomicUsize::new(0), found: Mutex::default() }
    }

    /// One for a key, while there is room.
    pub(super) fn begin(self: &Arc<Self>) -> Option<Tally> {
        let room = |used: usize| (used < self.most).then_some(used + 1);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).ok()?;
        let (cells, limit) = (Mutex::default(), Mutex::default());
        Some(Tally { of: Arc::clone(self), cells, told: AtomicU64::new(0), since: AtomicU64::new(0), limit })
    }

    pub(super) fn worst(&self, now: Micros) -> Option<Overshoot> {
        let found = &mut *lock(&self.found);
        found.retain(|_, (at, _)| now.saturating_sub(*at) < LIFE);
        found.values().map(|(_, overshoot)| *overshoot).max_by_key(|overshoot| overshoot.permits)
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.of.used.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Tally {
    /// From this moment of a shard's clock on, it is this limit that is judged.
    fn judge(&self, limit: &Limit, at: Micros) {
        let before = lock(&self.limit).replace(*limit);
        if before != Some(*limit) {
            self.since.store(at / CELL + u64::from(before.is_some()), Ordering::Relaxed);
        }
    }

    /// So many permits were granted at this moment of a shard's clock, or given back of what was granted then.
    fn add(&self, permits: i64, at: Micros) {
        let number = at / CELL;
        let cells = &mut *lock(&self.cells);
        if let Some(cell) = cells.iter_mut().rev().find(|cell| cell.number == number) {
            cell.permits += permits;
            return;
        }
        // One that does not get rid of them keeps the latest.
        if cells.len() as u64 == CELLS {
            cells.remove(0);
        }
        cells.push(Cell { number, permits });
    }
}

impl SharedLimit {
    /// Takes note of what a shard granted and was given back, and tells the others once in a while.
    pub(super) fn tally(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        (asks, verdicts, refunds): (&[Ask], &[Verdict], &[Refund]),
        at: Micros,
        now: Micros,
    ) {
        if self.tallies.most == 0 {
            return;
        }
        let permits: u64 = asks.iter().zip(verdicts).map(|(ask, verdict)| ask.permits * verdict.granted).sum();
        if permits == 0 && refunds.is_empty() {
            return;
        }
        let view = entry.load();
        let Some(tally) = entry.tally(|| view.is_split().then(|| self.tallies.begin()).flatten()) else { return };
        tally.judge(view.ledger.limit(), at);
        if permits > 0 {
            tally.add(permits as i64, at);
        }
        for refund in refunds.iter().filter(|refund| refund.at <= at && at - refund.at < CELLS * CELL) {
            tally.add(-(refund.permits as i64), refund.at);
        }
        if !is_due(&tally.told, now, PERIOD) {
            return;
        }
        let (limit, entry) = (Arc::clone(self), Arc::clone(entry));
        // Without a runtime nothing is told, and nothing is lost by it but the sample.
        let _ = self.engine.spawn(async move { limit.tell_tally(&entry).await });
    }

    pub(crate) fn overshoot(&self) -> Option<Overshoot> {
        self.tallies.worst(self.clock.now())
    }

    async fn tell_tally(&self, entry: &Entry) {
        let Some(tally) = entry.tally(|| None) else { return };
        let new = std::mem::take(&mut *lock(&tally.cells));
        let slot = opposite(entry.home);
        let run = TallyRun { keep: CELLS, ttl: LIFE / 1_000, new: &new };
        let request = Request {
            slot,
            script: Script::Tally,
            key: &sub_key(&format!("{}:tally", self.prefix), slot, &self.name, &entry.key),
            arguments: &|command| run.write(command),
            sent: &AtomicBool::new(false),
        };
        let parsed = |value| TallyReply::parse(value).map_err(|bad| Fault::Unknown(bad.to_string()));
        match self.engine.transport.run(&request).await.and_then(parsed) {
            Ok(TallyReply(mut cells)) => {
                let since = tally.since.load(Ordering::Relaxed);
                cells.retain(|cell| cell.number >= since);
                let limit = *entry.load().ledger.limit();
                let Some(worst) = worst(&limit, &cells) else { return };
                if worst.permits > 0 {
                    observe::overshoot(&self.name, &entry.key, &worst);
                }
                let now = self.clock.now();
                let found = &mut *lock(&self.tallies.found);
                found.retain(|_, (at, _)| now.saturating_sub(*at) < LIFE);
                found.insert(entry.owner, (now, worst));
            }
            Err(fault) => self.tell_fault(&entry.key, &fault),
        }
    }
}

/// The slot that is the furthest from home's: most clusters give their masters ranges of slots.
fn opposite(home: Slot) -> Slot {
    Slot::new((home.number() + Slot::COUNT / 2) % Slot::COUNT).expect("below the count")
}

/// The worst interval from the start of one cell to the end of another.
fn worst(limit: &Limit, cells: &[Cell]) -> Option<Overshoot> {
    let mut worst: Option<Overshoot> = None;
    for (index, first) in cells.iter().enumerate() {
        let mut sum = 0_i64;
        for last in &cells[index..] {
            sum = sum.saturating_add(last.permits);
            let micros = (last.number.saturating_sub(first.number) + 1) * CELL;
            let permits = sum.saturating_sub(most_in(limit, micros));
            if worst.is_none_or(|worst| permits > worst.permits) {
                worst = Some(Overshoot { permits, over: Duration::from_micros(micros) });
            }
        }
    }
    worst
}

/// The most permits that a limit grants in an interval of this length, as docs/accuracy.md has it.
fn most_in(limit: &Limit, micros: Micros) -> i64 {
    limit.parts().map(|part| most_of_part(&part, micros)).min().unwrap_or(i64::MAX)
}

fn most_of_part(limit: &Limit, micros: Micros) -> i64 {
    let (permits, period) = (u128::from(limit.permits()), limit.period().as_micros());
    let windows = u128::from(micros).div_ceil(period);
    let most = match limit.algorithm() {
        Algorithm::FixedWindow => permits * (windows + 1),
        Algorithm::SlidingWindow | Algorithm::SlidingLog => permits * windows,
        _ => {
            // Buckets, and a queue, whose line is a bucket's.
            u128::from(limit.burst()) + (permits * u128::from(micros)).div_ceil(period)
        }
    };
    i64::try_from(most).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(limit: &str, cells: &[(u64, i64)]) -> Option<(i64, u64)> {
        let cells: Vec<Cell> =
            cells.iter().map(|(number, permits)| Cell { number: *number, permits: *permits }).collect();
        let worst = worst(&limit.parse().unwrap(), &cells)?;
        Some((worst.permits, worst.over.as_millis() as u64))
    }

    #[test]
    fn the_worst_interval_is_found_wherever_it_lies() {
        let bucket = "token-bucket 100/s burst 50";
        assert_eq!(of(bucket, &[]), None);
        assert_eq!(of(bucket, &[(7, 60)]), Some((0, 100)), "burst and what came back in a tenth of a second");
        assert_eq!(of(bucket, &[(7, 60), (8, 10), (9, 13)]), Some((3, 300)));
        assert_eq!(of(bucket, &[(7, 1), (107, 62), (207, 1)]), Some((2, 100)));
        assert_eq!(of(bucket, &[(7, 10), (8, 10)]), Some((-50, 100)));
        assert_eq!(of(bucket, &[(7, 70), (8, -20)]), Some((10, 100)), "what was given back later had been admitted");
    }

    #[test]
    fn windows_have_formulas_of_their_own() {
        assert_eq!(of("fixed-window 100/s", &[(9, 100), (10, 100)]), Some((0, 200)), "at the border of two windows");
        assert_eq!(of("fixed-window 100/s", &[(10, 201)]), Some((1, 100)));
        assert_eq!(of("sliding-window 100/s", &[(10, 60), (12, 41)]), Some((1, 300)));
    }

    #[test]
    fn a_tally_has_a_place_as_long_as_it_lives() {
        let tallies = Arc::new(Tallies::new(1));
        let one = tallies.begin();
        assert!(one.is_some() && tallies.begin().is_none());
        drop(one);
        assert!(tallies.begin().is_some());
    }
}
