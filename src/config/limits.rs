//! One limit of a file.

use super::value::{Value, shown};
use crate::error::Error;
use crate::key::check_name;
#[cfg(feature = "redis")]
use crate::leases::Leases;
use crate::limit::Limit;
use crate::limiter::Limiter;
use crate::named::NamedLimit;
#[cfg(feature = "redis")]
use crate::plan::SET;
#[cfg(feature = "redis")]
use crate::policy::FailurePolicy;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct LimitSettings {
    pub limit: Limit,
    /// None: as all limits do.
    pub shadow: Option<bool>,
    #[cfg(feature = "redis")]
    pub revision: Option<u64>,
    #[cfg(feature = "redis")]
    pub leases: Option<Leases>,
    /// None: as all limits do.
    #[cfg(feature = "redis")]
    pub on_failure: Option<FailurePolicy>,
    /// Another limit was to be set and may have been, or was by somebody else: whatever the next file says is to be set.
    #[cfg(feature = "redis")]
    pub in_doubt: bool,
}

pub(super) const KNOWN: [&str; 5] = ["limit", "shadow", "revision", "leases", "on_failure"];

pub(super) fn read(name: &str, value: &Value<'_>) -> Result<LimitSettings, Error> {
    if shown(name) != name {
        return Err(value.wrong("the name of a limit has no colon and no URL"));
    }
    check_name("name", name).map_err(|error| value.note(error))?;
    let (mut limit, mut shadow) = (None, None);
    #[cfg(feature = "redis")]
    let (mut revision, mut leases, mut on_failure) = (None, None, None);
    for value in value.table()?.fields(&KNOWN)? {
        match value.field {
            "limit" => limit = Some(value.parsed()?),
            "shadow" => shadow = Some(value.flag()?),
            #[cfg(feature = "redis")]
            "revision" => {
                let number = value.number::<u64>()?;
                if number >= SET {
                    return Err(value.wrong(format!("must be below {SET}, got {number}")));
                }
                revision = Some(number);
            }
            #[cfg(feature = "redis")]
            "leases" => leases = Some(read_leases(&value)?),
            #[cfg(feature = "redis")]
            "on_failure" => on_failure = Some(value.parsed()?),
            _ => return Err(value.wrong("is a setting of shared stores: build shardlimit with its feature `redis`")),
        }
    }
    let Some(limit) = limit else {
        return Err(value.wrong("has no `limit`: give it one, such as limit = \"token-bucket 500/s burst 50\""));
    };
    #[cfg(feature = "redis")]
    if let Some(leases) = &leases {
        if revision.is_some() {
            return Err(
                value.wrong("has both leases and a revision: that of a leased limit is the moment of its definition")
            );
        }
        leases.check(limit).map_err(|error| value.note(error))?;
    }
    Ok(LimitSettings {
        limit,
        shadow,
        #[cfg(feature = "redis")]
        revision,
        #[cfg(feature = "redis")]
        leases,
        #[cfg(feature = "redis")]
        on_failure,
        #[cfg(feature = "redis")]
        in_doubt: false,
    })
}

#[cfg(feature = "redis")]
fn read_leases(value: &Value<'_>) -> Result<Leases, Error> {
    let mut leases = Leases::new();
    for value in value.table()?.fields(&["horizon", "ttl", "within_burst"])? {
        leases = match value.field {
            "horizon" => leases.horizon(value.time()?),
            "ttl" => leases.ttl(value.time()?),
            _ if value.flag()? => leases.within_burst(),
            _ => leases,
        };
    }
    Ok(leases)
}

impl LimitSettings {
    /// Defines it, with all that belongs to it if it is new. `shadow` is what all limits do.
    pub(super) fn define(&self, name: &str, limiter: &Limiter, shadow: bool) -> Result<NamedLimit, Error> {
        // One that is there may have been switched since, by somebody who meant it.
        let is_new = limiter.find(name).is_none();
        let named = self.find_or_define(name, limiter)?;
        if is_new {
            self.switch(&named, shadow)?;
        }
        Ok(named)
    }

    /// The one that has the name, or a new one.
    pub(super) fn find_or_define(&self, name: &str, limiter: &Limiter) -> Result<NamedLimit, Error> {
        #[cfg(feature = "redis")]
        return match (self.leases, self.revision) {
            (Some(leases), _) => limiter.define_leased(name, self.limit, leases),
            (None, Some(revision)) => limiter.define_revision(name, self.limit, revision),
            (None, None) => limiter.define(name, self.limit),
        };
        #[cfg(not(feature = "redis"))]
        limiter.define(name, self.limit)
    }

    /// Brings into force what can be switched at any time.
    #[cfg_attr(not(feature = "redis"), allow(clippy::unnecessary_wraps, reason = "only a failure policy can be wrong"))]
    pub(super) fn switch(&self, named: &NamedLimit, shadow: bool) -> Result<(), Error> {
        named.set_shadow(self.shadow.unwrap_or(shadow));
        #[cfg(feature = "redis")]
        named.set_failure_policy(self.on_failure)?;
        Ok(())
    }
}
