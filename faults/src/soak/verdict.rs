//! Whether anything grew: the first third after a warm-up against the last.

use super::sample::Sample;

/// The part of all samples in which tables fill and allocators find their size.
const WARM: f64 = 0.2;
/// Memory may be so much more in the last third, as a part and in bytes: allocators keep what they had at a peak, and peaks come by
/// chance.
const MORE: f64 = 0.03;
const SOME: f64 = 1_048_576.0;

/// One figure in both thirds.
struct Row {
    what: &'static str,
    first: f64,
    last: f64,
    /// What the last may be at the most.
    most: f64,
}

impl Row {
    /// By the mean, which a slow leak moves: it may grow a little.
    fn about(what: &'static str, (first, last): (&[Sample], &[Sample]), of: fn(&Sample) -> u64) -> Self {
        let mean = |samples: &[Sample]| samples.iter().map(of).sum::<u64>() as f64 / samples.len() as f64;
        let (first, last) = (mean(first), mean(last));
        Self { what, first, last, most: first * (1.0 + MORE) + SOME }
    }

    /// By the median, which a connection that is just being opened does not move: it may not grow.
    fn exactly(what: &'static str, (first, last): (&[Sample], &[Sample]), of: fn(&Sample) -> u64) -> Self {
        let median = |samples: &[Sample]| {
            let mut all: Vec<u64> = samples.iter().map(of).collect();
            all.sort_unstable();
            all[all.len() / 2] as f64
        };
        let (first, last) = (median(first), median(last));
        Self { what, first, last, most: first }
    }

    fn is_well(&self) -> bool {
        self.last <= self.most
    }
}

/// Prints a table; says whether nothing grew, and nothing hung.
pub(super) fn tell(samples: &[Sample], hung: usize) -> bool {
    let warm = &samples[(samples.len() as f64 * WARM).ceil() as usize..];
    let third = warm.len() / 3;
    if third == 0 {
        println!("NOT OK: too few samples");
        return false;
    }
    let thirds = (&warm[..third], &warm[warm.len() - third..]);
    let rows = [
        Row::about("resident memory, bytes", thirds, |sample| sample.memory),
        Row::exactly("tasks", thirds, |sample| sample.tasks),
        Row::exactly("threads", thirds, |sample| sample.threads),
        Row::exactly("open files and sockets", thirds, |sample| sample.files),
        Row::about("memory of servers, bytes", thirds, |sample| sample.server_memory),
        Row::exactly("keys of servers", thirds, |sample| sample.server_keys),
    ];
    println!("| at rest | first third | last third | at most | |\n|---|---|---|---|---|");
    for row in &rows {
        let Row { what, first, last, most } = row;
        let verdict = if row.is_well() { "ok" } else { "NOT OK" };
        println!("| {what} | {first:.0} | {last:.0} | {most:.0} | {verdict} |");
    }
    println!("| tasks that did not end | – | {hung} | 0 | {} |", if hung == 0 { "ok" } else { "NOT OK" });
    hung == 0 && rows.iter().all(Row::is_well)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn samples(count: u64, of: impl Fn(u64) -> (u64, u64)) -> Vec<Sample> {
        let sample = |turn| {
            let (memory, files) = of(turn);
            let (at, tasks, threads) = (Duration::from_secs(turn), 5, 5);
            Sample { at, memory, tasks, threads, files, server_memory: 1 << 20, server_keys: 7 }
        };
        (0..count).map(sample).collect()
    }

    #[test]
    fn what_stays_is_well() {
        assert!(tell(&samples(24, |turn| ((50 << 20) + turn % 3 * 100_000, 20 + turn % 2)), 0));
        assert!(tell(&samples(24, |turn| (if turn < 4 { 10 << 20 } else { 90 << 20 }, 20)), 0), "it fills at first");
    }

    #[test]
    fn what_grows_or_hangs_is_not() {
        assert!(!tell(&samples(24, |turn| ((50 << 20) + turn * 500_000, 20)), 0), "12 MB of 50 more");
        assert!(!tell(&samples(24, |turn| (50 << 20, 20 + turn / 10)), 0), "a socket now and then");
        assert!(!tell(&samples(24, |_| (50 << 20, 20)), 1), "one hangs");
        assert!(!tell(&samples(2, |_| (50 << 20, 20)), 0), "nothing can be said");
    }
}
