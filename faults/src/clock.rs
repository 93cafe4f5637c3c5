//! Time that all processes of one machine have in common.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of the kernel's monotonic clock, which nobody sets.
pub(crate) type Nanos = u64;

pub(crate) const MILLI: Nanos = 1_000_000;
pub(crate) const SECOND: Nanos = 1_000_000_000;

pub(crate) fn now() -> Nanos {
    read(ClockId::Monotonic)
}

/// Microseconds since 1970, by the clock that servers on this machine go by unless somebody lies to them.
pub(crate) fn real_time() -> u64 {
    read(ClockId::Realtime) / 1_000
}

pub(crate) fn nanos(length: Duration) -> Nanos {
    u64::try_from(length.as_nanos()).unwrap_or(Nanos::MAX)
}

pub(crate) fn sleep_until(moment: Nanos) {
    std::thread::sleep(Duration::from_nanos(moment.saturating_sub(now())));
}

fn read(clock: ClockId) -> Nanos {
    let time = clock_gettime(clock);
    time.tv_sec as Nanos * SECOND + time.tv_nsec as Nanos
}
