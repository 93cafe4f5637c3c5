//! What processes and the machine use, as the kernel has it under `/proc`.

use std::time::Duration;

use rustix::param::{clock_ticks_per_second, page_size};

/// Bytes of memory that this process has resident.
#[must_use]
pub fn resident() -> u64 {
    let pages = read("/proc/self/statm").split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * page_size() as u64
}

/// The processor time that another process has used, on all threads that it has now. In nanoseconds, where
/// `/proc/<process>/stat` would count by 10 ms.
#[must_use]
pub fn processor_time_of(process: u32) -> Duration {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{process}/task")) else { return Duration::ZERO };
    let of = |task: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        stat.split_whitespace().next()?.parse().ok()
    };
    tasks.flatten().filter_map(of).map(Duration::from_nanos).sum()
}

/// The time that all cores together have been idle.
#[must_use]
pub fn idle_time() -> Duration {
    let stat = read("/proc/stat");
    // cpu user nice system idle iowait ...: a core that waits for a disk has nothing to do either.
    let idle = stat.lines().next().map_or(0, |line| {
        line.split_whitespace().skip(4).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum::<u64>()
    });
    Duration::from_secs_f64(idle as f64 / clock_ticks_per_second() as f64)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::processor_time;

    #[test]
    fn a_process_sees_what_it_uses() {
        let before = processor_time_of(std::process::id());
        let own = processor_time();
        let memory = vec![1_u8; 64 << 20];
        let sum: u64 =
            (0..20).map(|_| std::hint::black_box(&memory).iter().map(|byte| u64::from(*byte)).sum::<u64>()).sum();
        assert_eq!(sum, 20 * (64 << 20));
        assert!(resident() >= 64 << 20);
        let (seen, used) = (processor_time_of(std::process::id()) - before, processor_time() - own);
        assert!(seen >= used / 2 && seen <= used * 2 + Duration::from_millis(50), "{seen:?} of {used:?}");
    }
}
