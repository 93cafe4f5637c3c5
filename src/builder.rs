//! Every setting of a limiter, with its default and the reason for it.

#[cfg(feature = "redis")]
mod failures;
#[cfg(all(feature = "config", feature = "redis"))]
mod file;
#[cfg(feature = "redis")]
mod redis;

use crate::clock::Clock;
use crate::error::{Error, ErrorKind};
use crate::key::check_name;
use crate::limiter::{Limiter, Store};

/// Builds a [`Limiter`]. Building opens no socket and starts no thread.
///
/// ```
/// use shardlimit::Limiter;
///
/// let limiter = Limiter::builder().max_keys(50_000).build()?;
/// # Ok::<(), shardlimit::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it builds"]
pub struct Builder {
    prefix: String,
    max_keys: usize,
    clock: Option<Clock>,
    shadow: bool,
    #[cfg(feature = "redis")]
    redis: redis::RedisSettings,
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self {
            prefix: "shardlimit".into(),
            max_keys: 100_000,
            clock: None,
            shadow: false,
            #[cfg(feature = "redis")]
            redis: redis::RedisSettings::default(),
        }
    }

    /// How many keys each named limit tracks at the most. Default: 100,000.
    ///
    /// A key takes 110 to 220 bytes in a bucket or a fixed window, as tables grow by doubling. Keys longer than 24 bytes add their length, sliding windows
    /// and logs about 110 bytes and 16 for each sub-window or moment that they remember: at most 2 kB at the default
    /// precision, 160 kB for a sliding log of 10,000.
    ///
    /// On a shared store this bounds how many keys a process remembers: what makes way is asked of the servers again. The
    /// figures here are the embedded store's.
    ///
    /// Only a key whose limit is as new again makes way for another. When all are in use, further keys share
    /// overflow buckets until there is room: they get less than their due, nobody gets more, and the keys
    /// that are tracked do not notice.
    ///
    /// ```
    /// # use shardlimit::Limiter;
    /// let limiter = Limiter::builder().max_keys(1_000_000).build()?;
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    pub fn max_keys(mut self, keys: usize) -> Self {
        self.max_keys = keys;
        self
    }

    /// The prefix of this limiter's keys in a shared store. Default: `shardlimit`.
    ///
    /// The embedded store is nobody else's; there it only has to be well-formed.
    ///
    /// ```
    /// # use shardlimit::Limiter;
    /// let limiter = Limiter::builder().prefix("gateway-eu").build()?;
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// The clock to go by. Default: [`Clock::system`]. Tests pass a [`FakeClock`](crate::FakeClock).
    ///
    /// ```
    /// # use shardlimit::{FakeClock, Limiter};
    /// let time = FakeClock::new();
    /// let limiter = Limiter::builder().clock(&time).build()?;
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    pub fn clock(mut self, clock: impl Into<Clock>) -> Self {
        self.clock = Some(clock.into());
        self
    }

    /// Whether limits begin in shadow mode: every call is decided, charged and counted, and all of them pass. Default: no.
    /// [`NamedLimit::set_shadow`](crate::NamedLimit::set_shadow) changes it for each limit while it is in use.
    ///
    /// ```
    /// # use shardlimit::Limiter;
    /// let limit = Limiter::builder().shadow(true).build()?.define("api", "1/day".parse()?)?;
    /// for _ in 0..10 {
    ///     assert!(limit.try_acquire("alice", 1)?.unwrap().is_allowed());
    /// }
    /// assert_eq!(limit.shadowed(), 9);
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    pub fn shadow(mut self, on: bool) -> Self {
        self.shadow = on;
        self
    }

    /// Checks the settings and makes the limiter.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`] for the prefix, [`ErrorKind::InvalidSetting`] for the rest.
    ///
    /// ```
    /// # use shardlimit::Limiter;
    /// let error = Limiter::builder().prefix("a{b}").build().unwrap_err();
    /// assert_eq!(error.field(), "prefix");
    /// ```
    pub fn build(self) -> Result<Limiter, Error> {
        check_name("prefix", &self.prefix)?;
        if self.max_keys == 0 {
            let message = "must be at least 1, got 0";
            return Err(Error::new(ErrorKind::InvalidSetting, "max_keys", message));
        }
        #[cfg(feature = "redis")]
        if let Some(shared) = self.shared()? {
            return Ok(Limiter::new(Store::Shared(shared)));
        }
        Ok(self.local())
    }

    /// Whether it can be built, as far as that is known before a process has all that it needs.
    #[cfg(feature = "config")]
    pub(crate) fn check(&self) -> Result<(), Error> {
        let builder = self.clone();
        #[cfg(feature = "tls")]
        let builder = builder.without_crypto();
        builder.build().map(drop)
    }

    /// Every setting as text, but for those that no file can say.
    #[cfg(all(test, feature = "config", feature = "redis"))]
    pub(crate) fn told(&self) -> Vec<(&'static str, String)> {
        let Self { prefix, max_keys, clock: _, shadow, redis } = self;
        let told = [("prefix", prefix.clone()), ("max_keys", max_keys.to_string()), ("shadow", shadow.to_string())];
        told.into_iter().chain(redis.told()).collect()
    }

    /// The settings must be valid, as the defaults are.
    pub(crate) fn local(self) -> Limiter {
        Limiter::new(Store::Local {
            clock: self.clock.unwrap_or_default(),
            max_keys: self.max_keys,
            shadow: self.shadow,
        })
    }
}
