//! What only a shared store can tell.

use std::time::Duration;

use super::{NamedLimit, On};
use crate::clock::Micros;
use crate::error::{Error, ErrorKind};
use crate::key::check_key;
use crate::limit::{Carry, Limit};
use crate::overshoot::Overshoot;
use crate::plan::Plan;
use crate::policy::{FailurePolicy, Failures};

impl NamedLimit {
    /// The same limit, with a deadline of its own for each call through this clone and its handles, instead of the
    /// [limiter's](crate::Builder::deadline): from a microsecond to an hour. The embedded store needs none.
    ///
    /// ```
    /// # use shardlimit::Limiter; use std::time::Duration;
    /// # pollster::block_on(async {
    /// # let checkout = Limiter::local().define("checkout", "500/s".parse()?)?;
    /// let decision = checkout.deadline(Duration::from_millis(5)).acquire("item:42").await?;
    /// # assert!(decision.is_allowed());
    /// # Ok::<(), shardlimit::Error>(())
    /// # }).unwrap();
    /// ```
    #[must_use]
    pub fn deadline(&self, deadline: Duration) -> Self {
        let within = (deadline.as_micros() as Micros).clamp(1, 3_600_000_000);
        Self { on: self.on.clone(), within: Some(within) }
    }

    pub(crate) fn within(&self) -> Option<Micros> {
        self.within
    }

