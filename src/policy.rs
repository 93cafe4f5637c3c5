//! What decides while a shard can't.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, ErrorKind};
use crate::sync::atomic::{AtomicU64, Ordering};

/// What decides the calls of a shard that can't be asked: its master is down, hangs, refuses, or is too slow for the deadline.
/// It is a matter of each shard: while one master of three is away, a third of a limit is decided by the policy, and the store
/// decides the rest.
///
/// Calls that it admits are charged to the shard when that is back, before anything else is.
///
/// ```
/// use shardlimit::{FailurePolicy, Limiter};
///
/// let limiter = Limiter::builder()
///     .redis(["redis://10.0.0.1:6379"])
///     .on_failure(FailurePolicy::Local { ratio: 0.8 })
///     .build()?;
/// limiter.set_failure_policy(FailurePolicy::Closed)?; // while it runs
/// # Ok::<(), shardlimit::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum FailurePolicy {
    /// This process goes on by itself, at `ratio` of the rate at which the shard was granting permits **to it**, and at the most
    /// at `ratio` of the shard's share. So all processes together stay below that ratio, however many there are. One that was
    /// granted nothing before the fault gets its part of the share if [`gateways`](crate::Builder::gateways) says how many there are, and
    /// denies if not.
    Local {
        /// Above 0, and 1 at the most.
        ratio: f64,
    },
    /// Allows.
    Open,
    /// Denies.
    Closed,
    /// Ends in an error, which says whether the call may have been charged.
    Error,
}

impl Default for FailurePolicy {
    /// Half of what was granted here lately.
    fn default() -> Self {
        Self::Local { ratio: 0.5 }
    }
}

impl FailurePolicy {
    pub(crate) fn check(self) -> Result<Self, Error> {
        match self {
            Self::Local { ratio } if !(ratio > 0.0 && ratio <= 1.0) => {
                let message = format!("a ratio must be above 0 and at most 1, got {ratio}");
                Err(Error::new(ErrorKind::InvalidSetting, "on_failure", message))
            }
            policy => Ok(policy),
        }
    }
}

/// `open`, `closed`, `error`, `local`, or `local` with a ratio: `local:0.8`.
///
/// ```
/// use shardlimit::FailurePolicy;
///
/// assert_eq!("local:0.8".parse(), Ok(FailurePolicy::Local { ratio: 0.8 }));
/// assert_eq!("local".parse(), Ok(FailurePolicy::default()));
/// assert!("local:2".parse::<FailurePolicy>().is_err());
/// ```
impl FromStr for FailurePolicy {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || {
            let message = format!("must be open, closed, error, local or local:RATIO, got {text:?}");
            Error::new(ErrorKind::InvalidSetting, "on_failure", message)
        };
        match text {
            "open" => Ok(Self::Open),
            "closed" => Ok(Self::Closed),
            "error" => Ok(Self::Error),
            "local" => Ok(Self::default()),
            _ => {
                let ratio = text.strip_prefix("local:").and_then(|ratio| ratio.parse().ok());
                Self::Local { ratio: ratio.ok_or_else(wrong)? }.check()
            }
        }
    }
}

/// As it is read.
impl fmt::Display for FailurePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local { ratio } => write!(f, "local:{ratio}"),
            Self::Open => f.write_str("open"),
            Self::Closed => f.write_str("closed"),
            Self::Error => f.write_str("error"),
        }
    }
}

/// Calls that no shard decided, or not in time, since the limit was defined.
///
/// ```
/// let limit = shardlimit::Limiter::local().define("checkout", "500/s".parse()?)?;
/// let failures = limit.failures();
/// println!("{} allowed and {} denied without the store", failures.allowed, failures.denied);
/// # Ok::<(), shardlimit::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failures {
    /// Calls that the failure policy allowed.
    pub allowed: u64,
    /// Calls that it denied.
    pub denied: u64,
    /// Calls that their shard did not answer by the deadline. The policy decided them, or another shard.
    pub late: u64,
    /// Calls that could not be taken because too many waited for their shard already, or too many requests of all keys were under
    /// way. The same goes for them.
    pub crowded: u64,
    /// Permits that were to go back to their shard and did not, or may not have: the request had no answer, more than 10,000
    /// refunds waited for a shard that was out of reach, or the limiter came to its end first. The limit is so much stricter until that
    /// has come back by itself.
    pub unreturned: u64,
    /// Permits that the policy allowed, that their shard was to be charged for when it was back, and that it was not charged for, or
    /// may not have been: that request had no answer, or the limiter came to its end first.
    pub uncharged: u64,
}

/// A policy that can be exchanged while calls go by it.
pub(crate) struct PolicyCell(AtomicU64);

impl PolicyCell {
    /// `None`: somebody else's.
    pub(crate) fn new(policy: Option<FailurePolicy>) -> Self {
        Self(AtomicU64::new(code(policy)))
    }

    pub(crate) fn set(&self, policy: Option<FailurePolicy>) {
        self.0.store(code(policy), Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Option<FailurePolicy> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            1 => Some(FailurePolicy::Open),
            2 => Some(FailurePolicy::Closed),
            3 => Some(FailurePolicy::Error),
            bits => Some(FailurePolicy::Local { ratio: f64::from_bits(bits) }),
        }
    }
}

/// The bits of a ratio that is allowed are none of the small numbers: those are ratios of no use to anybody.
fn code(policy: Option<FailurePolicy>) -> u64 {
    match policy {
        None => 0,
        Some(FailurePolicy::Open) => 1,
        Some(FailurePolicy::Closed) => 2,
        Some(FailurePolicy::Error) => 3,
        Some(FailurePolicy::Local { ratio }) => ratio.to_bits().max(4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_kept_as_it_was_set() {
        let cell = PolicyCell::new(None);
        assert_eq!(cell.get(), None);
        for policy in [
            FailurePolicy::Open,
            FailurePolicy::Closed,
            FailurePolicy::Error,
            FailurePolicy::default(),
            FailurePolicy::Local { ratio: 1.0 },
            FailurePolicy::Local { ratio: 1e-300 },
        ] {
            cell.set(Some(policy));
            assert_eq!(cell.get(), Some(policy));
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        cell.set(None);
        assert_eq!(cell.get(), None);
    }

    #[test]
    fn what_is_no_policy_is_named() {
        for text in ["", "Open", "local:", "local:x", "local:0", "local: 0.5", "fail"] {
            assert_eq!(text.parse::<FailurePolicy>().unwrap_err().field(), "on_failure", "{text}");
        }
    }

    #[test]
    fn ratios_have_bounds() {
        for ratio in [0.0, -0.5, 1.01, f64::NAN, f64::INFINITY] {
            let error = FailurePolicy::Local { ratio }.check().unwrap_err();
            assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidSetting, "on_failure"), "{ratio}");
        }
        for policy in [FailurePolicy::Local { ratio: 1.0 }, FailurePolicy::default(), FailurePolicy::Open] {
            assert_eq!(policy.check(), Ok(policy));
        }
    }
}
