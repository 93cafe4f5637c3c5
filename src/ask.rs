//! An ask: what a call wants, to be made together with others.

use std::fmt;

use crate::decision::{Decision, Receipt};
use crate::error::Error;
use crate::named::NamedLimit;

/// So many permits of one key of one limit: an item of [`acquire_many`](crate::Limiter::acquire_many) and
/// [`acquire_all`](crate::Limiter::acquire_all). It is plain data; nothing is asked before.
///
/// ```
/// use shardlimit::Limiter;
///
/// # fn main() -> Result<(), shardlimit::Error> {
/// let limit = Limiter::local().define("per-user", "100/min".parse()?)?;
/// let ask = limit.ask("u7", 1);
/// assert_eq!((ask.limit().name(), ask.key(), ask.permits()), ("per-user", &b"u7"[..], 1));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "an ask does nothing by itself"]
pub struct Ask {
    limit: NamedLimit,
    key: Box<[u8]>,
    permits: u64,
}

impl Ask {
    pub(crate) fn new(limit: NamedLimit, key: &[u8], permits: u64) -> Self {
        Self { limit, key: key.into(), permits }
    }

    /// The limit that is asked.
    ///
    /// ```
    /// # let limit = shardlimit::Limiter::local().define("per-user", "100/min".parse()?)?;
    /// assert_eq!(limit.ask("u7", 1).limit().name(), "per-user");
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    #[must_use]
    pub fn limit(&self) -> &NamedLimit {
        &self.limit
    }

    /// The key that it is asked for.
    ///
    /// ```
    /// # let limit = shardlimit::Limiter::local().define("per-user", "100/min".parse()?)?;
    /// assert_eq!(limit.ask("u7", 1).key(), b"u7");
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// How many permits it is for.
    ///
    /// ```
    /// # let limit = shardlimit::Limiter::local().define("per-user", "100/min".parse()?)?;
    /// assert_eq!(limit.ask("u7", 3).permits(), 3);
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    #[must_use]
    pub fn permits(&self) -> u64 {
        self.permits
    }

    /// # Cancel safety
    /// As [`NamedLimit::acquire`]; and what has come goes back if the answer is dropped.
    pub(crate) async fn take(&self) -> Result<Held<'_>, Error> {
        let decision = self.limit.acquire_n(&*self.key, self.permits).await?;
        Ok(Held { ask: self, decision: Some(decision) })
    }
}

impl fmt::Debug for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ask({} of {:?}, \"{}\")", self.permits, self.limit, self.key.escape_ascii())
    }
}

/// A decision that is not handed out yet. Dropping it gives back what it was charged.
#[must_use = "dropping it gives the permits back"]
pub(crate) struct Held<'a> {
    ask: &'a Ask,
    /// Taken when it is kept.
    decision: Option<Decision>,
}

impl Held<'_> {
    pub(crate) fn is_allowed(&self) -> bool {
        self.decision.as_ref().is_some_and(Decision::is_allowed)
    }

    /// Hands it out.
    pub(crate) fn keep(mut self) -> Decision {
        self.decision.take().expect("kept once")
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Some(Decision::Allowed(allowed)) = self.decision.take() {
            let receipt: Receipt = allowed.into_receipt();
            self.ask.limit.give_back(&self.ask.key, receipt);
        }
    }
}
