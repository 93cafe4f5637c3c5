//! What a name and a key may be.

use crate::error::{Error, ErrorKind};

const LONGEST_KEY: usize = 16_384;
const LONGEST_NAME: usize = 128;

/// A key: 1 to 16,384 bytes, any byte.
#[inline]
pub(crate) fn check_key(key: &[u8]) -> Result<&[u8], Error> {
    if (1..=LONGEST_KEY).contains(&key.len()) { Ok(key) } else { Err(bad_key(key)) }
}

#[cold]
fn bad_key(key: &[u8]) -> Error {
    let message = format!("must be 1 to {LONGEST_KEY} bytes long, got {}", key.len());
    Error::new(ErrorKind::InvalidKey, "key", message)
}

/// A limit's name or a limiter's prefix: 1 to 128 visible ASCII characters, none of `{`, `}` and `:`.
///
/// Both become parts of the names of a shared store's keys, `prefix:{tag}:name:key`. A brace would move the key to
/// another slot; a colon would make name `a`, key `b:c` the same as name `a:b`, key `c`.
pub(crate) fn check_name(field: &'static str, name: &str) -> Result<(), Error> {
    let wrong = |message: String| Err(Error::new(ErrorKind::InvalidName, field, message));
    if !(1..=LONGEST_NAME).contains(&name.len()) {
        return wrong(format!("must be 1 to {LONGEST_NAME} characters long, got {}", name.len()));
    }
    match name.chars().find(|c| !c.is_ascii_graphic() || matches!(c, '{' | '}' | ':')) {
        None => Ok(()),
        Some(bad) => {
            wrong(format!("must be visible ASCII characters without braces and colons, got {bad:?} in {name:?}"))
        }
    }
}
