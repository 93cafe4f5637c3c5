//! The promise that the demo checks: allowed ≤ burst + rate · time.

use shardlimit::Limit;

use crate::bench::Sample;
use crate::clock::Nanos;

/// The most permits that a bucket, full at the start, may have given out by `time`.
pub(super) fn most_allowed(limit: Limit, time: Nanos) -> u64 {
    let refilled = u128::from(limit.permits()) * u128::from(time) / limit.period().as_nanos();
    limit.burst().saturating_add(u64::try_from(refilled).unwrap_or(u64::MAX))
}

/// How many samples ended with more allowed than the promise lets be: none, if it is kept. Each asks for one permit.
pub(super) fn broken(limit: Limit, samples: &[Sample], length: Nanos, elapsed: Nanos) -> usize {
    let mut allowed = 0;
    let ends = (1..=samples.len() as u64).map(|index| index * length);
    let last = samples.len().saturating_sub(1);
    samples
        .iter()
        .zip(ends)
        .enumerate()
        .filter(|(index, (sample, end))| {
            allowed += sample.allowed;
            // The last sample holds what ended after it as well.
            let by = if *index == last { elapsed.max(*end) } else { *end };
            allowed > most_allowed(limit, by)
        })
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{MILLI, SECOND};

    #[test]
    fn one_permit_too_many_is_seen() {
        let limit: Limit = "token-bucket 1000/s burst 50".parse().unwrap();
        assert_eq!(most_allowed(limit, 0), 50);
        assert_eq!(most_allowed(limit, 5 * SECOND), 5_050);

        let samples = |first, second| [first, second].map(|allowed| Sample { allowed, ..Sample::default() });
        let check = |first, second| broken(limit, &samples(first, second), 100 * MILLI, 200 * MILLI);
        assert_eq!(check(150, 100), 0);
        assert_eq!(check(151, 0), 1);
        assert_eq!(check(150, 101), 1);
    }
}
