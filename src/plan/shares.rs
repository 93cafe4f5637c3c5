//! Shares: how many a limit is split into, and what each of them holds.

use std::fmt;
use std::num::NonZeroU16;
use std::str::FromStr;
use std::time::Duration;

use crate::error::{Error, ErrorKind};
use crate::key::Slot;
use crate::limit::{Algorithm, Limit, Share, gcd};

/// The least burst of a share, for calls that ask for one permit. Simulated with 8 shards at load = limit: against
/// one undivided bucket, round-robin loses 46 % at a burst of 1, 7.7 % at 5 and 0.3 % at 20.
const LEAST_BURST: u64 = 20;
/// A share must outlast a stall of a batch or a network. Simulated with stalls of 10 ms at 500,000/s over 3 shards:
/// a burst worth 3.6 ms of the rate denies 3 %, one worth 30 ms none.
const STALL: Duration = Duration::from_millis(20);

/// How many shards a key is to have.
///
/// ```
/// use shardlimit::{Limiter, Shards};
///
/// let limiter = Limiter::builder().redis(["redis://127.0.0.1:6379"]).shards(Shards::PerMaster).build()?;
/// assert_eq!("per-master".parse(), Ok(Shards::PerMaster));
/// assert_eq!("6".parse::<Shards>()?.to_string(), "6");
/// # Ok::<(), shardlimit::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shards {
    /// One on each master, as far as that costs no accuracy: each share keeps a burst of 20 and of 20 ms of its rate.
    #[default]
    PerMaster,
    /// So many, also where fewer would be more accurate.
    Exactly(NonZeroU16),
    /// One: home holds the whole limit.
    Off,
    /// One, as long as that is enough: a key whose home has more to do than a setting allows is split as by
    /// [`PerMaster`](Shards::PerMaster), and comes home when it has cooled down.
    Auto,
}

impl fmt::Display for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PerMaster => f.write_str("per-master"),
            Self::Exactly(count) => count.fmt(f),
            Self::Off => f.write_str("off"),
            Self::Auto => f.write_str("auto"),
        }
    }
}

/// `per-master`, `off`, `auto`, or a number from 1 to 16,384.
impl FromStr for Shards {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "per-master" => Ok(Self::PerMaster),
            "off" => Ok(Self::Off),
            "auto" => Ok(Self::Auto),
            number => match number.parse::<NonZeroU16>() {
                Ok(count) if count.get() <= Slot::COUNT => Ok(Self::Exactly(count)),
                _ => Err(Error::new(
                    ErrorKind::InvalidSetting,
                    "shards",
                    format!("must be per-master, off, auto, or a number from 1 to {}, got {text:?}", Slot::COUNT),
                )),
            },
        }
    }
}

/// How many shards a key of this limit gets, if it is split at all: at least 1, which means that it is not.
pub(crate) fn shards_for(limit: &Limit, wanted: Shards, masters: usize) -> usize {
    use Algorithm::{FixedWindow, LeakyBucket, SlidingWindow, TokenBucket};
    // Not among them: a queue has one line to stand in, a log is kept small enough for one master, and a composite is one record.
    if !matches!(limit.algorithm(), TokenBucket | LeakyBucket | FixedWindow | SlidingWindow) {
        return 1;
    }
    let most = match wanted {
        Shards::PerMaster | Shards::Auto => accurate_shards(limit).min(masters as u64),
        Shards::Exactly(shards) => shards.get().into(),
        Shards::Off => 1,
    };
    // A share of nothing could never admit anybody, and each shard needs a slot of its own.
    let most = most.min(limit.permits()).min(limit.burst()).min(Slot::COUNT.into());
    (2..=most).rev().find(|shards| stays_exact(limit, *shards)).unwrap_or(1) as usize
}

/// The most shards that still have the burst that accuracy needs.
fn accurate_shards(limit: &Limit) -> u64 {
    // Rate and burst are divided alike, so either all shares outlast a stall or none does. Remainders are left out
    // of this: a permit more or less is not worth a shard.
    let stalled = u128::from(limit.permits()) * STALL.as_micros();
    if u128::from(limit.burst()) * limit.period().as_micros() < stalled { 1 } else { limit.burst() / LEAST_BURST }
}

/// Whether all shares can be computed exactly, and also what home holds while any of them are lent out.
///
/// Dividing a rate can leave it with fewer factors in common with its period: 1,000,000/day is a permit each 86.4 ms,
/// but a third of it takes numbers above 2⁵³.
fn stays_exact(limit: &Limit, shards: u64) -> bool {
    Share::fits(limit, common_cost(limit, shards as usize))
}

/// The units that a permit costs in every share of a limit that is split, and in whatever home holds meanwhile: the
/// fewest of which a microsecond refills whole ones in all of them. Windows count permits.
pub(crate) fn common_cost(limit: &Limit, shards: usize) -> i64 {
    let shards = shards.max(1) as u64;
    let least = limit.permits() / shards;
    // Some have a permit more where anything is left over.
    cost_of(limit, [least, least + u64::from(!limit.permits().is_multiple_of(shards))])
}

/// The fewest units that a permit can cost where each of these parts, so many permits a period, and any sum of them refills
/// whole ones each microsecond.
pub(crate) fn cost_of(limit: &Limit, parts: impl IntoIterator<Item = u64>) -> i64 {
    if !Share::counts_units(limit) {
        return 1;
    }
    let period = limit.period().as_micros() as u64;
    (period / parts.into_iter().fold(period, gcd)) as i64
}

/// The shares of a limit, (permits a period, burst) each: they add up to the limit, and the first ones have what a
/// division leaves over. Up to min(permits, burst) of them none is empty.
pub(crate) fn split(limit: &Limit, shards: usize) -> Vec<(u64, u64)> {
    let shards = shards.max(1) as u64;
    let part = |whole: u64, index| whole / shards + u64::from(index < whole % shards);
    (0..shards).map(|index| (part(limit.permits(), index), part(limit.burst(), index))).collect()
}
