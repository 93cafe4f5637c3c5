//! Several limits of one key as one.

use std::fmt;

use super::definition::{Algorithm, Limit, Part, invalid};
use crate::error::Error;

/// Each part is looked at by every call: a second, a minute, an hour and a day.
pub(crate) const MOST_PARTS: usize = 4;

impl Limit {
    /// Both limits at once: a call gets its permits from all parts or from none. A key's state is one record on one server, and
    /// a decision is one run of a script, whatever the number of parts. Up to 4 parts; their order does not matter.
    ///
    /// A composite limit is neither split nor leased. To take from limits of different keys, or to split them, see
    /// [`Limiter::acquire_all`](crate::Limiter::acquire_all).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidLimit`](crate::ErrorKind::InvalidLimit) for more than 4 parts, for the same part twice, and for a
    /// pacing queue, whose line has no place beside other limits.
    ///
    /// ```
    /// # use shardlimit::{Limit, Limiter};
    /// # pollster::block_on(async {
    /// let limit = "50/s burst 50".parse::<Limit>()?.and("fixed-window 100/day".parse()?)?;
    /// assert_eq!(limit, "fixed-window 100/day + 50/s burst 50".parse()?);
    ///
    /// let api = Limiter::local().define("api", limit)?;
    /// assert!(api.acquire_n("alice", 50).await?.is_allowed());
    /// assert!(!api.acquire("alice").await?.is_allowed()); // not within this second
    /// # Ok::<(), shardlimit::Error>(())
    /// # }).unwrap();
    /// ```
    pub fn and(self, other: Self) -> Result<Self, Error> {
        let mut parts: Vec<Part> = [self, other].iter().flat_map(Self::list).collect();
        parts.sort_by_key(|part| (part.period, part.permits, part.burst, part.precision, part.algorithm.name()));
        if parts.len() > MOST_PARTS {
            return Err(invalid("limit", format!("at most {MOST_PARTS} limits can be one, got {}", parts.len())));
        }
        if let Some(pair) = parts.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(invalid("limit", format!("\"{}\" is given twice", Self::of(pair[0]))));
        }
        if let Some(queue) = parts.iter().find(|part| part.algorithm == Algorithm::PacingQueue) {
            let message = format!("\"{}\" has a line of its own and can't be part of another limit", Self::of(*queue));
            return Err(invalid("limit", message));
        }
        // a/b < c/d, without the division.
        let slower = |a: &&Part, b: &&Part| {
            let across = |a: &Part, b: &Part| u128::from(a.permits) * u128::from(b.period);
            across(a, b).cmp(&across(b, a))
        };
        let Some(slowest) = parts.iter().min_by(slower) else { unreachable!("both limits have a part") };
        let burst = parts.iter().map(|part| part.burst).fold(u64::MAX, u64::min);
        let whole = Part { algorithm: Algorithm::Composite, burst, precision: 0, ..*slowest };
        let mut of = [None; MOST_PARTS];
        for (place, part) in of.iter_mut().zip(parts) {
            *place = Some(part);
        }
        Ok(Self { whole, parts: of })
    }

    /// The limits that this one holds to, the one with the shortest period first: itself, if it is not composite.
    ///
    /// ```
    /// # use shardlimit::Limit;
    /// let limit: Limit = "fixed-window 10000/day + 100/s burst 20".parse()?;
    /// let parts: Vec<String> = limit.parts().map(|part| part.to_string()).collect();
    /// assert_eq!(parts, ["token-bucket 100/s burst 20", "fixed-window 10000/day"]);
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    #[must_use = "looking changes nothing"]
    pub fn parts(&self) -> impl Iterator<Item = Limit> + use<> {
        self.list().map(Self::of)
    }

    fn list(&self) -> impl Iterator<Item = Part> + use<> {
        let alone = (self.whole.algorithm != Algorithm::Composite).then_some(self.whole);
        alone.into_iter().chain(self.parts.into_iter().flatten())
    }

    pub(super) fn of(whole: Part) -> Self {
        Self { whole, parts: [None; MOST_PARTS] }
    }
}

impl fmt::Debug for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Limit({self})")
    }
}
