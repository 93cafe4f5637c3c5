//! A limit with its name: what callers ask.

mod later;
mod several;
#[cfg(feature = "redis")]
mod shared;

use std::fmt;
use std::time::Duration;

#[cfg(feature = "redis")]
use crate::clock::Micros;
use crate::decision::Decision;
use crate::error::Error;
use crate::flow::call::{Call, Definition};
use crate::flow::shadow::Shadow;
#[cfg(feature = "redis")]
use crate::flow::sharded::SharedLimit;
#[cfg(feature = "redis")]
use crate::handle::SharedHold;
use crate::handle::{Handle, Held, LocalHold};
use crate::key::check_key;
use crate::limit::Limit;
use crate::store::local::Lookup;
use crate::sync::Arc;

/// A limit that was [defined](crate::Limiter::define): it decides for any key. Clones share everything.
///
/// Every method that takes a key returns [`ErrorKind::InvalidKey`](crate::ErrorKind::InvalidKey) unless it has 1 to
/// 16,384 bytes.
///
/// ```
/// use shardlimit::Limiter;
///
/// # pollster::block_on(async {
/// let limit = Limiter::local().define("search", "sliding-window 100/min".parse()?)?;
/// if limit.acquire("alice").await?.is_allowed() {
///     // …
/// }
/// # Ok::<(), shardlimit::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct NamedLimit {
    on: On,
    /// How long calls through this clone may take, if that is not the limiter's affair.
    #[cfg(feature = "redis")]
    within: Option<Micros>,
}

/// Where its state lives.
#[derive(Clone)]
enum On {
    Local(Arc<Definition>),
    #[cfg(feature = "redis")]
    Shared(Arc<SharedLimit>),
}

/// Not generic over the key: one copy of the way of a call, however keys are written.
#[inline(never)]
fn ask(definition: &Definition, key: &[u8], permits: u64) -> Result<Decision, Error> {
    call(definition, key)?.try_acquire(permits)
}

/// In the form in which a synchronous caller has it: made once, never moved.
#[inline(never)]
fn try_ask(definition: &Definition, key: &[u8], permits: u64) -> Result<Option<Decision>, Error> {
    call(definition, key)?.try_acquire(permits).map(Some)
}

#[inline]
fn call<'a>(definition: &'a Definition, key: &'a [u8]) -> Result<Call<'a, Lookup<'a>>, Error> {
    Ok(Call { definition, place: definition.store.look_up(check_key(key)?) })
}

impl NamedLimit {
    pub(crate) fn local(definition: Definition) -> Self {
        Self {
            on: On::Local(Arc::new(definition)),
            #[cfg(feature = "redis")]
            within: None,
        }
    }

    #[cfg(feature = "redis")]
    pub(crate) fn on_shared(&self) -> Option<Arc<SharedLimit>> {
        match &self.on {
            On::Local(_) => None,
            On::Shared(limit) => Some(Arc::clone(limit)),
        }
    }

    #[cfg(feature = "redis")]
    pub(crate) fn shared(limit: SharedLimit) -> Self {
        Self { on: On::Shared(Arc::new(limit)), within: None }
    }

    pub(crate) fn shadow(&self) -> &Shadow {
        match &self.on {
            On::Local(definition) => &definition.shadow,
            #[cfg(feature = "redis")]
            On::Shared(limit) => &limit.shadow,
        }
    }

    /// Turns shadow mode on or off, for all clones: every call is decided, charged and counted, and none is turned away. So a
    /// new limit can be watched before it is enforced.
    ///
    /// A call that would have been denied is allowed, charged nothing, and says so by
    /// [`Allowed::shadowed`](crate::Allowed::shadowed); so is one that a shared store could not decide. Nobody waits.
    ///
    /// ```
    /// # use shardlimit::Limiter;
    /// # fn main() -> Result<(), shardlimit::Error> {
    /// let limit = Limiter::local().define("api", "1/day".parse()?)?;
    /// limit.set_shadow(true);
    /// for _ in 0..3 {
    ///     assert!(limit.try_acquire("alice", 1)?.unwrap().is_allowed());
    /// }
    /// assert_eq!(limit.shadowed(), 2);
    /// limit.set_shadow(false);
    /// assert!(!limit.try_acquire("alice", 1)?.unwrap().is_allowed());
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_shadow(&self, on: bool) {
        self.shadow().set(on);
    }

