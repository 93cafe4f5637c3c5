//! Another file while the limiter is in use.

use super::file::Config;
use crate::error::Error;
#[cfg(feature = "redis")]
use crate::error::ErrorKind;
#[cfg(feature = "redis")]
use crate::limit::Carry;
use crate::limiter::Limiter;

/// What became of another configuration: each setting by its place in the file, as `limits.checkout.limit`.
///
/// ```
/// # use shardlimit::Config;
/// # pollster::block_on(async {
/// let mut config = Config::from_toml("max_keys = 5_000")?;
/// let limiter = config.builder().build()?;
/// let changes = config.apply(Config::from_toml("max_keys = 9_000")?, &limiter).await?;
/// assert_eq!(changes.restart, ["max_keys"]);
/// # Ok::<(), shardlimit::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Changes {
    /// In force now.
    pub applied: Vec<String>,
    /// In force once the process starts anew: the limiter goes on by what it was built with.
    pub restart: Vec<String>,
    /// Not in force: while it was set here another process set another limit, and that one is later. Apply the file again to set
    /// this one all the same.
    pub overruled: Vec<String>,
}

impl Config {
    /// Goes over to another configuration as far as that is possible without a new limiter: limits, also new ones, failure policies
    /// and shadow mode. The rest is told. Afterwards this is what the limiter goes by.
    ///
    /// A limit that differs is [set](crate::NamedLimit::set_limit) for all processes that use it, and keeps what its keys have. It
    /// then outranks what processes define that start later, for as long as anybody uses the name and a day after that: to go back,
    /// apply the older file, and do not only start with it. Of different ones that two processes set at once the later one counts; the
    /// other is [overruled](Changes::overruled), and is not what the next file is compared with. The embedded store can't change a limit.
    ///
    /// # Errors
    /// [`ErrorKind::NameTaken`](crate::ErrorKind::NameTaken) if the program has a new name for another limit, or as
    /// [`define_leased`](Limiter::define_leased) if the leases of a limit do not go with what it would be: nothing is applied then.
    ///
    /// Otherwise what the store answers, with the limit: failure policies, shadow mode and new limits are in force then, and so are the limits
    /// before it in the order of their names. Whether it is set itself is open if the kind is
    /// [`ErrorKind::Unknown`](crate::ErrorKind::Unknown). Calling this again goes on with the rest, and with an older file goes back.
    ///
    /// # Cancel safety
    /// As after an answer of the store.
    ///
    /// ```
    /// # use shardlimit::Config;
    /// # pollster::block_on(async {
    /// let mut config = Config::from_toml("limits.login.limit = \"5/min\"")?;
    /// let limiter = config.builder().build()?;
    /// let login = &config.define(&limiter)?["login"];
    ///
    /// let newer = "limits.login.limit = \"5/min\"\nlimits.login.shadow = true\nlimits.search.limit = \"100/s\"";
    /// let changes = config.apply(Config::from_toml(newer)?, &limiter).await?;
    /// assert_eq!(changes.applied, ["limits.login.shadow", "limits.search"]);
    /// assert_eq!(config.define(&limiter)?.len(), 2);
    /// # Ok::<(), shardlimit::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn apply(&mut self, new: Self, limiter: &Limiter) -> Result<Changes, Error> {
        self.check_next(&new, limiter)?;
        let mut changes = Changes::default();
        for field in super::fields::KNOWN {
            if self.fixed.get(field) != new.fixed.get(field) {
                changes.restart.push(field.into());
            }
        }
        self.apply_here(&new, limiter, &mut changes)?;
        for (name, settings) in &new.limits {
            let path = |field: &str| format!("limits.{name}.{field}");
            let Some(known) = self.limits.get_mut(name) else { continue };
            #[cfg(feature = "redis")]
            {
                if known.leases != settings.leases {
                    changes.restart.push(path("leases"));
                }
                let differs = known.limit != settings.limit || known.in_doubt;
                if let Some(named) = limiter.find(name).filter(|_| differs && !limiter.is_local()) {
                    let was_in_doubt = std::mem::replace(&mut known.in_doubt, true);
                    let set = named.set_limit(settings.limit, Carry::Keep).await;
                    if set.as_ref().is_err_and(|error| error.kind() != ErrorKind::Unknown) {
                        known.in_doubt = was_in_doubt;
                    }
                    let in_force = set.map_err(|error| error.noting(format_args!("limits.{name}.limit")))?;
                    // Known as in force, it would never be set again.
                    if in_force != settings.limit {
                        changes.overruled.push(path("limit"));
                        continue;
                    }
                    known.in_doubt = false;
                    limiter.is_now(name, settings.limit);
                    known.limit = settings.limit;
                    changes.applied.push(path("limit"));
                }
            }
            if known.limit != settings.limit {
                changes.restart.push(path("limit"));
            }
        }
        let gone = self.limits.keys().filter(|name| !new.limits.contains_key(*name));
        changes.restart.extend(gone.map(|name| format!("limits.{name}")));
        Ok(changes)
    }

    /// What this process can tell before anything is changed.
    fn check_next(&self, new: &Self, limiter: &Limiter) -> Result<(), Error> {
        for (name, settings) in &new.limits {
            let known = self.limits.get(name).filter(|_| limiter.find(name).is_some());
            match known {
                #[cfg(feature = "redis")]
                Some(known) if known.limit != settings.limit && !limiter.is_local() => {
                    let checked = known.leases.map_or(Ok(()), |leases| leases.check(settings.limit));
                    checked.map_err(|error| error.noting(format_args!("limits.{name}.limit")))?;
                }
                Some(_) => {}
                #[cfg(feature = "redis")]
                None => limiter.check_free(name, settings.limit, settings.leases)?,
                #[cfg(not(feature = "redis"))]
                None => limiter.check_free(name, settings.limit)?,
            }
        }
        Ok(())
    }

    /// What needs no store. It is remembered at once: whatever becomes of the rest, the next file is compared with what is in force.
    fn apply_here(&mut self, new: &Self, limiter: &Limiter, changes: &mut Changes) -> Result<(), Error> {
        #[cfg(feature = "redis")]
        if self.on_failure != new.on_failure {
            limiter.set_failure_policy(new.on_failure)?;
            self.on_failure = new.on_failure;
            changes.applied.push("on_failure".into());
        }
        let before = std::mem::replace(&mut self.shadow, new.shadow);
        if before != new.shadow {
            changes.applied.push("shadow".into());
        }
        // Those that are gone from the file go on by what all limits do.
        for (name, known) in &mut self.limits {
            let Some(named) = limiter.find(name) else { continue };
            let settings = new.limits.get(name);
            let own = settings.map_or(known.shadow, |settings| settings.shadow);
            let shadow = own.unwrap_or(new.shadow);
            if known.shadow.unwrap_or(before) != shadow {
                named.set_shadow(shadow);
                changes.applied.push(format!("limits.{name}.shadow"));
            }
            known.shadow = own;
            #[cfg(feature = "redis")]
            if let Some(settings) = settings {
                if known.on_failure != settings.on_failure {
                    named.set_failure_policy(settings.on_failure)?;
                    known.on_failure = settings.on_failure;
                    changes.applied.push(format!("limits.{name}.on_failure"));
                }
                // It counts when the process starts anew, and nothing is missing until then.
                known.revision = settings.revision;
            }
        }
        for (name, settings) in &new.limits {
            if !self.limits.contains_key(name) || limiter.find(name).is_none() {
                // The program may have defined it before: it is new to the file, which is to be in force.
                settings.switch(&settings.find_or_define(name, limiter)?, new.shadow)?;
                self.limits.insert(name.clone(), settings.clone());
                changes.applied.push(format!("limits.{name}"));
            }
        }
        Ok(())
    }
}
