//! A share: the whole numbers that a kernel computes with.
//!
//! Buckets count in *units*, chosen so that a microsecond refills a whole number of them and a permit costs a
//! whole number of them: nothing is rounded, so nothing drifts. 500,000/s is 1 unit a microsecond and 2 units
//! a permit; 3/10s is 3 units a microsecond and 10,000,000 units a permit.

use std::sync::Arc;

use super::definition::{Algorithm, Limit, invalid};
use crate::clock::Micros;
use crate::error::Error;

/// Lua computes in doubles, exact below 2⁵³. The largest number that a bucket meets is a full bucket to which the refill of
/// two more is added before it is cut off: three times this and a little, which is below 2⁵³.
const MOST_UNITS: u128 = 1 << 51;

/// What one shard may give: the parameters of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    Bucket(BucketShare),
    Fixed(WindowShare),
    Sliding(WindowShare),
    /// Of each part of a composite limit: it is whole, or has nothing.
    Composite(Arc<[Share]>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BucketShare {
    /// Units that come back each microsecond.
    pub rate: i64,
    /// Units a permit costs.
    pub cost: i64,
    /// Permits of a full bucket.
    pub burst: u64,
    /// Units of a full bucket.
    pub capacity: i64,
    /// Microseconds from empty to full, rounded up.
    pub refill: Micros,
    /// A queue: what is taken from the bucket stands for the line ahead.
    pub paced: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WindowShare {
    /// Permits of a window.
    pub permits: u64,
    /// Length of the window.
    pub window: Micros,
    /// Length of a sub-window: the whole window for fixed ones, 1 µs for a log.
    pub step: Micros,
}

impl Share {
    /// The whole limit as one share.
    pub(crate) fn whole(limit: &Limit) -> Self {
        Self::part(limit, Self::least_cost(limit), limit.permits(), limit.burst())
    }

    /// The part of a limit that has so many permits a period and so much burst, where a permit costs `cost` units. All
    /// parts of one limit have the same cost, so what moves from one to another stays exactly what it was.
    pub(crate) fn part(limit: &Limit, cost: i64, permits: u64, burst: u64) -> Self {
        let window = limit.period().as_micros() as Micros;
        let windowed = |step| WindowShare { permits, window, step };
        let bucket = |paced| Self::Bucket(BucketShare::new(permits, window, burst, cost, paced));
        match limit.algorithm() {
            Algorithm::Composite => {
                let part = |part: Limit| {
                    if permits == 0 { Self::part(&part, Self::least_cost(&part), 0, 0) } else { Self::whole(&part) }
                };
                Self::Composite(limit.parts().map(part).collect())
            }
            Algorithm::TokenBucket | Algorithm::LeakyBucket => bucket(false),
            Algorithm::PacingQueue => bucket(true),
            Algorithm::FixedWindow => Self::Fixed(windowed(window)),
            Algorithm::SlidingWindow => {
                let parts = limit.precision().map_or(1, Micros::from);
                Self::Sliding(windowed(window.div_ceil(parts)))
            }
            Algorithm::SlidingLog => Self::Sliding(windowed(1)),
        }
    }

    /// Whether its permits are counted in units of refill; windows count them as they are.
    pub(crate) fn counts_units(limit: &Limit) -> bool {
        use Algorithm::{LeakyBucket, PacingQueue, TokenBucket};
        matches!(limit.algorithm(), TokenBucket | LeakyBucket | PacingQueue)
    }

    /// The fewest units that a permit of the whole limit can cost.
    fn least_cost(limit: &Limit) -> i64 {
        let period = limit.period().as_micros() as Micros;
        if Self::counts_units(limit) { (period / gcd(limit.permits(), period)) as i64 } else { 1 }
    }

    /// Whether the limit can be computed exactly where a permit costs `cost` units.
    #[cfg(feature = "redis")]
    pub(crate) fn fits(limit: &Limit, cost: i64) -> bool {
        let least = Self::least_cost(limit);
        if !Self::counts_units(limit) || cost < least || cost % least != 0 {
            return cost == least;
        }
        let period = limit.period().as_micros();
        let (permits, burst, cost) = (u128::from(limit.permits()), u128::from(limit.burst()), cost as u128);
        burst * cost + permits * cost / period <= MOST_UNITS
    }

    /// What it can hold, in permits.
    #[cfg(feature = "redis")]
    pub(crate) fn burst(&self) -> u64 {
        match self {
            Self::Bucket(bucket) => bucket.burst,
            Self::Fixed(window) | Self::Sliding(window) => window.permits,
            Self::Composite(shares) => shares.iter().map(Self::burst).min().unwrap_or(0),
        }
    }

    pub(crate) fn is_paced(&self) -> bool {
        matches!(self, Self::Bucket(bucket) if bucket.paced)
    }

    /// Units that come back each microsecond, for whoever divides by it: 1 where nothing does. Those of windows and of composites are microseconds.
    pub(crate) fn rate(&self) -> i64 {
        match self {
            Self::Bucket(bucket) => bucket.rate.max(1),
            Self::Fixed(_) | Self::Sliding(_) | Self::Composite(_) => 1,
        }
    }

    /// What a permit takes from the level.
    pub(crate) fn cost(&self) -> i64 {
        match self {
            Self::Bucket(bucket) => bucket.cost,
            Self::Fixed(_) | Self::Sliding(_) | Self::Composite(_) => 1,
        }
    }
}

impl BucketShare {
    /// Refuses numbers that a script could not compute exactly.
    pub(super) fn check(permits: u64, period: Micros, burst: u64) -> Result<(), Error> {
        let common = gcd(permits, period);
        let units = u128::from(burst) * u128::from(period / common) + u128::from(permits / common);
        if units <= MOST_UNITS {
            return Ok(());
        }
        Err(invalid(
            "burst",
            format!(
                "a burst of {burst} at {permits} every {period} µs can't be computed exactly (it needs {units} \
                 units of refill, at most {MOST_UNITS} are exact); use a smaller burst, or a rate with more \
                 factors in common with its period"
            ),
        ))
    }

    fn new(permits: u64, period: Micros, burst: u64, cost: i64, paced: bool) -> Self {
        let units = u128::from(permits) * cost as u128;
        debug_assert!(units.is_multiple_of(period.into()), "{permits} every {period} µs at {cost} units each");
        let rate = (units / u128::from(period)) as i64;
        let capacity = burst as i64 * cost;
        // A home that has lent everything has no rate.
        Self { rate, cost, burst, capacity, refill: (capacity as u64).div_ceil(rate.max(1) as u64), paced }
    }
}

pub(crate) fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(text: &str) -> BucketShare {
        match Share::whole(&text.parse::<Limit>().expect(text)) {
            Share::Bucket(share) => share,
            other => panic!("{text} is {other:?}"),
        }
    }

    #[test]
    fn rate_and_cost_are_reduced() {
        let share = bucket("token-bucket 500000/s burst 50000");
        assert_eq!((share.rate, share.cost, share.capacity, share.refill), (1, 2, 100_000, 100_000));
        let share = bucket("leaky-bucket 3/10s capacity 2");
        assert_eq!((share.rate, share.cost, share.refill), (3, 10_000_000, 6_666_667));
    }

    #[test]
    fn a_part_has_the_units_it_is_given() {
        let limit: Limit = "token-bucket 500000/s burst 50000".parse().unwrap();
        let Share::Bucket(part) = Share::part(&limit, 4, 250_000, 7) else { panic!("no bucket") };
        assert_eq!((part.rate, part.cost, part.burst, part.capacity, part.refill), (1, 4, 7, 28, 28));
    }

    #[cfg(feature = "redis")]
    #[test]
    fn units_fit_if_they_divide_and_stay_exact() {
        let limit: Limit = "token-bucket 500000/s burst 50000".parse().unwrap();
        let fitting = [1, 2, 3, 4, 0, -2, 2 << 34, 2 << 35, i64::MAX - 1].map(|cost| Share::fits(&limit, cost));
        assert_eq!(fitting, [false, true, false, true, false, false, true, false, false]);
        let window: Limit = "fixed-window 5/s".parse().unwrap();
        assert_eq!([0, 1, 2].map(|cost| Share::fits(&window, cost)), [false, true, false]);
    }

    #[test]
    fn a_sub_window_is_never_shorter_than_its_part() {
        let limit: Limit = "sliding-window 3/10us precision 3".parse().unwrap();
        assert_eq!(Share::whole(&limit), Share::Sliding(WindowShare { permits: 3, window: 10, step: 4 }));
    }

    #[test]
    fn the_largest_exact_burst_is_taken_and_one_more_is_not() {
        // 1 permit each 2^20 µs: a permit costs 2^20 units, so 2^31 of them are the 2^51 that fit, less the
        // one unit of refill.
        let most = (1u64 << 31) - 1;
        let period = std::time::Duration::from_micros(1 << 20);
        assert!(Limit::token_bucket(1, period, most).is_ok());
        assert_eq!(Limit::token_bucket(1, period, most + 1).unwrap_err().field(), "burst");
    }
}
