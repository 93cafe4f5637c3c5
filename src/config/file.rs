//! The whole of a configuration.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use toml::de::DeTable;

use super::fields;
use super::limits::LimitSettings;
use super::value::{Source, Table};
use crate::builder::Builder;
use crate::error::{Error, ErrorKind};
#[cfg(feature = "redis")]
use crate::leases::Leases;
use crate::limit::Limit;
use crate::limiter::Limiter;
use crate::named::NamedLimit;
#[cfg(feature = "redis")]
use crate::policy::FailurePolicy;

/// A limiter and its limits, as a TOML text describes them. Needs the feature `config`.
///
/// Each setting has the name that it has in the [`Builder`], and [`configuration`](crate::configuration) shows them all. All of it is
/// checked when it is read: what can't be is told with its place, and nothing is built. Passwords are in no error and no `Debug`.
///
/// ```
/// use shardlimit::Config;
///
/// # fn main() -> Result<(), shardlimit::Error> {
/// let config = Config::from_toml(
///     r#"
///     prefix = "gateway-eu"
///
///     [limits.checkout]
///     limit = "token-bucket 500000/s burst 50000"
///
///     [limits.login]
///     limit = "sliding-log 5/min"
///     shadow = true
///     "#,
/// )?;
/// let limiter = config.builder().build()?;
/// let limits = config.define(&limiter)?;
/// assert!(limits["checkout"].try_acquire("item:42", 1)?.is_some_and(|decision| decision.is_allowed()));
///
/// let error = Config::from_toml("prefixx = 1").unwrap_err();
/// assert!(error.to_string().contains("line 1"), "{error}");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Config {
    pub(super) builder: Builder,
    pub(super) shadow: bool,
    #[cfg(feature = "redis")]
    pub(super) on_failure: FailurePolicy,
    pub(super) limits: BTreeMap<String, LimitSettings>,
    /// What only a new limiter can go by, as text.
    pub(super) fixed: BTreeMap<&'static str, String>,
}

/// What was read so far, and where each setting stands.
pub(super) struct Read {
    pub config: Config,
    pub places: Vec<(&'static str, usize)>,
}

impl Config {
    /// Reads a text, and all files of certificates that it names.
    ///
    /// `${NAME}` inside a URL is taken from the environment: user and password as they are, without `%40` and the like.
    ///
    /// # Errors
    /// For anything that can't be: [`ErrorKind::InvalidSetting`], or the kind that the builder has for it, with the place.
    ///
    /// ```
    /// # use shardlimit::Config;
    /// let error = Config::from_toml("max_keys = \"many\"").unwrap_err();
    /// assert_eq!(error.field(), "max_keys");
    /// ```
    pub fn from_toml(text: &str) -> Result<Self, Error> {
        Self::of(&Source { text, path: None, variable: &of_environment })
    }

    /// Reads a file. Paths in it that are not absolute begin at its folder.
    ///
    /// # Errors
    /// As [`from_toml`](Self::from_toml), and if the file can't be read.
    ///
    /// ```
    /// # use shardlimit::Config;
    /// let error = Config::read("/nowhere/limits.toml").unwrap_err();
    /// assert!(error.to_string().contains("/nowhere/limits.toml"));
    /// ```
    pub fn read(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let wrong = |error| {
            let message = format!("can't read {}: {error}", path.display());
            Error::new(ErrorKind::InvalidSetting, "config", message)
        };
        let text = std::fs::read_to_string(path).map_err(wrong)?;
        Self::of(&Source { text: &text, path: Some(path), variable: &of_environment })
    }

