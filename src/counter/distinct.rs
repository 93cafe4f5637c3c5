//! Distinct values in a sliding window, exactly.

use std::fmt;
use std::time::Duration;

use super::patience::Patience;
use super::seen::{MOST_VALUES, Seen};
use super::settings::{LONGEST, check_shards, check_time};
use super::table::Table;
use super::{Place, Registry, Unanswered};
use crate::clock::Micros;
use crate::error::{Error, ErrorKind};
use crate::key::check_key;
use crate::sync::Arc;
#[cfg(feature = "redis")]
use crate::{
    counter::asking::Aim,
    counter::shards::Shards,
    counter::sketch::hash,
    wire::{DistinctReply, DistinctRun, Mode, Script},
};

const LONGEST_VALUE: usize = 512;
/// Values in one script run.
#[cfg(feature = "redis")]
pub(super) const MOST_AT_ONCE: usize = 1_024;

/// How many different values a key had lately, exactly. [`Limiter::distinct_counters`](crate::Limiter::distinct_counters) makes
/// them; clones are cheap and share everything.
///
/// A value counts from the moment it was last seen on, for the window. The values themselves are stored, not a hash of them, so no two
/// are ever taken for one. Adding a value again counts nothing twice: what failed may simply be tried again, and is.
///
/// ```
/// use shardlimit::Limiter;
/// use std::time::Duration;
///
/// # pollster::block_on(async {
/// let visitors = Limiter::local().distinct_counters("visitors", Duration::from_secs(3_600), 1)?;
/// assert!(visitors.add("page", "alice").await?);
/// assert!(!visitors.add("page", "alice").await?);
/// assert_eq!(visitors.get("page").await?, 1);
/// # Ok::<(), shardlimit::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct DistinctCounters(Arc<Inner>, Patience);

struct Inner {
    name: Box<str>,
    window: Micros,
    shards: u16,
    on: On,
}

enum On {
    Local(Table<Seen>),
    #[cfg(feature = "redis")]
    Shared(Shards),
}

/// What one shard is asked: which one, and with which values.
#[cfg(feature = "redis")]
type Run = (u16, Mode, Vec<Box<[u8]>>);

impl DistinctCounters {
    pub(crate) fn make(
        known: &Registry,
        place: Place<'_>,
        name: &str,
        window: Duration,
        shards: u16,
    ) -> Result<Self, Error> {
        check_time("window", window, Duration::from_millis(1)..=LONGEST)?;
        check_shards(shards)?;
        let window = window.as_micros() as Micros;
        let is_same = |known: &Self| known.0.window == window && known.0.shards == shards;
        known.distinct(name, is_same, || {
            let on = match place {
                Place::Local { clock, max_keys } => On::Local(Table::new(clock.clone(), max_keys)),
                #[cfg(feature = "redis")]
                Place::Shared(on) => On::Shared(Shards::new(&on, "distinct", name, shards)),
            };
            Self(Arc::new(Inner { name: name.into(), window, shards, on }), Patience::default())
        })
    }

    /// The name that they were made under.
    ///
    /// ```
    /// # use shardlimit::Limiter; use std::time::Duration;
    /// let visitors = Limiter::local().distinct_counters("visitors", Duration::from_secs(60), 1)?;
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
    /// # let counters = Limiter::local().distinct_counters("visitors", Duration::from_secs(60), 1)?;
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
    /// let counters = Limiter::local().distinct_counters("visitors", Duration::from_secs(60), 1)?;
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

