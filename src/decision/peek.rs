//! A look that charges nothing.

use super::facts::{Facts, facts_accessors};
use crate::kernel::Header;
use crate::limit::Share;

/// What a key has left, as [`peek`](crate::NamedLimit::peek) saw it.
///
/// ```
/// # use shardlimit::Limiter;
/// # pollster::block_on(async {
/// # let limit = Limiter::local().define("api", "10/s burst 10".parse()?)?;
/// let peek = limit.peek("alice").await?;
/// assert_eq!(peek.remaining().permits, 10);
/// assert!(peek.reset_after().is_zero());
/// # Ok::<(), shardlimit::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Peek {
    facts: Facts,
}

impl Peek {
    facts_accessors!(facts);

    #[cfg(feature = "redis")]
    pub(crate) fn by_store(facts: super::facts::StoreFacts) -> Self {
        Self { facts: Facts::by_store(facts) }
    }

    pub(crate) fn local(share: &Share, header: &Header) -> Self {
        Self { facts: Facts::local(share, header) }
    }
}
