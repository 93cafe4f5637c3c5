//! One decision over several asks.

use std::time::Duration;

use futures_util::future::join_all;

use super::answer::{Allowed, Denied};
use super::receipt::Receipt;
use crate::ask::Ask;
use crate::error::{Error, ErrorKind};

/// What [`acquire_all`](crate::Limiter::acquire_all) came to: every ask was allowed, or nothing was charged.
///
/// ```
/// use shardlimit::{AllDecision, Limiter};
///
/// # pollster::block_on(async {
/// # let limiter = Limiter::local();
/// # let (item, user) = (limiter.define("item", "5/s".parse()?)?, limiter.define("user", "9/s".parse()?)?);
/// match limiter.acquire_all([item.ask("42", 1), user.ask("u7", 1)]).await? {
///     AllDecision::Allowed(_) => println!("sold"),
///     AllDecision::Denied(denied) => println!("not before {:?}", denied.retry_after()),
/// }
/// # Ok::<(), shardlimit::Error>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
#[must_use = "a denial limits nothing unless the caller acts on it"]
pub enum AllDecision {
    /// All permits are charged: go on.
    Allowed(AllAllowed),
    /// Not yet. Nothing was charged.
    Denied(AllDenied),
}

impl AllDecision {
    /// Whether the permits were charged.
    ///
    /// ```
    /// # use shardlimit::Limiter;
    /// # pollster::block_on(async {
    /// # let limiter = Limiter::local();
    /// # let item = limiter.define("item", "5/s".parse()?)?;
    /// assert!(limiter.acquire_all([item.ask("42", 1)]).await?.is_allowed());
    /// # Ok::<(), shardlimit::Error>(())
    /// # }).unwrap();
    /// ```
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed(_))
    }
}

/// Asks that were all allowed.
///
/// ```
/// # use shardlimit::{AllDecision, Limiter};
/// # pollster::block_on(async {
/// # let limiter = Limiter::local();
/// # let (item, user) = (limiter.define("item", "5/s".parse()?)?, limiter.define("user", "9/s".parse()?)?);
/// if let AllDecision::Allowed(allowed) = limiter.acquire_all([item.ask("42", 1), user.ask("u7", 1)]).await? {
///     assert_eq!(allowed.each()[1].remaining().permits, 8);
///     allowed.into_receipt().refund().await?; // the work was not done after all
/// }
/// # Ok::<(), shardlimit::Error>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct AllAllowed {
    asks: Vec<Ask>,
    allowed: Vec<Allowed>,
}

impl AllAllowed {
    pub(crate) fn new(asks: Vec<Ask>, allowed: Vec<Allowed>) -> Self {
        Self { asks, allowed }
    }

    /// What each ask was told, in the order in which they were given.
    ///
    /// ```
    /// # use shardlimit::{AllDecision, Limiter};
    /// # pollster::block_on(async {
    /// # let limiter = Limiter::local();
    /// # let item = limiter.define("item", "5/day".parse()?)?;
    /// if let AllDecision::Allowed(allowed) = limiter.acquire_all([item.ask("42", 2)]).await? {
    ///     assert_eq!(allowed.each()[0].remaining().permits, 3);
    /// }
    /// # Ok::<(), shardlimit::Error>(())
    /// # }).unwrap();
    /// ```
    #[must_use]
    pub fn each(&self) -> &[Allowed] {
        &self.allowed
    }

    /// How long to wait before going on: the longest that a pacing queue among them says; elsewhere zero.
    ///
    /// ```
    /// # use shardlimit::{AllDecision, Limiter};
    /// # pollster::block_on(async {
    /// # let limiter = Limiter::local();
    /// # let item = limiter.define("item", "5/day".parse()?)?;
    /// if let AllDecision::Allowed(allowed) = limiter.acquire_all([item.ask("42", 2)]).await? {
    ///     assert!(allowed.wait().is_zero());
    /// }
    /// # Ok::<(), shardlimit::Error>(())
    /// # }).unwrap();
    /// ```
    #[must_use]
    pub fn wait(&self) -> Duration {
        self.allowed.iter().map(Allowed::wait).max().unwrap_or_default()
    }

