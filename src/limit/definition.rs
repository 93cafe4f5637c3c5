//! [`Limit`] and the domain in which every store computes it exactly.

use std::time::Duration;

use super::composite::MOST_PARTS;
use super::share::BucketShare;
use crate::clock::Micros;
use crate::error::{Error, ErrorKind};

/// The most permits a period, a burst or a capacity may have, and the highest rate a second.
///
/// A byte-counting limit of 800 Gbit/s fits. More could not be told apart from a slip of the keyboard.
const MOST_PERMITS: u64 = 100_000_000_000;
/// The longest period or window: a leap year.
const LONGEST_PERIOD: Micros = 366 * 86_400 * 1_000_000;
/// The most permits a sliding log may have: it remembers every moment at which permits were given, so its
/// state grows with the limit (16 bytes a moment), and the whole state crosses the wire on a shared store.
const MOST_LOGGED: u64 = 10_000;
/// Sub-windows of a sliding window unless set. A charge is kept for up to one sub-window longer than the
/// window, so 128 of them leave 128/129 = 99.2 % of the limit usable under a constant overload.
pub(super) const DEFAULT_PRECISION: u32 = 128;
const MOST_PRECISION: u32 = 1024;

/// How a [`Limit`] counts.
///
/// There is no separate GCRA: with a microsecond clock and fractions of permits kept, it gives the same
/// decisions as [`TokenBucket`](Algorithm::TokenBucket).
///
/// ```
/// use shardlimit::{Algorithm, Limit};
///
/// let limit: Limit = "500/s burst 50".parse()?;
/// assert_eq!(limit.algorithm(), Algorithm::TokenBucket); // the default
/// # Ok::<(), shardlimit::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// Refills steadily and allows bursts up to its size.
    TokenBucket,
    /// A meter that drains steadily: allowed while the level stays within the capacity.
    LeakyBucket,
    /// A queue that drains steadily: an allowed call is told how long to wait for its turn.
    PacingQueue,
    /// So many permits in each window of the clock; up to twice as many around a window's edge.
    FixedWindow,
    /// Never more than so many permits in any window; counted in sub-windows.
    SlidingWindow,
    /// The same to the microsecond, at the price of remembering each one.
    SlidingLog,
    /// Several limits at once: [`Limit::and`].
    Composite,
}

impl Algorithm {
    /// Every algorithm that a part can have, in the order of the documentation.
    pub(crate) const ALL: [Self; 6] = [
        Self::TokenBucket,
        Self::LeakyBucket,
        Self::PacingQueue,
        Self::FixedWindow,
        Self::SlidingWindow,
        Self::SlidingLog,
    ];

    /// The name that the text form uses.
    ///
    /// ```
    /// assert_eq!(shardlimit::Algorithm::SlidingLog.name(), "sliding-log");
    /// ```
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::TokenBucket => "token-bucket",
            Self::LeakyBucket => "leaky-bucket",
            Self::PacingQueue => "pacing-queue",
            Self::FixedWindow => "fixed-window",
            Self::SlidingWindow => "sliding-window",
            Self::SlidingLog => "sliding-log",
            Self::Composite => "composite",
        }
    }

    /// What the text form calls the most permits at once, for algorithms that have such a setting.
    pub(crate) fn burst_word(self) -> Option<&'static str> {
        match self {
            Self::TokenBucket => Some("burst"),
            Self::LeakyBucket | Self::PacingQueue => Some("capacity"),
            Self::FixedWindow | Self::SlidingWindow | Self::SlidingLog | Self::Composite => None,
        }
    }
}

/// An algorithm with its numbers, checked: what exists can be computed exactly on every store.
///
/// Built from text or by the constructors; both refuse what is out of range. Permits, bursts and
/// capacities go from 1 to 10¹¹, rates up to 10¹¹ a second, periods from 1 µs to 366 days. Several limits can be one: see
/// [`and`](Limit::and).
///
/// ```
/// use std::time::Duration;
/// use shardlimit::Limit;
///
/// let limit: Limit = "token-bucket 500000/s burst 50000".parse()?;
/// assert_eq!(limit, Limit::token_bucket(500_000, Duration::from_secs(1), 50_000)?);
/// assert_eq!(limit.to_string(), "token-bucket 500000/s burst 50000");
/// # Ok::<(), shardlimit::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Limit {
    /// Of a composite: its slowest rate and its smallest burst.
    pub(super) whole: Part,
    /// Of a composite only, the shortest period first.
    pub(super) parts: [Option<Part>; MOST_PARTS],
}

/// The numbers of one algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Part {
    pub(super) algorithm: Algorithm,
    pub(super) permits: u64,
    pub(super) period: Micros,
    pub(super) burst: u64,
    pub(super) precision: u32,
}

