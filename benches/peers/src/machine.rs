//! What a run was made on, and what it used.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// How many cores this process may use.
#[must_use]
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The model of the first processor, as the kernel names it.
#[must_use]
pub fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    model.map_or_else(|| "unknown processor".into(), |(_, name)| name.trim().into())
}

/// The first line of a report.
#[must_use]
pub fn describe() -> String {
    format!("{}, {} cores", processor(), cores())
}

/// The processor time that this process has used, on all its threads.
#[must_use]
pub fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
