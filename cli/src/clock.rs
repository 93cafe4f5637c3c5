//! Time in nanoseconds, for schedules and latencies.

use quanta::Clock;
use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds: a length of time, or an instant since the [`Stopwatch`] was made.
pub(crate) type Nanos = u64;

pub(crate) const MICRO: Nanos = 1_000;
pub(crate) const MILLI: Nanos = 1_000_000;
pub(crate) const SECOND: Nanos = 1_000_000_000;

/// The clock of a run. It is the one that the limiter reads, so that "burst + rate · time" can be checked to the
/// permit: against the kernel's clock it may drift by some 20 ppm, which is 2 permits in 5 s at 20,000/s.
#[derive(Clone, Debug)]
pub(crate) struct Stopwatch {
    clock: Clock,
    origin: u64,
}

impl Stopwatch {
    pub(crate) fn new() -> Self {
        let clock = Clock::new();
        let origin = clock.raw();
        Self { clock, origin }
    }

    pub(crate) fn now(&self) -> Nanos {
        self.clock.delta_as_nanos(self.origin, self.clock.raw())
    }

    /// The instant at which [`monotonic`] will show `instant`.
    pub(crate) fn at_monotonic(&self, instant: Nanos) -> Nanos {
        self.now() + instant.saturating_sub(monotonic())
    }
}

/// The kernel's clock: the only one that the processes of one run have in common.
pub(crate) fn monotonic() -> Nanos {
    read(ClockId::Monotonic)
}

/// Microseconds since 1970, by the clock that servers on this machine go by too.
pub(crate) fn real_time() -> u64 {
    read(ClockId::Realtime) / MICRO
}

/// The processor time that this process has used.
pub(crate) fn processor_time() -> Nanos {
    read(ClockId::ProcessCPUTime)
}

fn read(clock: ClockId) -> Nanos {
    let time = clock_gettime(clock);
    time.tv_sec as Nanos * SECOND + time.tv_nsec as Nanos
}
