//! What can go wrong, in words a caller can act on.

use std::fmt;

/// An error: the library could not, or would not, decide.
///
/// A denial is never an error: it is a [`Decision`](crate::Decision). The message says what was
/// wrong, which field it was, and what is accepted; [`kind`](Error::kind) is for code.
///
/// ```
/// use shardlimit::{ErrorKind, Limit};
///
/// let error = "token-bucket 0/s".parse::<Limit>().unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::InvalidLimit);
/// assert_eq!(error.field(), "rate");
/// assert!(error.to_string().contains("from 1 to"));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    field: &'static str,
    message: Box<str>,
}

/// The kinds of [`Error`], for code that has to tell them apart.
///
/// ```
/// use shardlimit::{ErrorKind, Limiter};
///
/// # fn main() -> Result<(), shardlimit::Error> {
/// let limit = Limiter::local().define("upload", "10/s burst 5".parse()?)?;
/// let never = limit.try_acquire("alice", 6).unwrap_err();
/// assert_eq!(never.kind(), ErrorKind::Never);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The limit is malformed, out of range, or could not be computed exactly.
    InvalidLimit,
    /// The name of a limit, or the prefix of a limiter, is empty, too long or holds a forbidden character.
    InvalidName,
    /// The key is empty or longer than 16,384 bytes.
    InvalidKey,
    /// Zero permits were asked for.
    InvalidPermits,
    /// An amount to count is out of range, or a value to count is empty or too long.
    InvalidAmount,
    /// A setting of the builder is out of range.
    InvalidSetting,
    /// More permits than the limit ever holds at once: waiting will not help.
    Never,
    /// The name already stands for another limit.
    NameTaken,
    /// The receipt was given for another limit or another key.
    ForeignReceipt,
    /// The store was not asked, or proved that it did nothing: nothing was charged, and asking again is safe.
    NotSent,
    /// The store was asked and did not answer: the permits may have been charged.
    Unknown,
    /// The store would not do it, and will not until somebody changes its settings: nothing was charged.
    Refused,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, field: &'static str, message: impl Into<Box<str>>) -> Self {
        Self { kind, field, message: message.into() }
    }

    /// The same, with more that is known.
    pub(crate) fn noting(self, note: fmt::Arguments<'_>) -> Self {
        Self { message: format!("{} ({note})", self.message).into(), ..self }
    }

    /// What kind of error this is.
    ///
    /// ```
    /// # use shardlimit::{ErrorKind, Limit};
    /// let error = "gcra 5/s".parse::<Limit>().unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::InvalidLimit);
    /// ```
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The field that was wrong: `rate`, `burst`, `key`, `permits`, …
    ///
    /// ```
    /// # use shardlimit::Limit;
    /// let error = "fixed-window 5/100000days".parse::<Limit>().unwrap_err();
    /// assert_eq!(error.field(), "period");
    /// ```
    #[must_use]
    pub fn field(&self) -> &'static str {
        self.field
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({:?}, {self})", self.kind)
    }
}

impl std::error::Error for Error {}
