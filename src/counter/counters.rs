//! Counters, as users see them.

mod delivered;

use std::fmt;

#[cfg(feature = "redis")]
use super::delivery::Delivery;
use super::kernel::{Add, Count, LARGEST, Terms, Verdict};
use super::patience::Patience;
use super::table::{Ends, Table};
use super::{Added, CounterSettings, Place, Registry, Within};
#[cfg(feature = "redis")]
use super::{asking::Aim, shards, shards::Shard, work::Answer};
use crate::clock::Micros;
use crate::error::{Error, ErrorKind};
use crate::key::check_key;
use crate::sync::Arc;
#[cfg(feature = "redis")]
use crate::wire::{CountReply, CountRun, Script};

/// Totals by key, that end by themselves. [`Limiter::counters`](crate::Limiter::counters) makes them; clones are cheap and share
/// everything.
///
/// Every counter has a time to live from its first add on, whatever happens. On a shared store each add is counted exactly
/// once: what could not be delivered is kept and sent again, and what can't be told any more is reported, never counted twice.
///
/// ```
/// use shardlimit::{Limiter, counter::CounterSettings};
/// use std::time::Duration;
///
/// # pollster::block_on(async {
/// let clicks = Limiter::local().counters("clicks", CounterSettings::new(Duration::from_secs(86_400)))?;
/// clicks.add("item:42", 3).await?;
/// clicks.add("item:42", 2).await?;
/// assert_eq!(clicks.get("item:42").await?, 5);
/// # Ok::<(), shardlimit::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct Counters(Arc<Inner>, Patience);

struct Inner {
    name: Box<str>,
    settings: CounterSettings,
    on: On,
}

enum On {
    Local(Table<Count>, Terms),
    #[cfg(feature = "redis")]
    Shared(Arc<Delivery>),
}

impl Ends for Count {
    fn ends(&self) -> Micros {
        self.ends
    }
}

impl Counters {
    /// The counters of this name; made if there are none.
    pub(crate) fn make(
        known: &Registry,
        place: Place<'_>,
        name: &str,
        settings: CounterSettings,
    ) -> Result<Self, Error> {
        let settings = settings.check()?;
        known.counters(name, &settings, || {
            let on = match place {
                Place::Local { clock, max_keys } => On::Local(Table::new(clock.clone(), max_keys), settings.terms()),
                #[cfg(feature = "redis")]
                Place::Shared(on) => {
                    let shards = shards::Shards::new(&on, "count", name, settings.shards);
                    let plain = settings.terms();
                    let terms = Terms { shards: settings.shards, hot: on.hot.min(plain.hot), ..plain };
                    On::Shared(Arc::new(Delivery::new(shards, name, terms, settings.queue)))
                }
            };
            Self(Arc::new(Inner { name: name.into(), settings: settings.clone(), on }), Patience::default())
        })
    }

    /// The name that they were made under.
    ///
    /// ```
    /// # use shardlimit::{Limiter, counter::CounterSettings}; use std::time::Duration;
    /// let clicks = Limiter::local().counters("clicks", CounterSettings::new(Duration::from_secs(86_400)))?;
    /// assert_eq!(clicks.name(), "clicks");
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// How they count.
    pub(super) fn settings(&self) -> &CounterSettings {
        &self.0.settings
    }

