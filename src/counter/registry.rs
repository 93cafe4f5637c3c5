//! What a limiter has made under which name.

use std::collections::HashMap;

use crate::error::{Error, ErrorKind};
use crate::key::check_name;
#[cfg(feature = "redis")]
use crate::sync::{Arc, atomic::AtomicUsize};
use crate::sync::{Mutex, lock};

use super::{ApproximateCounters, CounterSettings, Counters, DistinctCounters, SlidingCounters};

type Names<T> = Mutex<HashMap<Box<str>, T>>;

/// The counters of one limiter. Each kind has names of its own.
#[derive(Default)]
pub(crate) struct Registry {
    counters: Names<Counters>,
    sliding: Names<SlidingCounters>,
    distinct: Names<DistinctCounters>,
    approximate: Names<ApproximateCounters>,
    /// Requests of all of them that are under way.
    #[cfg(feature = "redis")]
    pub(crate) under_way: Arc<AtomicUsize>,
}

impl Registry {
    /// The counters of this name, made if there are none.
    pub(super) fn counters(
        &self,
        name: &str,
        settings: &CounterSettings,
        make: impl FnOnce() -> Counters,
    ) -> Result<Counters, Error> {
        get(&self.counters, name, |known| known.settings() == settings, make)
    }

    pub(super) fn sliding(
        &self,
        name: &str,
        is_same: impl FnOnce(&SlidingCounters) -> bool,
        make: impl FnOnce() -> SlidingCounters,
    ) -> Result<SlidingCounters, Error> {
        get(&self.sliding, name, is_same, make)
    }

    pub(super) fn distinct(
        &self,
        name: &str,
        is_same: impl FnOnce(&DistinctCounters) -> bool,
        make: impl FnOnce() -> DistinctCounters,
    ) -> Result<DistinctCounters, Error> {
        get(&self.distinct, name, is_same, make)
    }

    pub(super) fn approximate(
        &self,
        name: &str,
        is_same: impl FnOnce(&ApproximateCounters) -> bool,
        make: impl FnOnce() -> ApproximateCounters,
    ) -> Result<ApproximateCounters, Error> {
        get(&self.approximate, name, is_same, make)
    }

    /// Until nothing is undelivered.
    ///
    /// # Cancel safety
    /// It changes nothing.
    #[cfg(feature = "redis")]
    pub(crate) fn empty(&self) -> impl Future<Output = ()> + Send + use<> {
        let all: Vec<_> = lock(&self.counters).values().filter_map(Counters::empty).collect();
        async move {
            for empty in all {
                empty.await;
            }
        }
    }
}

/// A name stands for one thing: the same again is the one that is there.
fn get<T: Clone>(
    known: &Names<T>,
    name: &str,
    is_same: impl FnOnce(&T) -> bool,
    make: impl FnOnce() -> T,
) -> Result<T, Error> {
    check_name("name", name)?;
    let mut known = lock(known);
    match known.get(name) {
        Some(found) if is_same(found) => Ok(found.clone()),
        Some(_) => {
            let message = format!("{name:?} already counts with other settings; give these another name");
            Err(Error::new(ErrorKind::NameTaken, "name", message))
        }
        None => Ok(known.entry(name.into()).or_insert_with(make).clone()),
    }
}
