//! The machine's clock, and the thread that rings its alarms.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Once, OnceLock};
use std::task::Waker;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::Micros;
use super::alarm::{Alarm, Alarms};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Arc, lock, thread};

/// Reads the processor's time stamp counter where that is safe (quanta decides): 10 ns against the 31 ns
/// of the standard library's clock, which it goes by until the counter is known.
#[derive(Debug)]
pub(super) struct SystemClock {
    reading: Arc<Reading>,
    alarms: Arc<Alarms>,
    /// The process whose thread rings the alarms: a fork leaves the thread behind. 0: none.
    rung_by: AtomicU32,
}

/// How the time is read.
#[derive(Debug)]
struct Reading {
    /// The same moment by both clocks.
    begin: Instant,
    origin: Micros,
    ticks: OnceLock<Ticks>,
}

/// The counter, and a moment by it.
#[derive(Debug)]
struct Ticks {
    counter: &'static quanta::Clock,
    begin: u64,
    origin: Micros,
}

impl Reading {
    fn new() -> Self {
        // A machine that believes to live before 1970 starts at 0: only differences matter to a limit.
        let origin = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Self { begin: Instant::now(), origin: origin.as_micros() as Micros, ticks: OnceLock::new() }
    }

    #[inline]
    fn now(&self) -> Micros {
        match self.ticks.get() {
            Some(ticks) => ticks.now(),
            None => self.without_ticks(),
        }
    }

    #[cold]
    fn without_ticks(&self) -> Micros {
        let now = || self.origin + self.begin.elapsed().as_micros() as Micros;
        match counter() {
            Some(counter) => self.ticks.get_or_init(|| Ticks::new(counter, now)).now(),
            None => now(),
        }
    }
}

impl Ticks {
    /// Goes on from what the other clock says.
    fn new(counter: &'static quanta::Clock, now: impl Fn() -> Micros) -> Self {
        // Between two readings a thread may lose its core: of several tries the closest.
        let tries = (0..8).map(|_| {
            let (origin, begin) = (now(), counter.raw());
            (now() - origin, begin, origin)
        });
        let (_, begin, origin) = tries.min().expect("eight tries");
        Self { counter, begin, origin }
    }

    fn now(&self) -> Micros {
        self.origin + self.counter.delta_as_nanos(self.begin, self.counter.raw()) / 1000
    }
}

/// The counter of this process, once it is known how fast it goes. Measuring that takes up to 200 ms of a thread, which whoever makes the
/// first limiter should not wait for.
fn counter() -> Option<&'static quanta::Clock> {
    static COUNTER: OnceLock<quanta::Clock> = OnceLock::new();
    static BEGUN: Once = Once::new();
    BEGUN.call_once(|| {
        let measure = || drop(COUNTER.set(quanta::Clock::new()));
        // Where there is no thread to be had, the other clock has to do.
        drop(thread::Builder::new().name("shardlimit-clock".into()).spawn(measure));
    });
    COUNTER.get()
}

impl SystemClock {
    pub(super) fn new() -> Self {
        Self { reading: Arc::new(Reading::new()), alarms: Arc::default(), rung_by: AtomicU32::new(0) }
    }

    #[inline]
    pub(super) fn now(&self) -> Micros {
        self.reading.now()
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
        let reading = Arc::clone(&self.reading);
        let now = move || reading.now();
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Also when the counter takes over, in the middle of it.
    #[test]
    fn time_goes_on_from_one_clock_to_the_other() {
        let clock = SystemClock::new();
        let other = || clock.reading.origin + clock.reading.begin.elapsed().as_micros() as Micros;
        let (mut last, mut read) = (clock.now(), 0);
        while clock.reading.ticks.get().is_none() || read < 1_000_000 {
            let now = clock.now();
            assert!(now >= last, "{last} and then {now}");
            assert!(now.abs_diff(other()) < 1_000_000, "{now} and {}", other());
            (last, read) = (now, read + 1);
            assert!(clock.reading.begin.elapsed() < Duration::from_secs(60), "the counter was never known");
        }
    }
}