    /// Adds an amount to a key's counter, which begins at zero; it may be negative. Waits for the answer up to the limiter's
    /// `deadline`; after that the add is [queued](Added::Queued), and delivered in the background.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidKey`]; [`ErrorKind::InvalidAmount`] beyond ±(2⁵³ − 1); [`ErrorKind::Refused`] if the total would leave
    /// that range, or the embedded store is full of keys that still count; [`ErrorKind::NotSent`] if the queue is full: nothing was
    /// counted then. [`ErrorKind::Unknown`] if the limiter ended meanwhile.
    ///
    /// # Cancel safety
    /// From its first poll on it is counted or delivered later, whether it is dropped or not.
    ///
    /// ```
    /// # use shardlimit::{Limiter, counter::{Added, CounterSettings}}; use std::time::Duration;
    /// # pollster::block_on(async {
    /// # let clicks = Limiter::local().counters("clicks", CounterSettings::new(Duration::from_secs(86_400)))?;
    /// assert_eq!(clicks.add("item:42", 7).await?, Added::Counted { total: Some(7) });
    /// # Ok::<(), shardlimit::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn add(&self, key: impl AsRef<[u8]>, amount: i64) -> Result<Added, Error> {
        one(self.add_many([(key, amount)]).await)
    }

    /// Adds to many counters at once. Each has an answer of its own, in order. What goes to one master goes over one connection,
    /// without waiting in between: one round trip for all of them.
    ///
    /// # Cancel safety
    /// As [`add`](Self::add).
    ///
    /// ```
    /// # use shardlimit::{Limiter, counter::{Added, CounterSettings}}; use std::time::Duration;
    /// # pollster::block_on(async {
    /// # let clicks = Limiter::local().counters("clicks", CounterSettings::new(Duration::from_secs(86_400)))?;
    /// let added = clicks.add_many([("item:42", 7), ("", 1), ("item:43", 1)]).await;
    /// assert_eq!(added[0], Ok(Added::Counted { total: Some(7) }));
    /// assert!(added[1].is_err(), "no key is empty");
    /// assert_eq!(added[2], Ok(Added::Counted { total: Some(1) }));
    /// # Ok::<(), shardlimit::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn add_many<K: AsRef<[u8]>>(
        &self,
        adds: impl IntoIterator<Item = (K, i64)>,
    ) -> Vec<Result<Added, Error>> {
        let begun: Vec<_> = adds.into_iter().map(|(key, amount)| self.begin(key.as_ref(), amount, None)).collect();
        let mut added = Vec::with_capacity(begun.len());
        for begun in begun {
            added.push(self.added(begun).await);
        }
        added
    }

    /// Adds only if the total stays at or below the bound then. It is decided in one step: calls at the same time never pass it
    /// together. It is never queued: whoever asks whether there is room wants to know now.
    ///
    /// # Errors
    /// As [`add`](Self::add); [`ErrorKind::InvalidSetting`] for counters of several shards: a bound needs one number.
    /// [`ErrorKind::NotSent`] and [`ErrorKind::Refused`] if the store surely did not count it, also because too many wait already;
    /// [`ErrorKind::Unknown`] if nobody can tell by the limiter's `deadline`.
    ///
    /// # Cancel safety
    /// From its first poll on it may be counted, whether it is dropped or not.
    ///
    /// ```
    /// # use shardlimit::{Limiter, counter::{CounterSettings, Within}}; use std::time::Duration;
    /// # pollster::block_on(async {
    /// # let seats = Limiter::local().counters("seats", CounterSettings::new(Duration::from_secs(86_400)))?;
    /// assert_eq!(seats.add_within("hall", 100, 100).await?, Within::Counted { total: 100 });
    /// assert_eq!(seats.add_within("hall", 1, 100).await?, Within::Above { total: 100 });
    /// # Ok::<(), shardlimit::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn add_within(&self, key: impl AsRef<[u8]>, amount: i64, bound: i64) -> Result<Within, Error> {
        check_amount("bound", bound)?;
        if self.0.settings.shards > 1 {
            let message = "a bound needs one number: these counters must have 1 shard";
            return Err(Error::new(ErrorKind::InvalidSetting, "shards", message));
        }
        match self.begin(key.as_ref(), amount, Some(bound))? {
            Begun::Here(Verdict::Above, total) => Ok(Within::Above { total }),
            Begun::Here(_, total) => Ok(Within::Counted { total }),
            #[cfg(feature = "redis")]
            Begun::There(told) => match told.await.unwrap_or_else(|_| Err(shards::ended()))? {
                Answer::Above { total } => Ok(Within::Above { total }),
                Answer::Counted { total } => Ok(Within::Counted { total }),
                Answer::Queued => unreachable!("one with a bound is never queued"),
            },
        }
    }

    /// The total of a key: zero if nothing was added, or it has ended. All shards are asked at once.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidKey`]; [`ErrorKind::Refused`] by the store; [`ErrorKind::NotSent`] and [`ErrorKind::Unknown`] if it did not
    /// answer by the limiter's `deadline`, or too many requests are under way: a part of a total is no answer.
    ///
    /// # Cancel safety
    /// It changes nothing.
    ///
    /// ```
    /// # use shardlimit::{Limiter, counter::CounterSettings}; use std::time::Duration;
    /// # pollster::block_on(async {
    /// # let clicks = Limiter::local().counters("clicks", CounterSettings::new(Duration::from_secs(86_400)))?;
    /// assert_eq!(clicks.get("item:42").await?, 0);
    /// # Ok::<(), shardlimit::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn get(&self, key: impl AsRef<[u8]>) -> Result<i64, Error> {
        one(self.get_many([key]).await)
    }

    /// The totals of many keys at once, each with an answer of its own, in order. Of thousands, take a longer
    /// [`deadline`](Self::deadline).
    ///
    /// # Cancel safety
    /// It changes nothing.
    ///
    /// ```
    /// # use shardlimit::{Limiter, counter::CounterSettings}; use std::time::Duration;
    /// # pollster::block_on(async {
    /// # let clicks = Limiter::local().counters("clicks", CounterSettings::new(Duration::from_secs(86_400)))?;
    /// clicks.add("item:42", 5).await?;
    /// assert_eq!(clicks.get_many(["item:41", "item:42"]).await, [Ok(0), Ok(5)]);
    /// # Ok::<(), shardlimit::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn get_many<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> Vec<Result<i64, Error>> {
        let keys: Vec<K> = keys.into_iter().collect();
        match &self.0.on {
            On::Local(table, terms) => {
                let look = |key: &K| {
                    let key = check_key(key.as_ref())?;
                    Ok(table.look(key, |count, now| count.look(terms, now, true)).unwrap_or(0))
                };
                keys.iter().map(look).collect()
            }
            #[cfg(feature = "redis")]
            On::Shared(delivery) => self.ask_all(delivery, &keys, CountRun::Look).await,
        }
    }

    /// Begins a key's counter anew at zero, on all its shards. Adds that are still undelivered count after it.
    ///
    /// # Errors
    /// As [`get`](Self::get). With [`ErrorKind::Unknown`], and [`ErrorKind::Refused`] by a store of several masters, some shards may be
    /// reset and others not.
    ///
    /// # Cancel safety
    /// From its first poll on it may be done, whether it is dropped or not.
    ///
    /// ```
    /// # use shardlimit::{Limiter, counter::CounterSettings}; use std::time::Duration;
    /// # pollster::block_on(async {
    /// # let clicks = Limiter::local().counters("clicks", CounterSettings::new(Duration::from_secs(86_400)))?;
    /// clicks.add("item:42", 5).await?;
    /// clicks.reset("item:42").await?;
    /// assert_eq!(clicks.get("item:42").await?, 0);
    /// # Ok::<(), shardlimit::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn reset(&self, key: impl AsRef<[u8]>) -> Result<(), Error> {
        match &self.0.on {
            On::Local(table, _) => {
                table.forget(check_key(key.as_ref())?);
                Ok(())
            }
            #[cfg(feature = "redis")]
            On::Shared(delivery) => one(self.ask_all(delivery, &[key], CountRun::Reset).await).map(drop),
        }
    }

    fn begin(&self, key: &[u8], amount: i64, bound: Option<i64>) -> Result<Begun, Error> {
        let key = check_key(key)?;
        check_amount("amount", amount)?;
        match &self.0.on {
            On::Local(table, terms) => {
                let add = Add { amount, bound, once: None, generation: None };
                match table.work(key, |count, now| count.add(terms, now, &add))? {
                    (Verdict::Overflow, total) => Err(overflow(total)),
                    (verdict, total) => Ok(Begun::Here(verdict, total)),
                }
            }
            #[cfg(feature = "redis")]
            On::Shared(delivery) => delivery.put(key, amount, bound, self.1).map(Begun::There),
        }
    }

    async fn added(&self, begun: Result<Begun, Error>) -> Result<Added, Error> {
        let total = match begun? {
            Begun::Here(_, total) => Some(total),
            #[cfg(feature = "redis")]
            Begun::There(told) => match told.await.unwrap_or_else(|_| Err(shards::ended()))? {
                Answer::Queued => return Ok(Added::Queued),
                Answer::Counted { total } | Answer::Above { total } => (self.0.settings.shards == 1).then_some(total),
            },
        };
        Ok(Added::Counted { total })
    }

    /// The sum over the shards of each key.
    #[cfg(feature = "redis")]
    async fn ask_all<K: AsRef<[u8]>>(&self, delivery: &Delivery, keys: &[K], run: CountRun) -> Vec<Result<i64, Error>> {
        let (shards, terms) = (&delivery.shards, delivery.terms);
        let ask = |(index, shard): (usize, Shard)| {
            let engine = Arc::clone(&shards.engine);
            shard.ask(|shard, sent| async move {
                let write = |cmd: &mut redis::Cmd| run.write(&terms, index == 0, cmd);
                shard.run(&engine, Script::Counter, write, &sent.now, CountReply::parse).await
            })
        };
        let valid = keys.iter().filter_map(|key| check_key(key.as_ref()).ok());
        let asks = valid.map(|key| shards.all(key).enumerate().map(ask).collect());
        let aim = if matches!(run, CountRun::Look) { Aim::Look } else { Aim::Change };
        let mut answers = shards.ask(aim, shards.calls.due(self.1), asks).await.into_iter();
        let sum = |key: &K| {
            check_key(key.as_ref())?;
            let parts = answers.next().unwrap_or_else(|| Err(shards::ended()))?;
            Ok(total(&parts))
        };
        keys.iter().map(sum).collect()
    }
}

