//! One caller: waits until its next call is due, calls, counts.

use std::cell::RefCell;

use shardlimit::Handle;
use tokio::task::yield_now;

use super::pacer::Pacer;
use super::schedule::{Demand, LATE, calls_of};
use super::tally::{Sample, Tally};
use crate::clock::{Nanos, Stopwatch, real_time};
use crate::interrupt::Interrupt;

/// A caller whose store answers at once gives way to its thread's other callers after so many calls. Each time costs
/// about as much as a call, so this is a small part of the whole, and a turn stays a matter of microseconds.
const CALLS_A_TURN: u64 = 16;

/// What the callers of one thread have in common.
#[derive(Debug)]
pub(super) struct Desk {
    pub stopwatch: Stopwatch,
    pub pacer: Pacer,
    pub interrupt: Interrupt,
    pub handle: Handle,
    pub permits: u64,
    /// In the whole run.
    pub callers: u64,
    pub start: Nanos,
    pub end: Nanos,
    pub sample: Option<Nanos>,
    pub check: bool,
    /// Borrowed between two awaits only.
    pub tally: RefCell<Tally>,
}

impl Desk {
    /// Calls on schedule until the end, or until the run is interrupted.
    ///
    /// # Cancel safety
    /// A call that was out is offered and never decided; nobody drops callers before they end.
    pub(super) async fn open_loop(&self, place: usize, caller: u64, demand: Demand) {
        let mut made = 0;
        while !self.interrupt.is_set() {
            let due = self.start + demand.due(caller + made * self.callers);
            if due >= self.end {
                break;
            }
            if self.stopwatch.now() < due {
                self.pacer.until(place, due).await;
                if self.interrupt.is_set() {
                    break;
                }
            } else if made % CALLS_A_TURN == 0 {
                yield_now().await;
            }
            let begin = self.stopwatch.now();
            // Calls that are due but can't begin any more count as missed, below.
            if begin > self.end + LATE {
                break;
            }
            made += 1;
            if begin > due + LATE {
                self.tally.borrow_mut().late += 1;
            }
            self.call(begin, due).await;
        }
        let over = self.stopwatch.now().min(self.end).saturating_sub(self.start + LATE);
        let due = calls_of(caller, self.callers, demand.due_before(over));
        self.tally.borrow_mut().missed += due.saturating_sub(made);
    }

    /// Calls again and again until the end, or until the run is interrupted.
    ///
    /// # Cancel safety
    /// As [`open_loop`](Desk::open_loop).
    pub(super) async fn closed_loop(&self, place: usize) {
        self.pacer.until(place, self.start).await;
        let mut made: u64 = 0;
        let mut now = self.stopwatch.now();
        while now < self.end && !self.interrupt.is_set() {
            made += 1;
            now = self.call(now, now).await;
            if made.is_multiple_of(CALLS_A_TURN) {
                yield_now().await;
                now = self.stopwatch.now();
            }
        }
    }

    /// One call, and the moment at which it ended.
    async fn call(&self, begin: Nanos, counted_from: Nanos) -> Nanos {
        self.tally.borrow_mut().offered += 1;
        let called_at = if self.check { real_time() } else { 0 };
        let outcome = self.handle.acquire_n(self.permits).await;
        let end = self.stopwatch.now();
        let mut tally = self.tally.borrow_mut();
        tally.record(&outcome, end.saturating_sub(counted_from));
        if self.check
            && let Ok(decision) = &outcome
        {
            tally.admit(decision, called_at);
        }
        if let Some(length) = self.sample {
            self.sample_of(&mut tally.samples, length, begin).offered += 1;
            let ended = self.sample_of(&mut tally.samples, length, end);
            match outcome {
                Ok(decision) if decision.is_allowed() => ended.allowed += 1,
                Ok(_) => ended.denied += 1,
                Err(_) => {}
            }
        }
        end
    }

    /// The sample that a moment falls into. What ends after the run belongs to the last one.
    fn sample_of<'a>(&self, samples: &'a mut Vec<Sample>, length: Nanos, at: Nanos) -> &'a mut Sample {
        let last = (self.end - self.start).div_ceil(length).max(1) - 1;
        let index = (at.saturating_sub(self.start) / length).min(last) as usize;
        if samples.len() <= index {
            samples.resize(index + 1, Sample::default());
        }
        &mut samples[index]
    }
}
