//! About how many distinct values, in a sliding window, for sets too large to keep.

use std::fmt;
use std::time::Duration;

use super::distinct::checked;
use super::patience::Patience;
use super::settings::{LONGEST, check_time};
use super::sketch::Sketch;
use super::table::{Ends, Table};
use super::{Place, Registry, Unanswered};
use crate::clock::Micros;
use crate::error::Error;
use crate::key::check_key;
use crate::sync::Arc;
#[cfg(feature = "redis")]
use crate::{counter::parts::SharedParts, wire::Mode};

/// Parts of a window. Each is a sketch of up to 12 kB on a server and 16 kB in process.
pub(super) const PARTS: u64 = 8;
/// A key of the embedded store may take 150 kB: a hundredth of the keys that others have.
const KEYS_FEWER: usize = 100;

/// About how many different values a key had lately, in bounded memory however many they are.
/// [`Limiter::approximate_counters`](crate::Limiter::approximate_counters) makes them; clones are cheap and share everything.
///
/// The estimate has a standard error of 0.81 %. The window is counted in 8 parts: a value counts for the whole window since it was
/// last seen, and for up to an eighth of it longer.
///
/// ```
/// use shardlimit::Limiter;
/// use std::time::Duration;
///
/// # pollster::block_on(async {
/// let visitors = Limiter::local().approximate_counters("visitors", Duration::from_secs(3_600))?;
/// visitors.add_many("page", (0..10_000).map(|user| format!("user:{user}"))).await?;
/// let about = visitors.get("page").await?;
/// assert!((9_700..10_300).contains(&about), "{about}");
/// # Ok::<(), shardlimit::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct ApproximateCounters(Arc<Inner>, Patience);

struct Inner {
    name: Box<str>,
    window: Micros,
    on: On,
}

enum On {
    Local(Table<Parts>),
    #[cfg(feature = "redis")]
    Shared(SharedParts),
}

/// The parts of a window, on the embedded store.
#[derive(Default)]
struct Parts {
    sketches: Vec<(u64, Sketch)>,
    ends: Micros,
}

/// The parts that count at an instant: from when on, and which one is current.
pub(super) fn current(window: Micros, now: Micros) -> (u64, u64) {
    let step = window.div_ceil(PARTS);
    let last = now / step;
    // A part counts until its last microsecond is a window old.
    (now.saturating_sub(window) / step, last)
}

impl Parts {
    fn add(&mut self, window: Micros, now: Micros, values: &[Box<[u8]>]) {
        let (first, last) = current(window, now);
        self.sketches.retain(|(number, _)| (first..=last).contains(number));
        if !self.sketches.iter().any(|(number, _)| *number == last) {
            self.sketches.push((last, Sketch::default()));
        }
        let (_, sketch) = self.sketches.last_mut().expect("just made");
        for value in values {
            sketch.add(value);
        }
        self.ends = now + window + window.div_ceil(PARTS);
    }

    fn estimate(&self, window: Micros, now: Micros) -> u64 {
        let (first, last) = current(window, now);
        let mut all = Sketch::default();
        self.sketches.iter().filter(|(number, _)| (first..=last).contains(number)).for_each(|part| all.join(&part.1));
        all.estimate()
    }
}

impl Ends for Parts {
    fn ends(&self) -> Micros {
        self.ends
    }
}

impl ApproximateCounters {
    pub(crate) fn make(known: &Registry, place: Place<'_>, name: &str, window: Duration) -> Result<Self, Error> {
        check_time("window", window, Duration::from_millis(1)..=LONGEST)?;
        let window = window.as_micros() as Micros;
        known.approximate(
            name,
            |known: &Self| known.0.window == window,
            || {
                let on = match place {
                    Place::Local { clock, max_keys } => {
                        On::Local(Table::new(clock.clone(), max_keys.div_ceil(KEYS_FEWER)))
                    }
                    #[cfg(feature = "redis")]
                    Place::Shared(on) => On::Shared(SharedParts::new(&on, name, window)),
                };
                Self(Arc::new(Inner { name: name.into(), window, on }), Patience::default())
            },
        )
    }

    /// The name that they were made under.
    ///
    /// ```
    /// # use shardlimit::Limiter; use std::time::Duration;
    /// let visitors = Limiter::local().approximate_counters("visitors", Duration::from_secs(60))?;
    /// assert_eq!(visitors.name(), "visitors");
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The same counters, with a deadline of its own for each call through this clone, instead of the
    /// [limiter's](crate::Builder::deadline): from a microsecond to an hour. Whoever asks for much at once needs more time. The embedded store needs none.
    ///
    /// ```
    /// # use shardlimit::{Limiter}; use std::time::Duration;
    /// # pollster::block_on(async {
    /// # let counters = Limiter::local().approximate_counters("visitors", Duration::from_secs(60))?;
    /// let patient = counters.deadline(Duration::from_secs(1));
    /// assert_eq!(patient.get("page").await?, 0);
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
    /// # use shardlimit::{Limiter}; use std::time::Duration;
    /// let counters = Limiter::local().approximate_counters("visitors", Duration::from_secs(60))?;
    /// assert_eq!(counters.unanswered().late, 0);
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    #[must_use]
    pub fn unanswered(&self) -> Unanswered {
        match &self.0.on {
            On::Local(..) => Unanswered::default(),
            #[cfg(feature = "redis")]
            On::Shared(parts) => parts.shards.calls.missed.read(),
        }
    }

