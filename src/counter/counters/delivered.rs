//! What became of the adds of this process.

#[cfg(feature = "redis")]
use std::time::Duration;

use super::{Counters, On};
use crate::counter::{Dropped, Unanswered};
#[cfg(feature = "redis")]
use crate::{
    counter::patience::Patience,
    error::{Error, ErrorKind},
    sync::Arc,
};

impl Counters {
    /// The same counters, with a deadline of its own for each call through this clone, instead of the
    /// [limiter's](crate::Builder::deadline): from a microsecond to an hour. Whoever asks for much at once needs more time. The embedded store needs none.
    ///
    /// ```
    /// # use shardlimit::{Limiter, counter::CounterSettings}; use std::time::Duration;
    /// # pollster::block_on(async {
    /// # let counters = Limiter::local().counters("clicks", CounterSettings::new(Duration::from_secs(60)))?;
    /// let patient = counters.deadline(Duration::from_secs(1));
    /// assert_eq!(patient.get("item:42").await?, 0);
    /// # Ok::<(), shardlimit::Error>(())
    /// # }).unwrap();
    /// ```
    #[cfg(feature = "redis")]
    #[must_use]
    pub fn deadline(&self, deadline: Duration) -> Self {
        Self(Arc::clone(&self.0), Patience::new(deadline))
    }

    /// How many calls had no answer: too late, or too many at once. None on the embedded store.
    ///
    /// ```
    /// # use shardlimit::{Limiter, counter::CounterSettings}; use std::time::Duration;
    /// let counters = Limiter::local().counters("clicks", CounterSettings::new(Duration::from_secs(60)))?;
    /// assert_eq!(counters.unanswered().late, 0);
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    #[must_use]
    pub fn unanswered(&self) -> Unanswered {
        match &self.0.on {
            On::Local(..) => Unanswered::default(),
            #[cfg(feature = "redis")]
            On::Shared(delivery) => delivery.shards.calls.missed.read(),
        }
    }

    /// How many adds of this process are not delivered yet: on their way, or queued.
    ///
    /// ```
    /// # use shardlimit::{Limiter, counter::CounterSettings}; use std::time::Duration;
    /// let clicks = Limiter::local().counters("clicks", CounterSettings::new(Duration::from_secs(86_400)))?;
    /// assert_eq!(clicks.undelivered(), 0);
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    #[must_use]
    pub fn undelivered(&self) -> u64 {
        match &self.0.on {
            On::Local(..) => 0,
            #[cfg(feature = "redis")]
            On::Shared(delivery) => delivery.tally.undelivered(),
        }
    }

    /// How many adds of this process were given up. The embedded store gives up none.
    ///
    /// ```
    /// # use shardlimit::{Limiter, counter::CounterSettings}; use std::time::Duration;
    /// let clicks = Limiter::local().counters("clicks", CounterSettings::new(Duration::from_secs(86_400)))?;
    /// assert_eq!((clicks.dropped().refused, clicks.dropped().unknown), (0, 0));
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    #[must_use]
    pub fn dropped(&self) -> Dropped {
        match &self.0.on {
            On::Local(..) => Dropped::default(),
            #[cfg(feature = "redis")]
            On::Shared(delivery) => delivery.tally.dropped(),
        }
    }

    /// Waits up to `within` until nothing is undelivered. Needs the feature `redis`; nothing to do on the embedded store.
    ///
    /// # Errors
    /// [`ErrorKind::NotSent`] with the number of adds that are still undelivered then. They stay queued.
    ///
    /// # Cancel safety
    /// It changes nothing.
    ///
    /// ```no_run
    /// # async fn run(clicks: shardlimit::counter::Counters) -> Result<(), shardlimit::Error> {
    /// clicks.flush(std::time::Duration::from_secs(5)).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "redis")]
    pub async fn flush(&self, within: Duration) -> Result<(), Error> {
        let On::Shared(delivery) = &self.0.on else { return Ok(()) };
        if self.undelivered() == 0 {
            return Ok(());
        }
        let (done, is_empty) = tokio::sync::oneshot::channel();
        let empty = delivery.tally.empty();
        delivery.shards.engine.spawn(async move {
            let _ = done.send(tokio::time::timeout(within, empty).await.is_ok());
        })?;
        if is_empty.await.unwrap_or(false) {
            return Ok(());
        }
        let message = format!("{} adds are not delivered within {within:?}; they stay queued", self.undelivered());
        Err(Error::new(ErrorKind::NotSent, "counters", message))
    }

    #[cfg(feature = "redis")]
    pub(in crate::counter) fn empty(&self) -> Option<impl Future<Output = ()> + Send + use<>> {
        match &self.0.on {
            On::Local(..) => None,
            On::Shared(delivery) => Some(delivery.tally.empty()),
        }
    }
}