    /// Changes the policy of this limit alone, for all clones; `None`: it goes by the limiter's again.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidSetting`](crate::ErrorKind::InvalidSetting) for a ratio that is none.
    ///
    /// ```
    /// # use shardlimit::{FailurePolicy, Limiter};
    /// # fn main() -> Result<(), shardlimit::Error> {
    /// # let login = Limiter::local().define("login", "5/min".parse()?)?;
    /// login.set_failure_policy(Some(FailurePolicy::Closed))?;
    /// login.set_failure_policy(None)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_failure_policy(&self, policy: Option<FailurePolicy>) -> Result<(), Error> {
        let policy = policy.map(FailurePolicy::check).transpose()?;
        if let On::Shared(limit) = &self.on {
            limit.set_policy(policy);
        }
        Ok(())
    }

    /// What became of calls that no shard decided in time. All zero on the embedded store.
    ///
    /// ```
    /// let limit = shardlimit::Limiter::local().define("checkout", "500/s".parse()?)?;
    /// assert_eq!(limit.failures().late, 0);
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    #[must_use]
    pub fn failures(&self) -> Failures {
        match &self.on {
            On::Local(_) => Failures::default(),
            On::Shared(limit) => limit.failures(),
        }
    }

    /// The plan of a key: which shards it is split into, and where they lie. It is made if there is none.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidKey`](crate::ErrorKind::InvalidKey); [`ErrorKind::Refused`](crate::ErrorKind::Refused) on the
    /// embedded store, which splits nothing; and what the store answers.
    ///
    /// # Cancel safety
    /// A plan that was begun is finished by the next client that sees it.
    ///
    /// ```no_run
    /// # async fn run(checkout: shardlimit::NamedLimit) -> Result<(), shardlimit::Error> {
    /// println!("{} shards", checkout.plan("item:42").await?.shards.len());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn plan(&self, key: impl AsRef<[u8]>) -> Result<Plan, Error> {
        match &self.on {
            On::Local(_) => Err(needs_redis("the embedded store splits no limit; a plan")),
            On::Shared(limit) => limit.plan(&limit.entry(check_key(key.as_ref())?)).await,
        }
    }

    /// Sets the limit of all keys that have none of their own, while they are in use, and says which one is in force: this one,
    /// unless another process set a later one meanwhile.
    ///
    /// A key that is in use takes it over when a call asks the store for it, here from now on, and at other processes once they have
    /// looked, as they do every second while they are called: that call is still decided by the limit before, and those after it by this
    /// one. It outranks every definition, also by processes that start later, as long as any process uses the name and for a day after that. Keys
    /// whose limit was set by [`set_limit_of`](Self::set_limit_of) keep it.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`](crate::ErrorKind::Refused) on the embedded store;
    /// [`ErrorKind::InvalidSetting`](crate::ErrorKind::InvalidSetting) if its leases do not fit that limit; and what the store answers.
    ///
    /// # Cancel safety
    /// It goes on, whether it is dropped or not.
    ///
    /// ```no_run
    /// # async fn run(checkout: shardlimit::NamedLimit) -> Result<(), shardlimit::Error> {
    /// use shardlimit::Carry;
    ///
    /// checkout.set_limit("5000/s burst 500".parse()?, Carry::Keep).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn set_limit(&self, limit: Limit, carry: Carry) -> Result<Limit, Error> {
        match &self.on {
            On::Local(_) => Err(needs_redis("a limit that changes while it is used")),
            On::Shared(shared) => shared.set_all(limit, carry).await,
        }
    }

    /// Sets the limit of one key while it is in use, and says which one is in force: this one, unless another process set a
    /// later one meanwhile.
    ///
    /// When it returns, every process goes by it with its next call to each shard. It outranks every definition of the name, and
    /// what [`set_limit`](Self::set_limit) sets, until the key was not used for a day. A master that can't be reached keeps its
    /// share of the old limit meanwhile, and the new limit is that much smaller elsewhere.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidKey`](crate::ErrorKind::InvalidKey); [`ErrorKind::Refused`](crate::ErrorKind::Refused) on the
    /// embedded store; [`ErrorKind::InvalidSetting`](crate::ErrorKind::InvalidSetting) if its leases do not fit that limit; and what the
    /// store answers, if it is not in force: then it may come into force with a later call.
    ///
    /// # Cancel safety
    /// It goes on, whether it is dropped or not.
    ///
    /// ```no_run
    /// # async fn run(checkout: shardlimit::NamedLimit) -> Result<(), shardlimit::Error> {
    /// use shardlimit::Carry;
    ///
    /// checkout.set_limit_of("item:42", "5000/s burst 500".parse()?, Carry::Proportional).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn set_limit_of(&self, key: impl AsRef<[u8]>, limit: Limit, carry: Carry) -> Result<Limit, Error> {
        match &self.on {
            On::Local(_) => Err(needs_redis("a limit that changes while it is used")),
            On::Shared(shared) => shared.set(&shared.entry(check_key(key.as_ref())?), limit, carry).await,
        }
    }

    /// The limit of a key that is in force, whoever defined or set it; on the embedded store, the one that was defined.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidKey`](crate::ErrorKind::InvalidKey), and what the store answers.
    ///
    /// # Cancel safety
    /// It changes nothing.
    ///
    /// ```no_run
    /// # async fn run(checkout: shardlimit::NamedLimit) -> Result<(), shardlimit::Error> {
    /// println!("{} in force", checkout.limit_of("item:42").await?);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn limit_of(&self, key: impl AsRef<[u8]>) -> Result<Limit, Error> {
        let key = check_key(key.as_ref())?;
        match &self.on {
            On::Local(definition) => Ok(definition.limit),
            On::Shared(shared) => shared.in_force(&shared.entry(key)).await,
        }
    }

    /// How often this process found a key under another definition than its own, and followed that because it was later. Anything
    /// but 0 while no deployment is under way means that processes disagree about this limit.
    ///
    /// ```
    /// let limit = shardlimit::Limiter::local().define("checkout", "500/s".parse()?)?;
    /// assert_eq!(limit.mismatches(), 0); // the embedded store has one definition
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    #[must_use]
    pub fn mismatches(&self) -> u64 {
        match &self.on {
            On::Local(_) => 0,
            On::Shared(shared) => shared.mismatches(),
        }
    }

    /// How far the limit was exceeded lately, at its worst: of the split keys that
    /// [`watch_overshoot`](crate::Builder::watch_overshoot) has watched, with the admissions of all processes that watch them.
    /// `None` while nothing is known: no key is split, or none was used in the last minute.
    ///
    /// Intervals begin and end with tenths of a second of the servers' clocks, so the figure is what was at least admitted above the
    /// limit, as long as their clocks are in step. A leased permit counts when it is lent.
    ///
    /// ```no_run
    /// # fn run(limit: shardlimit::NamedLimit) {
    /// let above = limit.overshoot().map_or(0, |overshoot| overshoot.permits.max(0));
    /// println!("shardlimit_overshoot_permits{{limit={:?}}} {above}", limit.name());
    /// # }
    /// ```
    #[must_use]
    pub fn overshoot(&self) -> Option<Overshoot> {
        match &self.on {
            On::Local(_) => None,
            On::Shared(shared) => shared.overshoot(),
        }
    }
}

fn needs_redis(what: &str) -> Error {
    Error::new(ErrorKind::Refused, "store", format!("{what} needs a limiter built with `redis`"))
}