    /// A value is seen now: 1 to 512 bytes.
    ///
    /// # Errors
    /// As [`add_many`](Self::add_many).
    ///
    /// # Cancel safety
    /// From its first poll on it may be counted, whether it is dropped or not.
    ///
    /// ```
    /// # use shardlimit::Limiter; use std::time::Duration;
    /// # pollster::block_on(async {
    /// # let visitors = Limiter::local().approximate_counters("visitors", Duration::from_secs(60))?;
    /// visitors.add("page", "alice").await?;
    /// assert_eq!(visitors.get("page").await?, 1);
    /// # Ok::<(), shardlimit::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn add(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), Error> {
        self.add_many(key, [value]).await
    }

    /// Many values are seen now.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidKey`](crate::ErrorKind::InvalidKey); [`ErrorKind::InvalidAmount`](crate::ErrorKind::InvalidAmount) for a
    /// value that is empty or longer than 512 bytes: then nothing was counted.
    /// [`ErrorKind::Refused`](crate::ErrorKind::Refused) if the embedded store has no room for another key, a hundredth of
    /// `max_keys`, or the store would not; [`ErrorKind::NotSent`](crate::ErrorKind::NotSent) if nothing was counted by the limiter's
    /// `deadline`, or too many requests are under way; [`ErrorKind::Unknown`](crate::ErrorKind::Unknown) if some may be. Adding all
    /// of them again counts nothing twice.
    ///
    /// # Cancel safety
    /// From its first poll on they may be counted, whether it is dropped or not.
    ///
    /// ```
    /// # use shardlimit::Limiter; use std::time::Duration;
    /// # pollster::block_on(async {
    /// # let visitors = Limiter::local().approximate_counters("visitors", Duration::from_secs(60))?;
    /// visitors.add_many("page", ["alice", "bob", "alice"]).await?;
    /// assert_eq!(visitors.get("page").await?, 2);
    /// # Ok::<(), shardlimit::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn add_many<V: AsRef<[u8]>>(
        &self,
        key: impl AsRef<[u8]>,
        values: impl IntoIterator<Item = V>,
    ) -> Result<(), Error> {
        let key = check_key(key.as_ref())?;
        let values = checked(values)?;
        match &self.0.on {
            On::Local(table) => table.work(key, |parts, now| parts.add(self.0.window, now, &values)),
            #[cfg(feature = "redis")]
            On::Shared(parts) => parts.add(key, &values, self.1).await,
        }
    }

    /// About how many different values were seen within the window.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidKey`](crate::ErrorKind::InvalidKey), and as [`add_many`](Self::add_many) what the store says, or that it
    /// did not by the deadline.
    ///
    /// # Cancel safety
    /// It changes nothing.
    ///
    /// ```
    /// # use shardlimit::Limiter; use std::time::Duration;
    /// # pollster::block_on(async {
    /// # let visitors = Limiter::local().approximate_counters("visitors", Duration::from_secs(60))?;
    /// assert_eq!(visitors.get("page").await?, 0);
    /// # Ok::<(), shardlimit::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn get(&self, key: impl AsRef<[u8]>) -> Result<u64, Error> {
        let key = check_key(key.as_ref())?;
        match &self.0.on {
            On::Local(table) => Ok(table.look(key, |parts, now| parts.estimate(self.0.window, now)).unwrap_or(0)),
            #[cfg(feature = "redis")]
            On::Shared(parts) => Ok(parts.read(key, Mode::Look, self.1).await?.estimate()),
        }
    }

    /// Forgets all values of a key.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidKey`](crate::ErrorKind::InvalidKey), and as [`add_many`](Self::add_many) what the store says, or that it
    /// did not by the deadline. Then some parts may be cleared and
    /// others not.
    ///
    /// # Cancel safety
    /// From its first poll on it may be done, whether it is dropped or not.
    ///
    /// ```
    /// # use shardlimit::Limiter; use std::time::Duration;
    /// # pollster::block_on(async {
    /// # let visitors = Limiter::local().approximate_counters("visitors", Duration::from_secs(60))?;
    /// visitors.add("page", "alice").await?;
    /// visitors.clear("page").await?;
    /// assert_eq!(visitors.get("page").await?, 0);
    /// # Ok::<(), shardlimit::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn clear(&self, key: impl AsRef<[u8]>) -> Result<(), Error> {
        let key = check_key(key.as_ref())?;
        match &self.0.on {
            On::Local(table) => table.forget(key),
            #[cfg(feature = "redis")]
            On::Shared(parts) => drop(parts.read(key, Mode::Clear, self.1).await?),
        }
        Ok(())
    }
}

impl fmt::Debug for ApproximateCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApproximateCounters({:?}, {} µs)", self.0.name, self.0.window)
    }
}