/// What all shards of a key have, the first one first.
#[cfg(feature = "redis")]
pub(super) fn total(shards: &[CountReply]) -> i64 {
    // What one has of a time that is over for the first one is over.
    let counts = shards.first().map(|first| first.generation.number);
    shards.iter().filter(|shard| Some(shard.generation.number) == counts).map(|shard| shard.total).sum()
}

/// An add that was taken.
enum Begun {
    Here(Verdict, i64),
    #[cfg(feature = "redis")]
    There(tokio::sync::oneshot::Receiver<Result<Answer, Error>>),
}

/// The answer to one ask.
pub(super) fn one<T>(answers: impl IntoIterator<Item = T>) -> T {
    answers.into_iter().next().expect("one ask, one answer")
}

pub(super) fn overflow(total: i64) -> Error {
    let message = format!("the total is {total} and must stay within ±{LARGEST}; nothing was counted");
    Error::new(ErrorKind::Refused, "amount", message)
}

fn check_amount(field: &'static str, amount: i64) -> Result<(), Error> {
    if amount.unsigned_abs() <= LARGEST as u64 {
        return Ok(());
    }
    Err(Error::new(ErrorKind::InvalidAmount, field, format!("must be within ±{LARGEST}, got {amount}")))
}

impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Counters({:?}, {:?})", self.0.name, self.0.settings)
    }
}
