//! What becomes of what a key has, when its limit changes.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, ErrorKind};

/// What a key takes along from its old limit to its new one.
///
/// Whatever it is, nobody is locked out for longer than the new limit takes to refill, once all masters that have a share of the old limit can
/// be reached: one that is away keeps its share, and the new limit is that much smaller until it is back. Another algorithm knows nothing of
/// the old one's state: then a key begins with nothing available, unless it is [`Reset`](Carry::Reset).
///
/// ```
/// use shardlimit::Carry;
///
/// assert_eq!("proportional".parse(), Ok(Carry::Proportional));
/// assert_eq!(Carry::default().to_string(), "keep");
/// # Ok::<(), shardlimit::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Carry {
    /// What is available in a bucket, up to its new burst; what was used in a window.
    #[default]
    Keep,
    /// The same part of the new burst, or of the new window's permits.
    Proportional,
    /// The key is as new.
    Reset,
}

impl Carry {
    const ALL: [Self; 3] = [Self::Keep, Self::Proportional, Self::Reset];

    fn name(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Proportional => "proportional",
            Self::Reset => "reset",
        }
    }
}

impl fmt::Display for Carry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Carry {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|carry| carry.name() == text).ok_or_else(|| {
            let message = format!("must be keep, proportional or reset, got {text:?}");
            Error::new(ErrorKind::InvalidSetting, "carry", message)
        })
    }
}
