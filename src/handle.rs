//! A handle: one key of one limit, held.

mod acquire;

use std::fmt;
use std::time::Duration;

use crate::decision::{Decision, Peek, Receipt};
use crate::error::Error;
use crate::flow::call::{Call, Definition};
#[cfg(feature = "redis")]
use crate::flow::sharded::{Entry, SharedLimit};
use crate::named::NamedLimit;
use crate::store::keyed::Pin;
use crate::store::local::Cell;
use crate::sync::Arc;
use acquire::Acquire;

/// A key that is [held](NamedLimit::handle): no look-up, and no allocation in a call that is decided in process. The key stays
/// tracked while any handle of it lives, also beyond [`max_keys`](crate::Builder::max_keys), against which handles count.
///
/// ```
/// use shardlimit::Limiter;
///
/// # fn main() -> Result<(), shardlimit::Error> {
/// let limit = Limiter::local().define("checkout", "500/s burst 2".parse()?)?;
/// let hot = limit.handle("item:42")?;
/// assert!(hot.try_acquire(1)?.unwrap().is_allowed());
/// assert!(limit.try_acquire("item:42", 1)?.unwrap().is_allowed()); // the same state
/// # Ok(())
/// # }
/// ```
pub struct Handle {
    limit: NamedLimit,
    held: Held,
}

/// What a handle holds on to.
#[derive(Clone)]
pub(crate) enum Held {
    Local(LocalHold),
    #[cfg(feature = "redis")]
    Shared(SharedHold),
}

/// A key in use. When the last who holds on to it lets go, it falls idle.
#[cfg(feature = "redis")]
pub(crate) struct SharedHold {
    limit: Arc<SharedLimit>,
    /// Taken only when it is dropped.
    entry: Option<Arc<Entry>>,
}

#[cfg(feature = "redis")]
impl SharedHold {
    pub(crate) fn new(limit: Arc<SharedLimit>, entry: Arc<Entry>) -> Self {
        Self { limit, entry: Some(entry) }
    }

    #[inline]
    fn entry(&self) -> &Arc<Entry> {
        self.entry.as_ref().expect("taken only when it is dropped")
    }
}

#[cfg(feature = "redis")]
impl Clone for SharedHold {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.limit), Arc::clone(self.entry()))
    }
}

#[cfg(feature = "redis")]
impl Drop for SharedHold {
    fn drop(&mut self) {
        if let Some(entry) = self.entry.take() {
            self.limit.let_go(entry);
        }
    }
}

/// A pin on the embedded store, released when it is dropped.
pub(crate) struct LocalHold {
    definition: Arc<Definition>,
    /// Taken only when it is dropped.
    pin: Option<Pin<Cell>>,
}

impl LocalHold {
    pub(crate) fn new(definition: Arc<Definition>, pin: Pin<Cell>) -> Self {
        Self { definition, pin: Some(pin) }
    }

    #[inline]
    fn pin(&self) -> &Pin<Cell> {
        self.pin.as_ref().expect("taken only when it is dropped")
    }

    #[inline(never)]
    fn ask(&self, permits: u64) -> Result<Decision, Error> {
        self.call().try_acquire(permits)
    }

    /// In the form in which a synchronous caller has it: made once, never moved.
    #[inline(never)]
    fn try_ask(&self, permits: u64) -> Result<Option<Decision>, Error> {
        self.call().try_acquire(permits).map(Some)
    }

    #[inline]
    fn call(&self) -> Call<'_, &Pin<Cell>> {
        Call { definition: &self.definition, place: self.pin() }
    }
}

impl Clone for LocalHold {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.definition), self.definition.store.pin(self.pin()))
    }
}

impl Drop for LocalHold {
    fn drop(&mut self) {
        if let Some(pin) = self.pin.take() {
            self.definition.store.release(pin);
        }
    }
}

impl Handle {
    pub(crate) fn new(limit: NamedLimit, held: Held) -> Self {
        Self { limit, held }
    }