    /// How many calls shadow mode let pass that would have been turned away.
    ///
    /// ```
    /// let limit = shardlimit::Limiter::local().define("api", "1/day".parse()?)?;
    /// assert_eq!(limit.shadowed(), 0);
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    #[must_use]
    pub fn shadowed(&self) -> u64 {
        self.shadow().spared()
    }

    /// Its name.
    ///
    /// ```
    /// # use shardlimit::Limiter;
    /// # fn main() -> Result<(), shardlimit::Error> {
    /// let limit = Limiter::local().define("search", "100/min".parse()?)?;
    /// assert_eq!(limit.name(), "search");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn name(&self) -> &str {
        match &self.on {
            On::Local(definition) => &definition.name,
            #[cfg(feature = "redis")]
            On::Shared(limit) => &limit.name,
        }
    }

    /// What it limits to.
    ///
    /// ```
    /// # use shardlimit::Limiter;
    /// # fn main() -> Result<(), shardlimit::Error> {
    /// let limit = Limiter::local().define("search", "100/min".parse()?)?;
    /// assert_eq!(limit.limit().to_string(), "token-bucket 100/min burst 100");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn limit(&self) -> Limit {
        match &self.on {
            On::Local(definition) => definition.limit,
            #[cfg(feature = "redis")]
            On::Shared(limit) => limit.limit(),
        }
    }

    /// Asks for one permit.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidKey`](crate::ErrorKind::InvalidKey). On a shared store also
    /// [`NotSent`](crate::ErrorKind::NotSent): nothing was charged, ask again;
    /// [`Unknown`](crate::ErrorKind::Unknown): the permits may have been charged;
    /// [`Refused`](crate::ErrorKind::Refused): nothing was charged, and an operator has to act. What to do without a
    /// decision is the caller's to say.
    ///
    /// # Cancel safety
    /// On the embedded store the call is over at its first poll: a future that was dropped before it charged
    /// nothing. On a shared store a call that was not sent yet costs nothing; of one that was, the permits are given back
    /// when its answer comes.
    ///
    /// ```
    /// # use shardlimit::Limiter;
    /// # pollster::block_on(async {
    /// # let limit = Limiter::local().define("search", "100/min".parse()?)?;
    /// assert!(limit.acquire("alice").await?.is_allowed());
    /// # Ok::<(), shardlimit::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn acquire(&self, key: impl AsRef<[u8]>) -> Result<Decision, Error> {
        self.acquire_n(key, 1).await
    }

    /// Asks for several permits, all or none.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidKey`](crate::ErrorKind::InvalidKey);
    /// [`ErrorKind::InvalidPermits`](crate::ErrorKind::InvalidPermits) for 0;
    /// [`ErrorKind::Never`](crate::ErrorKind::Never) for more than the limit ever holds; on a shared store those of
    /// [`acquire`](NamedLimit::acquire).
    ///
    /// # Cancel safety
    /// As [`acquire`](NamedLimit::acquire).
    ///
    /// ```
    /// # use shardlimit::Limiter;
    /// # pollster::block_on(async {
    /// # let limit = Limiter::local().define("upload", "1000/day burst 500".parse()?)?;
    /// let decision = limit.acquire_n("alice", 200).await?;
    /// assert_eq!(decision.remaining().permits, 300);
    /// # Ok::<(), shardlimit::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn acquire_n(&self, key: impl AsRef<[u8]>, permits: u64) -> Result<Decision, Error> {
        let key = key.as_ref();
        match &self.on {
            On::Local(definition) => {
                let mut decided = ask(definition, key, permits);
                definition.shadow.over(&mut decided);
                decided
            }
            #[cfg(feature = "redis")]
            On::Shared(limit) => {
                let mut decided = limit.acquire_by_key(check_key(key)?, permits, self.within).await;
                limit.shadow.over(&mut decided);
                decided
            }
        }
    }

    /// Asks without waiting for anything: `None` when only a remote store could tell. The embedded store always
    /// answers.
    ///
    /// # Errors
    /// As [`acquire_n`](NamedLimit::acquire_n).
    ///
    /// ```
    /// # use shardlimit::Limiter;
    /// # fn main() -> Result<(), shardlimit::Error> {
    /// # let limit = Limiter::local().define("search", "100/min".parse()?)?;
    /// assert!(limit.try_acquire("alice", 1)?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_acquire(&self, key: impl AsRef<[u8]>, permits: u64) -> Result<Option<Decision>, Error> {
        match &self.on {
            On::Local(definition) if !definition.shadow.is_on() => try_ask(definition, key.as_ref(), permits),
            #[cfg(feature = "redis")]
            On::Shared(limit) if !limit.shadow.is_on() => limit.try_acquire_by_key(check_key(key.as_ref())?, permits),
            _ => self.try_in_shadow(key.as_ref(), permits),
        }
    }

    #[cold]
    fn try_in_shadow(&self, key: &[u8], permits: u64) -> Result<Option<Decision>, Error> {
        let mut decided = match &self.on {
            On::Local(definition) => try_ask(definition, key, permits),
            #[cfg(feature = "redis")]
            On::Shared(limit) => limit.try_acquire_by_key(check_key(key)?, permits),
        };
        self.shadow().over(&mut decided);
        decided
    }

    /// Asks, and waits for up to `timeout` until the permits are there. It needs no runtime of any kind.
    ///
    /// Calls that wait for one key are served in the order in which they were first polled, and calls that do not
    /// wait are denied meanwhile: nobody overtakes, so an ask for many permits holds up those behind it. The
    /// one at the head is denied at once when no permit will be there in time. In a pacing queue the
    /// wait includes the call's own turn: when it is allowed, it may go on.
    ///
    /// On a shared store that order is this process's: one task asks for all who wait, and whichever process asks first is
    /// served. The first ask may take up to the deadline of a call on top of `timeout`.
    ///
    /// # Errors
    /// As [`acquire_n`](NamedLimit::acquire_n).
    ///
    /// # Cancel safety
    /// Dropping the future leaves the line and charges nothing. In a pacing queue a call that was let in gives its turn back
    /// if it is the last; if others stand behind it, who were promised their turns, its own passes unused.
    ///
    /// ```
    /// # use shardlimit::Limiter; use std::time::Duration;
    /// # pollster::block_on(async {
    /// # let limit = Limiter::local().define("search", "100/s burst 1".parse()?)?;
    /// for _ in 0..3 {
    ///     // Takes about 20 ms.
    ///     assert!(limit.acquire_within("alice", 1, Duration::from_secs(1)).await?.is_allowed());
    /// }
    /// # Ok::<(), shardlimit::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn acquire_within(
        &self,
        key: impl AsRef<[u8]>,
        permits: u64,
        timeout: Duration,
    ) -> Result<Decision, Error> {
        let key = key.as_ref();
        if self.shadow().is_on() {
            return self.acquire_n(key, permits).await;
        }
        match &self.on {
            On::Local(definition) => {
                call(definition, key)?.acquire_within(permits, timeout, || ask(definition, key, permits)).await
            }
            #[cfg(feature = "redis")]
            On::Shared(limit) => {
                limit.acquire_within(&limit.entry(check_key(key)?), permits, timeout, self.within).await
            }
        }
    }

    /// Pins a key for a caller that asks often: its calls need no look-up, and those that are decided in process no allocation.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidKey`](crate::ErrorKind::InvalidKey).
    ///
    /// ```
    /// # use shardlimit::Limiter;
    /// # fn main() -> Result<(), shardlimit::Error> {
    /// # let limit = Limiter::local().define("checkout", "500/s".parse()?)?;
    /// let hot = limit.handle("item:42")?;
    /// assert!(hot.try_acquire(1)?.unwrap().is_allowed());
    /// # Ok(())
    /// # }
    /// ```
    pub fn handle(&self, key: impl AsRef<[u8]>) -> Result<Handle, Error> {
        let held = match &self.on {
            On::Local(definition) => {
                let pin = definition.store.pin(call(definition, key.as_ref())?.place);
                Held::Local(LocalHold::new(Arc::clone(definition), pin))
            }
            #[cfg(feature = "redis")]
            On::Shared(limit) => {
                let entry = Arc::clone(&limit.entry(check_key(key.as_ref())?));
                Held::Shared(SharedHold::new(Arc::clone(limit), entry))
            }
        };
        Ok(Handle::new(self.clone(), held))
    }
}

impl fmt::Debug for NamedLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NamedLimit({:?}: \"{}\")", self.name(), self.limit())
    }
}
