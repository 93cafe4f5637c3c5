//! What a generator has to do.

use serde::{Deserialize, Serialize};
use shardlimit::Limit;

use super::schedule::Demand;
use crate::clock::{MICRO, MILLI, Nanos};
use crate::store::Store;

/// The calls of a run, and which part of them one process makes.
///
/// Caller i makes calls i, i + callers, …, and belongs to process i mod parts. So callers and demand are
/// split exactly, whatever the numbers, and neighbours in the schedule fall to different processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Job {
    pub store: Store,
    pub key: Vec<u8>,
    pub name: String,
    pub limit: Limit,
    pub permits: u64,
    /// In the whole run.
    pub callers: u64,
    /// Of the whole run; `None`: closed loop.
    pub demand: Option<Demand>,
    pub duration: Nanos,
    /// Count the calls of each such stretch of time too.
    pub sample: Option<Nanos>,
    /// Keep every admission, to judge them all together.
    pub check: bool,
    pub part: u64,
    pub parts: u64,
}

impl Job {
    /// The callers of this part.
    pub(crate) fn own_callers(&self) -> impl Iterator<Item = u64> + use<> {
        (self.part..self.callers).step_by(self.parts as usize)
    }

    /// The same run, another process.
    pub(crate) fn for_part(&self, part: u64) -> Self {
        Self { part, ..self.clone() }
    }

    /// From the order to the common start: enough for a busy machine to start threads (some 0.1 ms each) and callers
    /// (some 0.5 µs), and for other processes to read the order.
    pub(crate) fn lead(&self) -> Nanos {
        40 * MILLI + self.callers * MICRO
    }

    /// How many threads this part uses: together the parts use each core once. More threads than cores
    /// would make each other's calls late.
    pub(crate) fn threads(&self, cores: usize) -> usize {
        (cores / self.parts as usize).clamp(1, self.own_callers().count().max(1))
    }

    /// How many threads of all parts have to share a core.
    pub(crate) fn sharers(&self, cores: usize) -> u64 {
        self.parts.div_ceil(cores as u64).max(1)
    }
}

#[cfg(test)]
pub(super) fn example() -> Job {
    Job {
        store: Store::embedded(),
        key: b"item:42".into(),
        name: "test".into(),
        limit: "1000/s burst 10".parse().unwrap(),
        permits: 1,
        callers: 7,
        demand: None,
        duration: crate::clock::SECOND,
        sample: None,
        check: false,
        part: 0,
        parts: 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_make_the_whole() {
        let job = Job { parts: 3, ..example() };
        let mut callers: Vec<u64> = (0..3).flat_map(|part| job.for_part(part).own_callers()).collect();
        callers.sort_unstable();
        assert_eq!(callers, (0..7).collect::<Vec<_>>());
    }

    #[test]
    fn no_more_threads_than_cores_or_callers() {
        assert_eq!(example().threads(4), 4);
        assert_eq!(example().threads(64), 7);
        assert_eq!(Job { parts: 3, ..example() }.threads(8), 2);
        assert_eq!(Job { parts: 7, ..example() }.threads(2), 1);
        assert_eq!([1, 2, 7].map(|parts| Job { parts, ..example() }.sharers(2)), [1, 1, 4]);
    }

    #[test]
    fn it_survives_the_way_to_another_process() {
        let job = Job { demand: Some(Demand { calls: 5, period: 7 }), key: vec![0, 255], ..example() };
        let text = serde_json::to_string(&job).unwrap();
        assert_eq!(serde_json::from_str::<Job>(&text).unwrap(), job);
    }
}
