//! What a client is told, and what it reports: words and numbers in one line.

use std::fmt;
use std::time::Duration;

use shardlimit::{Error, Leases, Limit, Limiter, NamedLimit};

/// How the limit is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Exact,
    Leased,
}

impl Mode {
    pub(crate) const ALL: [Self; 2] = [Self::Exact, Self::Leased];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Leased => "leased",
        }
    }

    /// A limit in this mode.
    pub(crate) fn define(self, limiter: &Limiter, limit: Limit) -> Result<NamedLimit, Error> {
        match self {
            Self::Exact => limiter.define("overload", limit),
            Self::Leased => limiter.define_leased("overload", limit, Leases::default()),
        }
    }
}

/// The part of one client.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) urls: Vec<String>,
    pub(crate) mode: Mode,
    pub(crate) limit: String,
    pub(crate) key: String,
    /// Calls a second.
    pub(crate) rate: f64,
    pub(crate) length: Duration,
}

impl Job {
    pub(crate) fn arguments(&self) -> [String; 6] {
        let (rate, length) = (self.rate.to_string(), self.length.as_secs_f64().to_string());
        [self.urls.join(","), self.mode.name().into(), self.limit.clone(), self.key.clone(), rate, length]
    }

    pub(crate) fn parse(arguments: &[String]) -> Option<Self> {
        let [urls, mode, limit, key, rate, length] = arguments else { return None };
        Some(Self {
            urls: urls.split(',').map(ToOwned::to_owned).collect(),
            mode: Mode::ALL.into_iter().find(|known| known.name() == mode)?,
            limit: limit.clone(),
            key: key.clone(),
            rate: rate.parse().ok()?,
            length: Duration::from_secs_f64(length.parse().ok()?),
        })
    }
}

/// What one client counted, or all of them together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Calls that the schedule had.
    pub(crate) due: u64,
    /// Calls that were made.
    pub(crate) made: u64,
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    /// Of those denied: in process, because no shard could have had a permit.
    pub(crate) by_ceiling: u64,
    /// Of those allowed: in process, by a lease.
    pub(crate) by_lease: u64,
    /// Without a decision by the limit.
    pub(crate) failed: u64,
    /// From the common start until the last answer, in nanoseconds.
    pub(crate) took: u64,
    /// Processor time in it, in nanoseconds.
    pub(crate) used: u64,
}

impl Counts {
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let numbers: Option<Vec<u64>> = line.split_whitespace().map(|number| number.parse().ok()).collect();
        let [due, made, allowed, denied, by_ceiling, by_lease, failed, took, used] = numbers?[..] else { return None };
        Some(Self { due, made, allowed, denied, by_ceiling, by_lease, failed, took, used })
    }

    /// Sums, and the longest time.
    pub(crate) fn with(self, other: Self) -> Self {
        Self {
            due: self.due + other.due,
            made: self.made + other.made,
            allowed: self.allowed + other.allowed,
            denied: self.denied + other.denied,
            by_ceiling: self.by_ceiling + other.by_ceiling,
            by_lease: self.by_lease + other.by_lease,
            failed: self.failed + other.failed,
            took: self.took.max(other.took),
            used: self.used + other.used,
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { due, made, allowed, denied, by_ceiling, by_lease, failed, took, used } = self;
        write!(f, "{due} {made} {allowed} {denied} {by_ceiling} {by_lease} {failed} {took} {used}")
    }
}
