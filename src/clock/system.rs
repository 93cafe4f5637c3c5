//! The machine's clock, and the thread that rings its alarms.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::Micros;
use super::alarm::{Alarm, Alarms};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Arc, lock, thread};

/// Reads the processor's time stamp counter where that is safe (quanta decides): 10 ns against the 31 ns
/// of the standard library's clock.
#[derive(Debug)]
pub(super) struct SystemClock {
    ticks: quanta::Clock,
    origin_ticks: u64,
    origin: Micros,
    alarms: Arc<Alarms>,
    /// The process whose thread rings the alarms: a fork leaves the thread behind. 0: none.
    rung_by: AtomicU32,
}

impl SystemClock {
    pub(super) fn new() -> Self {
        let ticks = quanta::Clock::new();
        let origin_ticks = ticks.raw();
        // A machine that believes to live before 1970 starts at 0: only differences matter to a limit.
        let origin = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Self {
            origin_ticks,
            origin: origin.as_micros() as Micros,
            ticks,
            alarms: Arc::default(),
            rung_by: AtomicU32::new(0),
        }
    }

    pub(super) fn now(&self) -> Micros {
        self.origin + self.ticks.delta_as_nanos(self.origin_ticks, self.ticks.raw()) / 1000
    }

    pub(super) fn wake_at(self: &Arc<Self>, at: Micros, waker: &Waker) -> Alarm {
        let alarm = self.alarms.set(at, waker);
        let process = std::process::id();
        if self.rung_by.swap(process, Ordering::Relaxed) != process && !self.start_ringing() {
            // No thread to be had: all who wait have to look again by themselves, and the next alarm tries again.
            self.rung_by.store(0, Ordering::Relaxed);
            self.alarms.ring(Micros::MAX);
        }
        alarm
    }

    /// One thread a limiter, started by the first call that waits, ended with the limiter.
    fn start_ringing(&self) -> bool {
        let alarms = Arc::clone(&self.alarms);
        let (ticks, origin_ticks, origin) = (self.ticks.clone(), self.origin_ticks, self.origin);
        let now = move || origin + ticks.delta_as_nanos(origin_ticks, ticks.raw()) / 1000;
        let ring = move || {
            loop {
                // A waker that panics is its owner's affair; later alarms still have to ring.
                let _ = catch_unwind(AssertUnwindSafe(|| alarms.ring(now())));
                let mut board = lock(&alarms.board);
                if board.closed {
                    return;
                }
                let wait = board.earliest().map(|at| at.saturating_sub(now()));
                match wait {
                    Some(0) => {}
                    Some(wait) => drop(alarms.changed.wait_for(&mut board, Duration::from_micros(wait))),
                    None => alarms.changed.wait(&mut board),
                }
            }
        };
        thread::Builder::new().name("shardlimit-alarm".into()).spawn(ring).is_ok()
    }
}

impl Drop for SystemClock {
    fn drop(&mut self) {
        lock(&self.alarms.board).closed = true;
        self.alarms.changed.notify_one();
    }
}