    pub(super) fn of(source: &Source<'_>) -> Result<Self, Error> {
        let table = DeTable::parse(source.text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            // What the parser says is about its own words, and shows none of the text.
            let message = format!("is no TOML: {}", error.message().lines().collect::<Vec<_>>().join("; "));
            source.note(Error::new(ErrorKind::InvalidSetting, "config", message), "", at)
        })?;
        let config = Self {
            builder: Limiter::builder(),
            shadow: false,
            #[cfg(feature = "redis")]
            on_failure: FailurePolicy::default(),
            limits: BTreeMap::new(),
            fixed: BTreeMap::new(),
        };
        let read = Read { config, places: Vec::new() };
        let Read { config, places } = fields::read(&Table::whole(table.get_ref(), source), read)?;
        config.builder.check().map_err(|error| {
            let place = places.iter().find(|(field, _)| *field == error.field());
            // A URL of a ring is one as any other.
            let place = place.or_else(|| places.iter().find(|(field, _)| *field == "ring"));
            match place {
                Some((field, at)) => source.note(error, field, *at),
                None => error,
            }
        })?;
        Ok(config)
    }

    /// A builder with every setting of the file, for [`build`](Builder::build), or for what no file can say: a clock, a runtime, a
    /// selector of your own.
    ///
    /// ```
    /// # use shardlimit::{Config, FakeClock};
    /// let config = Config::from_toml("max_keys = 5_000")?;
    /// let limiter = config.builder().clock(FakeClock::new()).build()?;
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    pub fn builder(&self) -> Builder {
        self.builder.clone()
    }

    /// The limits of the file, by their names and in their order.
    ///
    /// ```
    /// # use shardlimit::Config;
    /// let config = Config::from_toml("limits.login.limit = \"5/min\"")?;
    /// assert_eq!(config.limits().map(|(name, _)| name).collect::<Vec<_>>(), ["login"]);
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    pub fn limits(&self) -> impl Iterator<Item = (&str, Limit)> {
        self.limits.iter().map(|(name, settings)| (name.as_str(), settings.limit))
    }

    /// How a limit of the file is leased, if it is. Needs the feature `redis`.
    ///
    /// ```
    /// # use shardlimit::Config;
    /// let config = Config::from_toml("limits.login.limit = \"5/min\"")?;
    /// assert_eq!(config.leases("login"), None);
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    #[cfg(feature = "redis")]
    #[must_use]
    pub fn leases(&self, name: &str) -> Option<Leases> {
        self.limits.get(name)?.leases
    }

    /// Where the limits are kept: `redis` or `ring`, as the file has it, or `embedded`.
    ///
    /// ```
    /// # use shardlimit::Config;
    /// assert_eq!(Config::from_toml("")?.store(), "embedded");
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    #[must_use]
    pub fn store(&self) -> &'static str {
        ["redis", "ring"].into_iter().find(|store| self.fixed.contains_key(store)).unwrap_or("embedded")
    }

    /// Defines all limits of the file, and returns them by their names. Those that are there already are the same ones, with the
    /// shadow mode and the failure policy that they have by now: what was switched since is not undone.
    ///
    /// # Errors
    /// [`ErrorKind::NameTaken`] if a name stands for another limit; then none is defined.
    ///
    /// ```
    /// # use shardlimit::Config;
    /// let config = Config::from_toml("limits.login.limit = \"5/min\"")?;
    /// let limits = config.define(&config.builder().build()?)?;
    /// assert_eq!(limits["login"].limit().to_string(), "token-bucket 5/min burst 5");
    /// # Ok::<(), shardlimit::Error>(())
    /// ```
    pub fn define(&self, limiter: &Limiter) -> Result<BTreeMap<String, NamedLimit>, Error> {
        for (name, settings) in &self.limits {
            #[cfg(feature = "redis")]
            limiter.check_free(name, settings.limit, settings.leases)?;
            #[cfg(not(feature = "redis"))]
            limiter.check_free(name, settings.limit)?;
        }
        let define = |(name, settings): (&String, &LimitSettings)| {
            Ok((name.clone(), settings.define(name, limiter, self.shadow)?))
        };
        self.limits.iter().map(define).collect()
    }
}

fn of_environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Without what may hold a password.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").field("builder", &self.builder).field("limits", &self.limits).finish_non_exhaustive()
    }
}
