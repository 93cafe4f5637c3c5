//! Sliding counters, as users see them.

use std::fmt;
use std::time::Duration;

use super::kernel::LARGEST;
use super::patience::Patience;
use super::settings::{LONGEST, check_time};
use super::table::Table;
use super::windows::{MOST_WINDOWS, Windows};
use super::{Place, Registry, Unanswered};
use crate::clock::Micros;
use crate::error::{Error, ErrorKind};
use crate::key::check_key;
use crate::sync::Arc;
#[cfg(feature = "redis")]
use crate::{
    counter::asking::Aim,
    counter::counters::one,
    counter::shards::Shards,
    wire::{Mode, Script, WindowsReply, WindowsRun},
};

/// How many events a key had lately, in one window or in several. [`Limiter::sliding_counters`](crate::Limiter::sliding_counters)
/// makes them; clones are cheap and share everything.
///
/// A window is counted in 64 parts. An event counts for the whole window, and for up to 1/64 of it longer; none is missed.
///
/// ```
/// use shardlimit::Limiter;
/// use std::time::Duration;
///
/// # pollster::block_on(async {
/// let windows = [Duration::from_secs(60), Duration::from_secs(3_600)];
/// let logins = Limiter::local().sliding_counters("logins", windows)?;
/// logins.add("alice", 3).await?;
/// assert_eq!(logins.get("alice").await?, [3, 3]);
/// # Ok::<(), shardlimit::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct SlidingCounters(Arc<Inner>, Patience);

struct Inner {
    name: Box<str>,
    windows: Vec<Micros>,
    on: On,
}

enum On {
    Local(Table<Windows>),
    #[cfg(feature = "redis")]
    Shared(Shards),
}

impl SlidingCounters {
    pub(crate) fn make(
        known: &Registry,
        place: Place<'_>,
        name: &str,
        windows: impl IntoIterator<Item = Duration>,
    ) -> Result<Self, Error> {
        let windows: Vec<Duration> = windows.into_iter().collect();
        if !(1..=MOST_WINDOWS).contains(&windows.len()) {
            let message = format!("must be 1 to {MOST_WINDOWS}, got {}", windows.len());
            return Err(Error::new(ErrorKind::InvalidSetting, "windows", message));
        }
        for window in &windows {
            check_time("windows", *window, Duration::from_millis(1)..=LONGEST)?;
        }
        let windows: Vec<Micros> = windows.iter().map(|window| window.as_micros() as Micros).collect();
        let is_same = |known: &Self| known.0.windows == windows;
        known.sliding(name, is_same, || {
            let on = match place {
                Place::Local { clock, max_keys } => On::Local(Table::new(clock.clone(), max_keys)),
                #[cfg(feature = "redis")]
                Place::Shared(on) => On::Shared(Shards::new(&on, "sliding", name, 1)),
            };
            Self(Arc::new(Inner { name: name.into(), windows: windows.clone(), on }), Patience::default())
        })
    }

    /// The name that they were made under.
    ///
    /// ```
    /// # use shardlimit::Limiter; use std::time::Duration;
    /// let logins = Limiter::local().sliding_counters("logins", [Duration::from_secs(60)])?;
    /// assert_eq!(logins.name(), "logins");
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
    /// # let counters = Limiter::local().sliding_counters("logins", [Duration::from_secs(60)])?;
    /// let patient = counters.deadline(Duration::from_secs(1));
    /// assert_eq!(patient.get("alice").await?, [0]);
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
    /// let counters = Limiter::local().sliding_counters("logins", [Duration::from_secs(60)])?;
    /// assert_eq!(counters.unanswered().late, 0);
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    #[must_use]
    pub fn unanswered(&self) -> Unanswered {
        match &self.0.on {
            On::Local(..) => Unanswered::default(),
            #[cfg(feature = "redis")]
            On::Shared(shards) => shards.calls.missed.read(),
        }
    }

