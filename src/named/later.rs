//! What is asked of a key beside permits: what it has left, and what comes back.

use super::{NamedLimit, On, call};
use crate::decision::{Peek, Receipt};
use crate::error::Error;
#[cfg(feature = "redis")]
use crate::key::check_key;

impl NamedLimit {
    /// Looks at what a key has left, and charges nothing.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidKey`](crate::ErrorKind::InvalidKey); on a shared store also what it answers, or that it did not by the
    /// deadline of a call.
    ///
    /// # Cancel safety
    /// Nothing changes, whenever it is dropped.
    ///
    /// ```
    /// # use shardlimit::Limiter;
    /// # pollster::block_on(async {
    /// # let limit = Limiter::local().define("search", "100/day".parse()?)?;
    /// assert_eq!(limit.peek("alice").await?.remaining().permits, 100);
    /// # Ok::<(), shardlimit::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn peek(&self, key: impl AsRef<[u8]>) -> Result<Peek, Error> {
        match &self.on {
            On::Local(definition) => Ok(call(definition, key.as_ref())?.peek()),
            #[cfg(feature = "redis")]
            On::Shared(limit) => limit.peek(&limit.entry(check_key(key.as_ref())?), self.within).await,
        }
    }

    /// Gives back what an allowed call was charged.
    ///
    /// A bucket is never lifted above its burst; a window only takes back what was charged in it, a log only its own
    /// entries, a pacing queue only its tail. What comes too late is lost, never an error. On a shared store, what can't be sent
    /// now waits for the next call on its shard.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidKey`](crate::ErrorKind::InvalidKey);
    /// [`ErrorKind::ForeignReceipt`](crate::ErrorKind::ForeignReceipt) when the receipt is another key's or another
    /// limit's; then the charge stays. On a shared store also what it answers; and [`ErrorKind::Unknown`](crate::ErrorKind::Unknown) if it
    /// did not by the deadline of a call: then it goes on, and is not to be done again.
    ///
    /// # Cancel safety
    /// On the embedded store it is done at its first poll; on a shared one it is on its way then.
    ///
    /// ```
    /// # use shardlimit::{Decision, Limiter};
    /// # pollster::block_on(async {
    /// # let limit = Limiter::local().define("search", "100/min".parse()?)?;
    /// if let Decision::Allowed(allowed) = limit.acquire_n("alice", 30).await? {
    ///     limit.refund("alice", allowed.into_receipt()).await?;
    /// }
    /// assert_eq!(limit.peek("alice").await?.remaining().permits, 100);
    /// # Ok::<(), shardlimit::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn refund(&self, key: impl AsRef<[u8]>, receipt: Receipt) -> Result<(), Error> {
        match &self.on {
            On::Local(definition) => call(definition, key.as_ref())?.refund(&receipt, receipt.permits),
            #[cfg(feature = "redis")]
            On::Shared(limit) => {
                limit.settle_within(&limit.entry(check_key(key.as_ref())?), receipt, 0, self.within).await
            }
        }
    }

    /// Corrects a charge to what the work did cost in the end.
    ///
    /// Less than charged: the difference comes back as by [`refund`](NamedLimit::refund). More: the
    /// difference is charged even if it is not there, and later calls wait for it; the debt of a key is held to one
    /// burst (or one window's permits), so that nobody is locked out without end.
    ///
    /// # Errors
    /// As [`refund`](NamedLimit::refund).
    ///
    /// # Cancel safety
    /// On the embedded store it is done at its first poll; on a shared one it is on its way then.
    ///
    /// ```
    /// # use shardlimit::{Decision, Limiter};
    /// # pollster::block_on(async {
    /// # let limit = Limiter::local().define("words", "1000/day".parse()?)?;
    /// if let Decision::Allowed(allowed) = limit.acquire_n("alice", 100).await? {
    ///     let used = 340; // known when the answer was generated
    ///     limit.settle("alice", allowed.into_receipt(), used).await?;
    /// }
    /// assert_eq!(limit.peek("alice").await?.remaining().permits, 660);
    /// # Ok::<(), shardlimit::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn settle(&self, key: impl AsRef<[u8]>, receipt: Receipt, actual: u64) -> Result<(), Error> {
        match &self.on {
            On::Local(definition) => call(definition, key.as_ref())?.settle(&receipt, actual),
            #[cfg(feature = "redis")]
            On::Shared(limit) => {
                let entry = limit.entry(check_key(key.as_ref())?);
                limit.settle_within(&entry, receipt, actual, self.within).await
            }
        }
    }

    /// Forgets what a key was charged: it is as new.
    ///
    /// Receipts from before are void: a refund would take back what others were charged since. A key that shares an
    /// overflow bucket (see [`max_keys`](crate::Builder::max_keys)) cannot be reset alone, and is not.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidKey`](crate::ErrorKind::InvalidKey); on a shared store also what it answers, or that it did not by the
    /// deadline of a call: then it may be done or not, and can be done again.
    ///
    /// # Cancel safety
    /// On the embedded store it is done at its first poll; on a shared one it is on its way then, for a leased key once
    /// nothing is being leased.
    ///
    /// ```
    /// # use shardlimit::Limiter;
    /// # pollster::block_on(async {
    /// # let limit = Limiter::local().define("login", "1/day".parse()?)?;
    /// assert!(limit.acquire("alice").await?.is_allowed());
    /// limit.reset("alice").await?;
    /// assert!(limit.acquire("alice").await?.is_allowed());
    /// # Ok::<(), shardlimit::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn reset(&self, key: impl AsRef<[u8]>) -> Result<(), Error> {
        match &self.on {
            On::Local(definition) => {
                call(definition, key.as_ref())?.reset();
                Ok(())
            }
            #[cfg(feature = "redis")]
            On::Shared(limit) => limit.reset(&limit.entry(check_key(key.as_ref())?), self.within).await,
        }
    }
}