    /// What a refund or a settlement of all of them needs.
    ///
    /// ```
    /// # use shardlimit::{AllDecision, Limiter};
    /// # pollster::block_on(async {
    /// # let limiter = Limiter::local();
    /// # let item = limiter.define("item", "5/day".parse()?)?;
    /// if let AllDecision::Allowed(allowed) = limiter.acquire_all([item.ask("42", 2)]).await? {
    ///     allowed.into_receipt().refund().await?;
    /// }
    /// # Ok::<(), shardlimit::Error>(())
    /// # }).unwrap();
    /// ```
    #[must_use]
    pub fn into_receipt(self) -> AllReceipt {
        let receipts = self.allowed.into_iter().map(Allowed::into_receipt);
        AllReceipt { parts: self.asks.into_iter().zip(receipts).collect() }
    }
}

/// Asks of which at least one was denied. None was charged.
///
/// ```
/// # use shardlimit::{AllDecision, Limiter};
/// # pollster::block_on(async {
/// # let limiter = Limiter::local();
/// # let item = limiter.define("item", "1/day".parse()?)?;
/// # assert!(item.acquire("42").await?.is_allowed());
/// if let AllDecision::Denied(denied) = limiter.acquire_all([item.ask("41", 1), item.ask("42", 1)]).await? {
///     assert!(denied.retry_after().as_secs() > 86_000);
/// }
/// # Ok::<(), shardlimit::Error>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct AllDenied {
    asks: Vec<Ask>,
    /// With their places among the asks.
    denials: Vec<(usize, Denied)>,
}

impl AllDenied {
    pub(crate) fn new(asks: Vec<Ask>, denials: Vec<(usize, Denied)>) -> Self {
        Self { asks, denials }
    }

    /// The asks that were denied, in the order in which they were given, and what each was told.
    ///
    /// ```
    /// # use shardlimit::{AllDecision, Limiter};
    /// # pollster::block_on(async {
    /// # let limiter = Limiter::local();
    /// # let item = limiter.define("item", "1/day".parse()?)?;
    /// # assert!(item.acquire("42").await?.is_allowed());
    /// if let AllDecision::Denied(denied) = limiter.acquire_all([item.ask("41", 1), item.ask("42", 1)]).await? {
    ///     let names: Vec<_> = denied.denials().map(|(ask, _)| ask.limit().name().to_owned()).collect();
    ///     assert_eq!(names, ["item"]);
    /// }
    /// # Ok::<(), shardlimit::Error>(())
    /// # }).unwrap();
    /// ```
    #[must_use = "looking changes nothing"]
    pub fn denials(&self) -> impl Iterator<Item = (&Ask, &Denied)> {
        self.denials.iter().map(|(place, denied)| (&self.asks[*place], denied))
    }

    /// Not before this long from now: the longest that any of them says.
    ///
    /// ```
    /// # use shardlimit::{AllDecision, Limiter};
    /// # pollster::block_on(async {
    /// # let limiter = Limiter::local();
    /// # let item = limiter.define("item", "1/s burst 1".parse()?)?;
    /// # assert!(item.acquire("42").await?.is_allowed());
    /// if let AllDecision::Denied(denied) = limiter.acquire_all([item.ask("41", 1), item.ask("42", 1)]).await? {
    ///     assert!(denied.retry_after().as_secs_f64() <= 1.0);
    /// }
    /// # Ok::<(), shardlimit::Error>(())
    /// # }).unwrap();
    /// ```
    #[must_use]
    pub fn retry_after(&self) -> Duration {
        self.denials.iter().map(|(_, denied)| denied.retry_after()).max().unwrap_or_default()
    }
}

