//! Whether a run admitted more than its limit allows, in any interval whatever.
//!
//! Admissions count at the moment at which their store charged them, so processes, threads and the way of an answer do
//! not blur the picture. A leased permit is spent later than it was charged, and counts at the moment it was spent, by the
//! clock of the machine that spent it. Servers on the same machine go by the same clock; others have to be in step.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use shardlimit::{Algorithm, Limit};

/// Permits of one shard that were admitted at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Admission {
    /// Microseconds since 1970.
    pub at: u64,
    /// How many.
    pub permits: u64,
}

/// The interval that was the furthest above the limit's formula, or the closest below it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Worst {
    /// Permits above what the formula allows; negative: so many below.
    pub permits: f64,
    /// Length of the interval.
    pub micros: u64,
}

/// The worst interval of all; none for a run that admitted nobody.
#[must_use]
pub fn worst(limit: &Limit, mut admissions: Vec<Admission>) -> Option<Worst> {
    admissions.sort_unstable();
    // Of several limits at once: of the one that comes off the worst.
    let worst = limit.parts().filter_map(|part| worst_of_part(&part, &admissions));
    worst.max_by(|one, other| one.permits.total_cmp(&other.permits))
}

fn worst_of_part(limit: &Limit, admissions: &[Admission]) -> Option<Worst> {
    match limit.algorithm() {
        Algorithm::FixedWindow => worst_fixed_window(limit, admissions),
        Algorithm::SlidingWindow | Algorithm::SlidingLog => worst_sliding_window(limit, admissions),
        // What stands in a queue has been let in; the bound is a bucket's.
        _ => worst_bucket(limit, admissions),
    }
}

/// How far permits that are held for so long may lead above the formula: what they were charged in that time.
#[must_use]
pub fn allowance(limit: &Limit, held: Duration) -> f64 {
    let (held, period) = (held.as_micros(), limit.period().as_micros());
    match limit.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => limit.permits() as f64 * held as f64 / period as f64,
        // The formula of a window that is longer by so much.
        Algorithm::SlidingWindow | Algorithm::SlidingLog => limit.permits() as f64 * held.div_ceil(period) as f64,
        // Leases of a fixed window end with it; a pacing queue has none.
        _ => 0.0,
    }
}

/// Admitted in [a, b] − burst − rate · (b − a), at its worst: with the running sum S, that is the largest
/// (S(b) − rate · b) − (S before a − rate · a).
fn worst_bucket(limit: &Limit, admissions: &[Admission]) -> Option<Worst> {
    let first = admissions.first()?.at;
    let period = limit.period().as_micros() as i128;
    // All in units of 1/period of a permit: whole numbers.
    let refilled = |at: u64| i128::from(at - first) * i128::from(limit.permits());
    let mut sum: i128 = 0;
    let mut lowest: Option<(i128, u64)> = None;
    let mut worst: Option<(i128, u64)> = None;
    for admission in admissions {
        let before = sum * period - refilled(admission.at);
        if lowest.is_none_or(|(lowest, _)| before < lowest) {
            lowest = Some((before, admission.at));
        }
        sum += i128::from(admission.permits);
        let (start, from) = lowest?;
        let above = sum * period - refilled(admission.at) - start;
        if worst.is_none_or(|(worst, _)| above > worst) {
            worst = Some((above, admission.at - from));
        }
    }
    let (above, micros) = worst?;
    let above = above - i128::from(limit.burst()) * period;
    Some(Worst { permits: above as f64 / period as f64, micros })
}

/// Windows begin at multiples of their length; each is a limit of its own.
fn worst_fixed_window(limit: &Limit, admissions: &[Admission]) -> Option<Worst> {
    let window = limit.period().as_micros() as u64;
    let windows = admissions.chunk_by(|one, next| one.at / window == next.at / window);
    let most = windows.map(|window| window.iter().map(|admission| admission.permits).sum::<u64>()).max()?;
    Some(Worst { permits: most as f64 - limit.permits() as f64, micros: window })
}

/// Any interval of the window's length: (a, a + W].
fn worst_sliding_window(limit: &Limit, admissions: &[Admission]) -> Option<Worst> {
    let window = limit.period().as_micros() as u64;
    let (mut sum, mut most, mut first) = (0, None, 0);
    for admission in admissions {
        sum += admission.permits;
        while admissions[first].at + window <= admission.at {
            sum -= admissions[first].permits;
            first += 1;
        }
        most = most.max(Some(sum));
    }
    Some(Worst { permits: most? as f64 - limit.permits() as f64, micros: window })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In thousandths, rounded.
    fn permits(limit: &str, admissions: &[(u64, u64)]) -> i64 {
        let admissions = admissions.iter().map(|(at, permits)| Admission { at: *at, permits: *permits }).collect();
        (worst(&limit.parse().unwrap(), admissions).unwrap().permits * 1_000.0).round() as i64
    }

    #[test]
    fn a_bucket_is_judged_over_every_interval() {
        let limit = "token-bucket 10/s burst 5";
        assert_eq!(permits(limit, &[(0, 5)]), 0);
        assert_eq!(permits(limit, &[(0, 6)]), 1_000);
        assert_eq!(permits(limit, &[(0, 5), (100_000, 1), (200_000, 1)]), 0);
        assert_eq!(permits(limit, &[(0, 5), (50_000, 1)]), 500);
        // The worst one need not begin with the first.
        assert_eq!(permits(limit, &[(0, 1), (10_000_000, 7), (10_100_000, 1)]), 2_000);
        // In whatever order they were collected.
        assert_eq!(permits(limit, &[(100_000, 3), (0, 4)]), 1_000);
        assert_eq!(permits(limit, &[(0, 2)]), -3_000);
    }

    #[test]
    fn a_fixed_window_is_judged_by_its_windows() {
        let limit = "fixed-window 4/s";
        assert_eq!(permits(limit, &[(999_999, 4), (1_000_000, 4)]), 0);
        assert_eq!(permits(limit, &[(1_000_000, 3), (1_999_999, 2)]), 1_000);
    }

    #[test]
    fn a_sliding_window_is_judged_wherever_it_stands() {
        let limit = "sliding-window 4/s";
        assert_eq!(permits(limit, &[(999_999, 4), (1_999_999, 4)]), 0);
        assert_eq!(permits(limit, &[(999_999, 4), (1_999_998, 1)]), 1_000);
        assert_eq!(permits("sliding-log 4/s", &[(0, 2), (500_000, 2), (1_000_000, 2), (1_400_000, 1)]), 1_000);
    }

    #[test]
    fn leases_lead_above_the_formula_by_what_they_may_hold() {
        let of = |limit: &str| (allowance(&limit.parse().unwrap(), Duration::from_millis(50)) * 1_000.0).round() as i64;
        assert_eq!(of("token-bucket 900/s burst 90"), 45_000);
        assert_eq!(of("leaky-bucket 30/min capacity 90"), 25);
        assert_eq!(of("fixed-window 900/s"), 0);
        assert_eq!(of("pacing-queue 900/s capacity 90"), 0);
        assert_eq!(of("sliding-window 900/s"), 900_000);
        assert_eq!(of("sliding-window 10/20ms"), 30_000, "in 20 + 50 ms there are parts of four windows");
        assert_eq!(of("sliding-log 300/50ms"), 300_000);
    }

    #[test]
    fn nobody_admitted_is_no_interval() {
        assert_eq!(worst(&"1/s".parse().unwrap(), Vec::new()), None);
    }
}
