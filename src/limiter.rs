//! The limiter: where limits get their names.

mod counting;
#[cfg(feature = "redis")]
mod ring;
mod several;
#[cfg(feature = "redis")]
mod shared;
#[cfg(all(test, feature = "redis"))]
mod tests;

#[cfg(feature = "redis")]
pub use ring::{Ring, RingNode};

use std::collections::HashMap;
use std::fmt;

use crate::builder::Builder;
use crate::clock::Clock;
use crate::counter::Registry;
use crate::error::{Error, ErrorKind};
use crate::flow::call::Definition;
use crate::flow::shadow::Shadow;
#[cfg(feature = "redis")]
use crate::flow::sharded::Shared;
use crate::key::check_name;
#[cfg(feature = "redis")]
use crate::leases::Leases;
use crate::limit::{Limit, Share};
use crate::named::NamedLimit;
use crate::store::local::LocalStore;
use crate::sync::{Arc, Mutex, lock};

/// A set of named limits over one store. Clones are cheap and share everything.
///
/// ```
/// use shardlimit::{Decision, Limiter};
///
/// # fn main() -> Result<(), shardlimit::Error> {
/// let limiter = Limiter::local();
/// let checkout = limiter.define("checkout", "token-bucket 500/s burst 50".parse()?)?;
///
/// match checkout.try_acquire("item:42", 1)?.expect("the embedded store always knows") {
///     Decision::Allowed(_) => println!("sold"),
///     Decision::Denied(denied) => println!("try again in {:?}", denied.retry_after()),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Limiter(Arc<Inner>);

struct Inner {
    store: Store,
    definitions: Mutex<HashMap<Box<str>, Defined>>,
    counting: Registry,
}

/// What a name stands for, and what it was asked to.
struct Defined {
    named: NamedLimit,
    limit: Limit,
    #[cfg(feature = "redis")]
    leases: Option<Leases>,
}

impl Defined {
    /// Whether it is what the name is asked to stand for again.
    fn is(&self, name: &str, limit: Limit, #[cfg(feature = "redis")] leases: Option<Leases>) -> Result<(), Error> {
        let same = self.limit == limit;
        #[cfg(feature = "redis")]
        let same = same && self.leases == leases;
        if same {
            return Ok(());
        }
        let message = format!(
            "{name:?} already stands for \"{}\"{}; give \"{limit}\" another name",
            self.limit,
            if self.limit == limit { " with other leases" } else { "" }
        );
        Err(Error::new(ErrorKind::NameTaken, "name", message))
    }
}

/// What a limiter makes its limits on.
pub(crate) enum Store {
    Local {
        clock: Clock,
        max_keys: usize,
        shadow: bool,
    },
    #[cfg(feature = "redis")]
    Shared(Shared),
}

impl Store {
    fn define(&self, name: &str, limit: Limit) -> NamedLimit {
        match self {
            Self::Local { clock, max_keys, shadow } => NamedLimit::local(Definition {
                name: name.into(),
                limit,
                store: LocalStore::new(Share::whole(&limit), clock.clone(), *max_keys),
                shadow: Shadow::new(*shadow),
            }),
            #[cfg(feature = "redis")]
            Self::Shared(shared) => shared.define(name, limit, crate::flow::sharded::moment(), None),
        }
    }
}

impl Limiter {
    /// A limiter on the embedded store with the default settings: no server, no runtime, no network.
    ///
    /// ```
    /// let limiter = shardlimit::Limiter::local();
    /// ```
    #[must_use]
    pub fn local() -> Self {
        Builder::new().local()
    }

    /// A builder with every setting at its default.
    ///
    /// ```
    /// let limiter = shardlimit::Limiter::builder().max_keys(1_000).build()?;
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    pub fn builder() -> Builder {
        Builder::new()
    }

    pub(crate) fn new(store: Store) -> Self {
        Self(Arc::new(Inner { store, definitions: Mutex::default(), counting: Registry::default() }))
    }

    /// Gives a limit its name. Name and key together identify a state: one key can stand under several limits.
    ///
    /// Defining the same limit again returns the one that is there. Names are this limiter's and its clones'; another
    /// limiter in the same process is another store with names of its own.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`] unless the name is 1 to 128 visible ASCII characters without braces and colons;
    /// [`ErrorKind::NameTaken`] if it stands for another limit already.
    ///
    /// ```
    /// # use shardlimit::{ErrorKind, Limiter};
    /// # fn main() -> Result<(), shardlimit::Error> {
    /// let limiter = Limiter::local();
    /// limiter.define("login", "5/min".parse()?)?;
    /// limiter.define("login", "5/min".parse()?)?; // the same one
    /// let taken = limiter.define("login", "6/min".parse()?).unwrap_err();
    /// assert_eq!(taken.kind(), ErrorKind::NameTaken);
    /// # Ok(())
    /// # }
    /// ```
    pub fn define(&self, name: &str, limit: Limit) -> Result<NamedLimit, Error> {
        let define = || Ok(self.0.store.define(name, limit));
        #[cfg(feature = "redis")]
        return self.define_as(name, limit, None, define);
        #[cfg(not(feature = "redis"))]
        self.define_as(name, limit, define)
    }

    /// Refuses a name that stands for another limit.
    #[cfg(feature = "config")]
    pub(crate) fn check_free(
        &self,
        name: &str,
        limit: Limit,
        #[cfg(feature = "redis")] leases: Option<Leases>,
    ) -> Result<(), Error> {
        let definitions = lock(&self.0.definitions);
        let Some(known) = definitions.get(name) else { return Ok(()) };
        #[cfg(feature = "redis")]
        return known.is(name, limit, leases);
        #[cfg(not(feature = "redis"))]
        known.is(name, limit)
    }

    #[cfg(feature = "config")]
    pub(crate) fn find(&self, name: &str) -> Option<NamedLimit> {
        lock(&self.0.definitions).get(name).map(|known| known.named.clone())
    }

    /// The limit of this name was set to another one.
    #[cfg(all(feature = "config", feature = "redis"))]
    pub(crate) fn is_now(&self, name: &str, limit: Limit) {
        if let Some(known) = lock(&self.0.definitions).get_mut(name) {
            known.limit = limit;
        }
    }

    #[cfg(all(feature = "config", feature = "redis"))]
    pub(crate) fn is_local(&self) -> bool {
        matches!(self.0.store, Store::Local { .. })
    }

    fn define_as(
        &self,
        name: &str,
        limit: Limit,
        #[cfg(feature = "redis")] leases: Option<Leases>,
        define: impl FnOnce() -> Result<NamedLimit, Error>,
    ) -> Result<NamedLimit, Error> {
        check_name("name", name)?;
        let mut definitions = lock(&self.0.definitions);
        if let Some(known) = definitions.get(name) {
            #[cfg(feature = "redis")]
            known.is(name, limit, leases)?;
            #[cfg(not(feature = "redis"))]
            known.is(name, limit)?;
            return Ok(known.named.clone());
        }
        let named = define()?;
        let defined = Defined {
            named: named.clone(),
            limit,
            #[cfg(feature = "redis")]
            leases,
        };
        definitions.insert(name.into(), defined);
        Ok(named)
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits: Vec<NamedLimit> = lock(&self.0.definitions).values().map(|defined| defined.named.clone()).collect();
        f.debug_struct("Limiter").field("limits", &limits).finish()
    }
}