/// Proof of what several asks were charged. Dropping it keeps the charges.
///
/// ```
/// # use shardlimit::{AllDecision, Limiter};
/// # pollster::block_on(async {
/// # let limiter = Limiter::local();
/// # let (words, user) = (limiter.define("words", "900/day".parse()?)?, limiter.define("user", "9/day".parse()?)?);
/// if let AllDecision::Allowed(allowed) = limiter.acquire_all([words.ask("k", 100), user.ask("u7", 1)]).await? {
///     allowed.into_receipt().settle(&[340, 1]).await?; // known when the answer was generated
/// }
/// assert_eq!(words.peek("k").await?.remaining().permits, 560);
/// # Ok::<(), shardlimit::Error>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct AllReceipt {
    parts: Vec<(Ask, Receipt)>,
}

impl AllReceipt {
    /// Gives back what all of them were charged, as [`NamedLimit::refund`](crate::NamedLimit::refund) does.
    ///
    /// # Errors
    /// The first that one of them ended in, as of [`NamedLimit::refund`](crate::NamedLimit::refund). The others are given back.
    ///
    /// # Cancel safety
    /// On the embedded store it is done at its first poll; on a shared one it is on its way then.
    ///
    /// ```
    /// # use shardlimit::{AllDecision, Limiter};
    /// # pollster::block_on(async {
    /// # let limiter = Limiter::local();
    /// # let item = limiter.define("item", "5/day".parse()?)?;
    /// if let AllDecision::Allowed(allowed) = limiter.acquire_all([item.ask("42", 2)]).await? {
    ///     allowed.into_receipt().refund().await?;
    /// }
    /// assert_eq!(item.peek("42").await?.remaining().permits, 5);
    /// # Ok::<(), shardlimit::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn refund(self) -> Result<(), Error> {
        let refunds =
            self.parts.into_iter().map(|(ask, receipt)| async move { ask.limit().refund(ask.key(), receipt).await });
        join_all(refunds).await.into_iter().collect()
    }

    /// Corrects each charge to what the work did cost in the end, in the order of the asks, as
    /// [`NamedLimit::settle`](crate::NamedLimit::settle) does.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidPermits`] unless there is one number for each ask: then all charges stay. Else the first that one of
    /// them ended in; the others are settled.
    ///
    /// # Cancel safety
    /// On the embedded store it is done at its first poll; on a shared one it is on its way then.
    ///
    /// ```
    /// # use shardlimit::{AllDecision, Limiter};
    /// # pollster::block_on(async {
    /// # let limiter = Limiter::local();
    /// # let item = limiter.define("item", "5/day".parse()?)?;
    /// if let AllDecision::Allowed(allowed) = limiter.acquire_all([item.ask("42", 1)]).await? {
    ///     allowed.into_receipt().settle(&[3]).await?;
    /// }
    /// assert_eq!(item.peek("42").await?.remaining().permits, 2);
    /// # Ok::<(), shardlimit::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn settle(self, actual: &[u64]) -> Result<(), Error> {
        if actual.len() != self.parts.len() {
            let (asks, numbers) = (self.parts.len(), actual.len());
            let message = format!("{numbers} numbers for {asks} asks; give one for each; the charges stay as they are");
            return Err(Error::new(ErrorKind::InvalidPermits, "actual", message));
        }
        let settled = self
            .parts
            .into_iter()
            .zip(actual)
            .map(|((ask, receipt), actual)| async move { ask.limit().settle(ask.key(), receipt, *actual).await });
        join_all(settled).await.into_iter().collect()
    }

    /// The receipts of the asks one by one, in their order.
    ///
    /// ```
    /// # use shardlimit::{AllDecision, Limiter};
    /// # pollster::block_on(async {
    /// # let limiter = Limiter::local();
    /// # let item = limiter.define("item", "5/day".parse()?)?;
    /// if let AllDecision::Allowed(allowed) = limiter.acquire_all([item.ask("42", 2)]).await? {
    ///     assert_eq!(allowed.into_receipt().into_each()[0].permits(), 2);
    /// }
    /// # Ok::<(), shardlimit::Error>(())
    /// # }).unwrap();
    /// ```
    #[must_use]
    pub fn into_each(self) -> Vec<Receipt> {
        self.parts.into_iter().map(|(_, receipt)| receipt).collect()
    }
}