    /// The limit that it asks.
    ///
    /// ```
    /// # use shardlimit::Limiter;
    /// # fn main() -> Result<(), shardlimit::Error> {
    /// # let limit = Limiter::local().define("checkout", "500/s".parse()?)?;
    /// assert_eq!(limit.handle("item:42")?.limit().name(), "checkout");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn limit(&self) -> &NamedLimit {
        &self.limit
    }

    /// The key that it holds.
    ///
    /// ```
    /// # use shardlimit::Limiter;
    /// # fn main() -> Result<(), shardlimit::Error> {
    /// # let limit = Limiter::local().define("checkout", "500/s".parse()?)?;
    /// assert_eq!(limit.handle("item:42")?.key(), b"item:42");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn key(&self) -> &[u8] {
        match &self.held {
            Held::Local(hold) => hold.pin().key(),
            #[cfg(feature = "redis")]
            Held::Shared(hold) => &hold.entry().key,
        }
    }

    /// As [`NamedLimit::acquire`].
    ///
    /// # Errors
    /// None on the embedded store; on a shared one [`NotSent`](crate::ErrorKind::NotSent),
    /// [`Unknown`](crate::ErrorKind::Unknown) and [`Refused`](crate::ErrorKind::Refused).
    ///
    /// # Cancel safety
    /// As [`NamedLimit::acquire`].
    ///
    /// ```
    /// # use shardlimit::Limiter;
    /// # pollster::block_on(async {
    /// # let hot = Limiter::local().define("checkout", "500/s".parse()?)?.handle("item:42")?;
    /// assert!(hot.acquire().await?.is_allowed());
    /// # Ok::<(), shardlimit::Error>(())
    /// # }).unwrap();
    /// ```
    pub fn acquire(&self) -> impl Future<Output = Result<Decision, Error>> {
        self.acquire_n(1)
    }

    /// As [`NamedLimit::acquire_n`].
    ///
    /// # Errors
    /// [`ErrorKind::InvalidPermits`](crate::ErrorKind::InvalidPermits) for 0;
    /// [`ErrorKind::Never`](crate::ErrorKind::Never) for more than the limit ever holds; on a shared store also
    /// [`NotSent`](crate::ErrorKind::NotSent), [`Unknown`](crate::ErrorKind::Unknown) and
    /// [`Refused`](crate::ErrorKind::Refused), as [`NamedLimit::acquire`] has them.
    ///
    /// # Cancel safety
    /// As [`NamedLimit::acquire`].
    ///
    /// ```
    /// # use shardlimit::Limiter;
    /// # pollster::block_on(async {
    /// # let hot = Limiter::local().define("checkout", "500/s".parse()?)?.handle("item:42")?;
    /// assert!(hot.acquire_n(20).await?.is_allowed());
    /// # Ok::<(), shardlimit::Error>(())
    /// # }).unwrap();
    /// ```
    pub fn acquire_n(&self, permits: u64) -> impl Future<Output = Result<Decision, Error>> {
        Acquire::new(self, permits)
    }

    /// As [`NamedLimit::try_acquire`].
    ///
    /// # Errors
    /// [`ErrorKind::InvalidPermits`](crate::ErrorKind::InvalidPermits) for 0;
    /// [`ErrorKind::Never`](crate::ErrorKind::Never) for more than the limit ever holds; on a shared store also
    /// [`NotSent`](crate::ErrorKind::NotSent), after a shutdown, or while no shard answers and the policy is to say so.
    ///
    /// ```
    /// # use shardlimit::Limiter;
    /// # fn main() -> Result<(), shardlimit::Error> {
    /// # let hot = Limiter::local().define("checkout", "500/s".parse()?)?.handle("item:42")?;
    /// if let Some(decision) = hot.try_acquire(1)? {
    ///     assert!(decision.is_allowed());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_acquire(&self, permits: u64) -> Result<Option<Decision>, Error> {
        match &self.held {
            Held::Local(hold) if !hold.definition.shadow.is_on() => hold.try_ask(permits),
            #[cfg(feature = "redis")]
            Held::Shared(hold) if !hold.limit.shadow.is_on() => hold.limit.try_acquire(hold.entry(), permits),
            _ => self.try_in_shadow(permits),
        }
    }

    #[cold]
    fn try_in_shadow(&self, permits: u64) -> Result<Option<Decision>, Error> {
        let mut decided = match &self.held {
            Held::Local(hold) => hold.try_ask(permits),
            #[cfg(feature = "redis")]
            Held::Shared(hold) => hold.limit.try_acquire(hold.entry(), permits),
        };
        self.limit.shadow().over(&mut decided);
        decided
    }

    /// As [`NamedLimit::acquire_within`].
    ///
    /// # Errors
    /// As [`acquire_n`](Handle::acquire_n).
    ///
    /// # Cancel safety
    /// As [`NamedLimit::acquire_within`].
    ///
    /// ```
    /// # use shardlimit::Limiter; use std::time::Duration;
    /// # pollster::block_on(async {
    /// # let hot = Limiter::local().define("checkout", "500/s".parse()?)?.handle("item:42")?;
    /// assert!(hot.acquire_within(1, Duration::from_millis(10)).await?.is_allowed());
    /// # Ok::<(), shardlimit::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn acquire_within(&self, permits: u64, timeout: Duration) -> Result<Decision, Error> {
        if self.limit.shadow().is_on() {
            return self.acquire_n(permits).await;
        }
        match &self.held {
            Held::Local(hold) => hold.call().acquire_within(permits, timeout, || hold.ask(permits)).await,
            #[cfg(feature = "redis")]
            Held::Shared(hold) => hold.limit.acquire_within(hold.entry(), permits, timeout, self.limit.within()).await,
        }
    }

    /// As [`NamedLimit::peek`].
    ///
    /// # Errors
    /// None on the embedded store; on a shared one [`NotSent`](crate::ErrorKind::NotSent),
    /// [`Unknown`](crate::ErrorKind::Unknown) and [`Refused`](crate::ErrorKind::Refused).
    ///
    /// # Cancel safety
    /// Nothing changes, whenever it is dropped.
    ///
    /// ```
    /// # use shardlimit::Limiter;
    /// # pollster::block_on(async {
    /// # let hot = Limiter::local().define("checkout", "500/s".parse()?)?.handle("item:42")?;
    /// assert_eq!(hot.peek().await?.remaining().permits, 500);
    /// # Ok::<(), shardlimit::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn peek(&self) -> Result<Peek, Error> {
        match &self.held {
            Held::Local(hold) => Ok(hold.call().peek()),
            #[cfg(feature = "redis")]
            Held::Shared(hold) => hold.limit.peek(hold.entry(), self.limit.within()).await,
        }
    }

    /// As [`NamedLimit::refund`].
    ///
    /// # Errors
    /// [`ErrorKind::ForeignReceipt`](crate::ErrorKind::ForeignReceipt); then the charge stays. On a shared store also
    /// [`NotSent`](crate::ErrorKind::NotSent) and [`Refused`](crate::ErrorKind::Refused); and
    /// [`Unknown`](crate::ErrorKind::Unknown), also if there was no answer by the deadline of a call: then it goes on, and is not to be
    /// done again.
    ///
    /// # Cancel safety
    /// On the embedded store it is done at its first poll; on a shared one it is on its way then.
    ///
    /// ```
    /// # use shardlimit::{Decision, Limiter};
    /// # pollster::block_on(async {
    /// # let hot = Limiter::local().define("checkout", "500/s".parse()?)?.handle("item:42")?;
    /// if let Decision::Allowed(allowed) = hot.acquire().await? {
    ///     hot.refund(allowed.into_receipt()).await?;
    /// }
    /// # Ok::<(), shardlimit::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn refund(&self, receipt: Receipt) -> Result<(), Error> {
        match &self.held {
            Held::Local(hold) => hold.call().refund(&receipt, receipt.permits),
            #[cfg(feature = "redis")]
            Held::Shared(hold) => hold.limit.settle_within(hold.entry(), receipt, 0, self.limit.within()).await,
        }
    }

    /// As [`NamedLimit::settle`].
    ///
    /// # Errors
    /// As [`refund`](Handle::refund).
    ///
    /// # Cancel safety
    /// On the embedded store it is done at its first poll; on a shared one it is on its way then.
    ///
    /// ```
    /// # use shardlimit::{Decision, Limiter};
    /// # pollster::block_on(async {
    /// # let hot = Limiter::local().define("checkout", "500/s".parse()?)?.handle("item:42")?;
    /// if let Decision::Allowed(allowed) = hot.acquire_n(10).await? {
    ///     hot.settle(allowed.into_receipt(), 3).await?;
    /// }
    /// # Ok::<(), shardlimit::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn settle(&self, receipt: Receipt, actual: u64) -> Result<(), Error> {
        match &self.held {
            Held::Local(hold) => hold.call().settle(&receipt, actual),
            #[cfg(feature = "redis")]
            Held::Shared(hold) => hold.limit.settle_within(hold.entry(), receipt, actual, self.limit.within()).await,
        }
    }

    /// As [`NamedLimit::reset`].
    ///
    /// # Errors
    /// None on the embedded store; on a shared one [`NotSent`](crate::ErrorKind::NotSent),
    /// [`Unknown`](crate::ErrorKind::Unknown) and [`Refused`](crate::ErrorKind::Refused).
    ///
    /// # Cancel safety
    /// On the embedded store it is done at its first poll; on a shared one it is on its way then, for a leased key once
    /// nothing is being leased.
    ///
    /// ```
    /// # use shardlimit::Limiter;
    /// # pollster::block_on(async {
    /// # let hot = Limiter::local().define("checkout", "500/s".parse()?)?.handle("item:42")?;
    /// hot.reset().await?;
    /// # Ok::<(), shardlimit::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn reset(&self) -> Result<(), Error> {
        match &self.held {
            Held::Local(hold) => {
                hold.call().reset();
                Ok(())
            }
            #[cfg(feature = "redis")]
            Held::Shared(hold) => hold.limit.reset(hold.entry(), self.limit.within()).await,
        }
    }
}

#[cfg(feature = "redis")]
impl Handle {
    /// What this process had of each shard of the key, also of shards that its plan has no more; since the key was last idle for so
    /// long that no more than its plan was kept. Nothing on the embedded store.
    ///
    /// ```no_run
    /// # fn run(hot: shardlimit::Handle) {
    /// let runs: u64 = hot.counts().iter().map(|shard| shard.runs).sum();
    /// # }
    /// ```
    #[must_use]
    pub fn counts(&self) -> Vec<crate::ShardCounts> {
        match &self.held {
            Held::Local(_) => Vec::new(),
            Held::Shared(hold) => hold.entry().counts(),
        }
    }
}

/// Another handle of the same key.
impl Clone for Handle {
    fn clone(&self) -> Self {
        Self { limit: self.limit.clone(), held: self.held.clone() }
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({:?}, \"{}\")", self.limit, self.key().escape_ascii())
    }
}