impl Limit {
    /// `permits` every `period`, and up to `burst` at once.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidLimit`], naming the field that is out of range.
    ///
    /// ```
    /// # use shardlimit::Limit; use std::time::Duration;
    /// let limit = Limit::token_bucket(100, Duration::from_secs(1), 20)?;
    /// assert_eq!(limit.burst(), 20);
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    pub fn token_bucket(permits: u64, period: Duration, burst: u64) -> Result<Self, Error> {
        Self::build(Algorithm::TokenBucket, permits, period, burst, 0)
    }

    /// A meter of `capacity` that drains `permits` every `period`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidLimit`], naming the field that is out of range.
    ///
    /// ```
    /// # use shardlimit::Limit; use std::time::Duration;
    /// let limit = Limit::leaky_bucket(100, Duration::from_secs(1), 500)?;
    /// assert_eq!(limit.to_string(), "leaky-bucket 100/s capacity 500");
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    pub fn leaky_bucket(permits: u64, period: Duration, capacity: u64) -> Result<Self, Error> {
        Self::build(Algorithm::LeakyBucket, permits, period, capacity, 0)
    }

    /// A queue of `capacity` permits that lets `permits` out every `period`, evenly spaced.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidLimit`], naming the field that is out of range.
    ///
    /// ```
    /// # use shardlimit::Limit; use std::time::Duration;
    /// let limit = Limit::pacing_queue(100, Duration::from_secs(1), 500)?;
    /// assert_eq!(limit.to_string(), "pacing-queue 100/s capacity 500");
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    pub fn pacing_queue(permits: u64, period: Duration, capacity: u64) -> Result<Self, Error> {
        Self::build(Algorithm::PacingQueue, permits, period, capacity, 0)
    }

    /// `permits` in each `window`; windows begin at multiples of their length since 1970 (UTC).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidLimit`], naming the field that is out of range.
    ///
    /// ```
    /// # use shardlimit::Limit; use std::time::Duration;
    /// let limit = Limit::fixed_window(10_000, Duration::from_secs(86_400))?;
    /// assert_eq!(limit.to_string(), "fixed-window 10000/day");
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    pub fn fixed_window(permits: u64, window: Duration) -> Result<Self, Error> {
        Self::build(Algorithm::FixedWindow, permits, window, permits, 0)
    }

    /// Never more than `permits` in any `window`, counted in 128 sub-windows.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidLimit`], naming the field that is out of range.
    ///
    /// ```
    /// # use shardlimit::Limit; use std::time::Duration;
    /// let limit = Limit::sliding_window(3, Duration::from_secs(10))?;
    /// assert_eq!(limit.to_string(), "sliding-window 3/10s");
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    pub fn sliding_window(permits: u64, window: Duration) -> Result<Self, Error> {
        let algorithm = Algorithm::SlidingWindow;
        // A window shorter than that many microseconds has one sub-window a microsecond.
        let precision = window.as_micros().clamp(1, DEFAULT_PRECISION.into()).try_into().unwrap_or(DEFAULT_PRECISION);
        Self::build(algorithm, permits, window, permits, precision)
    }

    /// Never more than `permits` in any `window`, to the microsecond. At most 10,000 permits.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidLimit`], naming the field that is out of range.
    ///
    /// ```
    /// # use shardlimit::Limit; use std::time::Duration;
    /// let limit = Limit::sliding_log(5, Duration::from_secs(60))?;
    /// assert_eq!(limit.to_string(), "sliding-log 5/min");
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    pub fn sliding_log(permits: u64, window: Duration) -> Result<Self, Error> {
        Self::build(Algorithm::SlidingLog, permits, window, permits, 0)
    }

    /// The same sliding window, counted in `sub_windows` parts: more of them use the limit better and cost
    /// more memory. A charge is kept for up to one sub-window longer than the window.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidLimit`] when `sub_windows` is not from 1 to 1,024, is above the window's length in
    /// microseconds, or when this is no sliding window.
    ///
    /// ```
    /// # use shardlimit::Limit;
    /// let limit = "sliding-window 3/10s".parse::<Limit>()?.with_precision(20)?;
    /// assert_eq!(limit.to_string(), "sliding-window 3/10s precision 20");
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    pub fn with_precision(self, sub_windows: u32) -> Result<Self, Error> {
        if self.algorithm() != Algorithm::SlidingWindow {
            return Err(invalid(
                "precision",
                format!("only a sliding-window has a precision, this is a {}", self.algorithm().name()),
            ));
        }
        Self::build(self.algorithm(), self.permits(), self.period(), self.burst(), sub_windows)
    }