    /// A value is seen now: 1 to 512 bytes. Says whether it was not seen within the window before.
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
    /// # let visitors = Limiter::local().distinct_counters("visitors", Duration::from_secs(60), 1)?;
    /// assert!(visitors.add("page", "alice").await?);
    /// # Ok::<(), shardlimit::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn add(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool, Error> {
        Ok(self.add_many(key, [value]).await? == 1)
    }

    /// Many values are seen now. Says how many of them were not seen within the window before; one that is tried again after its
    /// answer was lost may count as seen.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidKey`]; [`ErrorKind::InvalidAmount`] for a value that is empty or longer than 512 bytes: then nothing was
    /// counted. [`ErrorKind::Refused`] if the embedded store has no room for another key, or a million values of this one, or the store
    /// would not; [`ErrorKind::NotSent`] if nothing was counted by the limiter's `deadline`, or too many requests are under way;
    /// [`ErrorKind::Unknown`] if some may be. Adding all of them again counts nothing twice.
    ///
    /// # Cancel safety
    /// From its first poll on they may be counted, whether it is dropped or not.
    ///
    /// ```
    /// # use shardlimit::Limiter; use std::time::Duration;
    /// # pollster::block_on(async {
    /// # let visitors = Limiter::local().distinct_counters("visitors", Duration::from_secs(60), 1)?;
    /// assert_eq!(visitors.add_many("page", ["alice", "bob", "alice"]).await?, 2);
    /// # Ok::<(), shardlimit::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn add_many<V: AsRef<[u8]>>(
        &self,
        key: impl AsRef<[u8]>,
        values: impl IntoIterator<Item = V>,
    ) -> Result<u64, Error> {
        let key = check_key(key.as_ref())?;
        let values = checked(values)?;
        match &self.0.on {
            On::Local(table) => {
                let window = self.0.window;
                let fresh = table.work(key, |seen, now| {
                    values.iter().try_fold(0, |fresh, value| Some(fresh + u64::from(seen.add(window, now, value)?)))
                })?;
                fresh.ok_or_else(|| {
                    let message = format!("it has {MOST_VALUES} values, as many as the embedded store holds of a key");
                    Error::new(ErrorKind::Refused, "key", message)
                })
            }
            #[cfg(feature = "redis")]
            On::Shared(shards) => {
                let mut parts = vec![Vec::new(); shards.count.into()];
                for value in values {
                    parts[(hash(&value) % u64::from(shards.count)) as usize].push(value);
                }
                let of_part = |(index, values): (usize, Vec<Box<[u8]>>)| {
                    let batches = values.chunks(MOST_AT_ONCE).map(|batch| (index as u16, Mode::Add, batch.to_vec()));
                    batches.collect::<Vec<_>>()
                };
                let runs: Vec<_> = parts.into_iter().enumerate().flat_map(of_part).collect();
                let replies = self.run(shards, key, Aim::Change, runs).await?;
                Ok(replies.iter().map(|reply| reply.fresh).sum())
            }
        }
    }

    /// How many different values were seen within the window, exactly. All shards are asked at once.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidKey`], and as [`add_many`](Self::add_many) what the store says, or that it did not by the deadline.
    ///
    /// # Cancel safety
    /// It changes nothing.
    ///
    /// ```
    /// # use shardlimit::Limiter; use std::time::Duration;
    /// # pollster::block_on(async {
    /// # let visitors = Limiter::local().distinct_counters("visitors", Duration::from_secs(60), 1)?;
    /// assert_eq!(visitors.get("page").await?, 0);
    /// # Ok::<(), shardlimit::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn get(&self, key: impl AsRef<[u8]>) -> Result<u64, Error> {
        let key = check_key(key.as_ref())?;
        match &self.0.on {
            On::Local(table) => Ok(table.look(key, |seen, now| seen.count(self.0.window, now)).unwrap_or(0)),
            #[cfg(feature = "redis")]
            On::Shared(shards) => {
                let replies = self.run(shards, key, Aim::Look, self.everywhere(Mode::Look)).await?;
                Ok(replies.iter().map(|reply| reply.count).sum())
            }
        }
    }

    /// Forgets all values of a key.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidKey`], and as [`add_many`](Self::add_many) what the store says, or that it did not by the deadline. Then some shards may be cleared and others not.
    ///
    /// # Cancel safety
    /// From its first poll on it may be done, whether it is dropped or not.
    ///
    /// ```
    /// # use shardlimit::Limiter; use std::time::Duration;
    /// # pollster::block_on(async {
    /// # let visitors = Limiter::local().distinct_counters("visitors", Duration::from_secs(60), 1)?;
    /// visitors.add("page", "alice").await?;
    /// visitors.clear("page").await?;
    /// assert_eq!(visitors.get("page").await?, 0);
    /// # Ok::<(), shardlimit::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn clear(&self, key: impl AsRef<[u8]>) -> Result<(), Error> {
        let key = check_key(key.as_ref())?;
        match &self.0.on {
            On::Local(table) => {
                table.forget(key);
                Ok(())
            }
            #[cfg(feature = "redis")]
            On::Shared(shards) => self.run(shards, key, Aim::Change, self.everywhere(Mode::Clear)).await.map(drop),
        }
    }

    #[cfg(feature = "redis")]
    fn everywhere(&self, mode: Mode) -> Vec<Run> {
        (0..self.0.shards).map(|index| (index, mode, Vec::new())).collect()
    }

    #[cfg(feature = "redis")]
    async fn run(&self, shards: &Shards, key: &[u8], aim: Aim, runs: Vec<Run>) -> Result<Vec<DistinctReply>, Error> {
        let (window, due) = (self.0.window, shards.calls.due(self.1));
        let asks = runs.into_iter().map(|(index, mode, values)| {
            let engine = Arc::clone(&shards.engine);
            shards.shard(key, index).ask(|shard, sent| async move {
                let (run, script) = (DistinctRun { mode, window, values: &values }, Script::Distinct);
                shard.run_again(&engine, script, |cmd| run.write(cmd), (&sent, due), DistinctReply::parse).await
            })
        });
        shards.ask_key(aim, due, asks.collect()).await
    }
}

/// Values, each of which may be one.
pub(super) fn checked<V: AsRef<[u8]>>(values: impl IntoIterator<Item = V>) -> Result<Vec<Box<[u8]>>, Error> {
    let check = |value: V| match value.as_ref() {
        value if (1..=LONGEST_VALUE).contains(&value.len()) => Ok(value.into()),
        value => {
            let message = format!("must be 1 to {LONGEST_VALUE} bytes long, got {}", value.len());
            Err(Error::new(ErrorKind::InvalidAmount, "value", message))
        }
    };
    values.into_iter().map(check).collect()
}

impl fmt::Debug for DistinctCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DistinctCounters({:?}, {} µs, {} shards)", self.0.name, self.0.window, self.0.shards)
    }
}