    /// Counts events that happen now, and says how many there were in each window, these included, in the order of the windows.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidKey`]; [`ErrorKind::InvalidAmount`] for no events or more than 2⁵³ − 1; [`ErrorKind::Refused`] if a window
    /// would have more than that, or the embedded store is full of keys that still count, or the store would not;
    /// [`ErrorKind::NotSent`] if it surely was not counted by the limiter's `deadline`, or too many requests are under way;
    /// [`ErrorKind::Unknown`] if nobody can tell. An event is of its moment: what failed is not sent again.
    ///
    /// # Cancel safety
    /// From its first poll on it may be counted, whether it is dropped or not.
    ///
    /// ```
    /// # use shardlimit::Limiter; use std::time::Duration;
    /// # pollster::block_on(async {
    /// # let logins = Limiter::local().sliding_counters("logins", [Duration::from_secs(60)])?;
    /// assert_eq!(logins.add("alice", 1).await?, [1]);
    /// assert_eq!(logins.add("alice", 1).await?, [2]);
    /// # Ok::<(), shardlimit::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn add(&self, key: impl AsRef<[u8]>, events: u64) -> Result<Vec<u64>, Error> {
        if !(1..=LARGEST as u64).contains(&events) {
            let message = format!("must be from 1 to {LARGEST}, got {events}");
            return Err(Error::new(ErrorKind::InvalidAmount, "events", message));
        }
        let key = check_key(key.as_ref())?;
        let counts = match &self.0.on {
            On::Local(table) => table.work(key, |state, now| state.add(&self.0.windows, now, events))?,
            #[cfg(feature = "redis")]
            On::Shared(shards) => self.run(shards, key, Mode::Add, events).await?,
        };
        counts.ok_or_else(|| {
            let message = format!("a window would have more than {LARGEST} events; nothing was counted");
            Error::new(ErrorKind::Refused, "events", message)
        })
    }

    /// How many events there were in each window, without counting one.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidKey`], and as [`add`](Self::add) what the store says, or that it did not by the deadline.
    ///
    /// # Cancel safety
    /// It changes nothing.
    ///
    /// ```
    /// # use shardlimit::Limiter; use std::time::Duration;
    /// # pollster::block_on(async {
    /// # let logins = Limiter::local().sliding_counters("logins", [Duration::from_secs(60)])?;
    /// assert_eq!(logins.get("alice").await?, [0]);
    /// # Ok::<(), shardlimit::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn get(&self, key: impl AsRef<[u8]>) -> Result<Vec<u64>, Error> {
        let key = check_key(key.as_ref())?;
        let counts = match &self.0.on {
            On::Local(table) => table.look(key, |state, now| state.add(&self.0.windows, now, 0)).flatten(),
            #[cfg(feature = "redis")]
            On::Shared(shards) => self.run(shards, key, Mode::Look, 0).await?,
        };
        Ok(counts.unwrap_or_else(|| vec![0; self.0.windows.len()]))
    }

    /// Forgets all events of a key.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidKey`], and as [`add`](Self::add) what the store says, or that it did not by the deadline.
    ///
    /// # Cancel safety
    /// From its first poll on it may be done, whether it is dropped or not.
    ///
    /// ```
    /// # use shardlimit::Limiter; use std::time::Duration;
    /// # pollster::block_on(async {
    /// # let logins = Limiter::local().sliding_counters("logins", [Duration::from_secs(60)])?;
    /// logins.add("alice", 1).await?;
    /// logins.clear("alice").await?;
    /// assert_eq!(logins.get("alice").await?, [0]);
    /// # Ok::<(), shardlimit::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn clear(&self, key: impl AsRef<[u8]>) -> Result<(), Error> {
        let key = check_key(key.as_ref())?;
        match &self.0.on {
            On::Local(table) => table.forget(key),
            #[cfg(feature = "redis")]
            On::Shared(shards) => drop(self.run(shards, key, Mode::Clear, 0).await?),
        }
        Ok(())
    }

    #[cfg(feature = "redis")]
    async fn run(&self, shards: &Shards, key: &[u8], mode: Mode, events: u64) -> Result<Option<Vec<u64>>, Error> {
        let (engine, windows) = (Arc::clone(&shards.engine), self.0.windows.clone());
        let ask = shards.shard(key, 0).ask(|shard, sent| async move {
            let run = WindowsRun { mode, events, windows: &windows };
            let parse = |value| WindowsReply::parse(value, windows.len());
            shard.run(&engine, Script::SlidingCounter, |cmd| run.write(cmd), &sent.now, parse).await
        });
        let aim = if mode == Mode::Look { Aim::Look } else { Aim::Change };
        shards.ask_key(aim, shards.calls.due(self.1), vec![ask]).await.map(|replies| one(replies).counts)
    }
}

impl fmt::Debug for SlidingCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SlidingCounters({:?}, {:?} µs)", self.0.name, self.0.windows)
    }
}