    pub(super) fn build(
        algorithm: Algorithm,
        permits: u64,
        period: Duration,
        burst: u64,
        precision: u32,
    ) -> Result<Self, Error> {
        let period = whole_micros(period)?;
        let whole = Part { algorithm, permits, period, burst, precision };
        in_range("rate", permits, MOST_PERMITS)?;
        in_range(algorithm.burst_word().unwrap_or("burst"), burst, MOST_PERMITS)?;
        if u128::from(permits) * 1_000_000 > u128::from(MOST_PERMITS) * u128::from(period) {
            return Err(invalid(
                "rate",
                format!("{permits} every {period} µs is more than {MOST_PERMITS} a second, the most accepted"),
            ));
        }
        match algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket | Algorithm::PacingQueue => {
                BucketShare::check(permits, period, burst)?;
            }
            Algorithm::SlidingWindow => {
                in_range("precision", precision.into(), MOST_PRECISION.into())?;
                if Micros::from(precision) > period {
                    return Err(invalid(
                        "precision",
                        format!("{precision} sub-windows do not fit into {period} µs; the shortest is 1 µs"),
                    ));
                }
            }
            Algorithm::SlidingLog if permits > MOST_LOGGED => {
                return Err(invalid(
                    "rate",
                    format!(
                        "a sliding-log remembers each of its permits, so at most {MOST_LOGGED} are accepted, \
                         got {permits}; a sliding-window has no such bound"
                    ),
                ));
            }
            Algorithm::FixedWindow | Algorithm::SlidingLog | Algorithm::Composite => {}
        }
        Ok(Self::of(whole))
    }

    /// How it counts.
    ///
    /// ```
    /// # use shardlimit::{Algorithm, Limit};
    /// assert_eq!("fixed-window 5/s".parse::<Limit>()?.algorithm(), Algorithm::FixedWindow);
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.whole.algorithm
    }

    /// Permits in each [`period`](Limit::period). Of a composite: of the part whose rate is the lowest.
    ///
    /// ```
    /// # use shardlimit::Limit;
    /// assert_eq!("sliding-window 3/10s".parse::<Limit>()?.permits(), 3);
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    #[must_use]
    pub fn permits(&self) -> u64 {
        self.whole.permits
    }

    /// The time in which [`permits`](Limit::permits) come back: for windows, the window. Of a composite: of the part whose
    /// rate is the lowest.
    ///
    /// ```
    /// # use shardlimit::Limit; use std::time::Duration;
    /// assert_eq!("sliding-window 3/10s".parse::<Limit>()?.period(), Duration::from_secs(10));
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    #[must_use]
    pub fn period(&self) -> Duration {
        Duration::from_micros(self.whole.period)
    }

    /// The most permits that can ever be had at once: burst, capacity, or all of a window. Of a composite: the smallest of
    /// these.
    ///
    /// An ask for more is an error of kind [`Never`](ErrorKind::Never), not a denial.
    ///
    /// ```
    /// # use shardlimit::Limit;
    /// assert_eq!("leaky-bucket 100/s capacity 500".parse::<Limit>()?.burst(), 500);
    /// assert_eq!("fixed-window 10000/day".parse::<Limit>()?.burst(), 10_000);
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    #[must_use]
    pub fn burst(&self) -> u64 {
        self.whole.burst
    }

    /// The number of sub-windows of a sliding window; `None` for other algorithms.
    ///
    /// ```
    /// # use shardlimit::Limit;
    /// assert_eq!("sliding-window 3/10s".parse::<Limit>()?.precision(), Some(128));
    /// assert_eq!("fixed-window 3/10s".parse::<Limit>()?.precision(), None);
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    #[must_use]
    pub fn precision(&self) -> Option<u32> {
        (self.whole.algorithm == Algorithm::SlidingWindow).then_some(self.whole.precision)
    }

    /// Checks what a call asks for against what the limit can ever give.
    #[inline]
    pub(crate) fn check_permits(&self, permits: u64) -> Result<(), Error> {
        if permits == 0 || permits > self.whole.burst {
            return Err(self.bad_permits(permits));
        }
        Ok(())
    }

    #[cold]
    fn bad_permits(&self, permits: u64) -> Error {
        if permits == 0 {
            return Error::new(ErrorKind::InvalidPermits, "permits", "a call asks for at least 1, got 0");
        }
        let message = format!("{permits} can never be had at once: \"{self}\" holds at most {}", self.whole.burst);
        Error::new(ErrorKind::Never, "permits", message)
    }
}

fn whole_micros(period: Duration) -> Result<Micros, Error> {
    let micros = period.as_micros();
    if micros == 0 || !period.subsec_nanos().is_multiple_of(1000) {
        return Err(invalid("period", format!("must be a whole number of microseconds above 0, got {period:?}")));
    }
    if micros > u128::from(LONGEST_PERIOD) {
        return Err(invalid("period", format!("the longest accepted is 366 days, got {period:?}")));
    }
    Ok(micros as Micros)
}

fn in_range(field: &'static str, value: u64, most: u64) -> Result<(), Error> {
    if (1..=most).contains(&value) {
        return Ok(());
    }
    Err(invalid(field, format!("must be a whole number from 1 to {most}, got {value}")))
}

pub(super) fn invalid(field: &'static str, message: impl Into<Box<str>>) -> Error {
    Error::new(ErrorKind::InvalidLimit, field, message)
}
