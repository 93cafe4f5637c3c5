//! What stands at the top of a file: each setting has the name that it has in the builder.

use super::file::Read;
use super::limits;
#[cfg(feature = "redis")]
use super::shared::of_stores;
use super::value::{Table, Value};
#[cfg(not(feature = "redis"))]
use crate::builder::Builder;
use crate::error::Error;

/// The first four are for every store, the others for shared ones.
pub(super) const KNOWN: [&str; 23] = [
    "prefix",
    "max_keys",
    "shadow",
    "limits",
    "redis",
    "ring",
    "tls",
    "shards",
    "selector",
    "connections",
    "connect_timeout",
    "timeout",
    "deadline",
    "on_failure",
    "gateways",
    "breaker",
    "retries",
    "reconnect",
    "ceiling",
    "hot",
    "max_in_flight",
    "watch_overshoot",
    "sample_allowed",
];

pub(super) fn read(table: &Table<'_>, read: Read) -> Result<Read, Error> {
    table.fields(&KNOWN)?.into_iter().try_fold(read, |read, value| field(read, &value))
}

fn field(mut read: Read, value: &Value<'_>) -> Result<Read, Error> {
    read.places.push((value.field, value.at()));
    let Read { config, .. } = &mut read;
    // Kept as text too, where only a new limiter can go by another one.
    let mut fixed = value.canonical();
    config.builder = match value.field {
        "limits" => {
            for (name, value) in value.table()?.named("limits") {
                config.limits.insert(name.to_owned(), limits::read(name, &value)?);
            }
            return Ok(read);
        }
        "shadow" => {
            config.shadow = value.flag()?;
            config.builder = config.builder.clone().shadow(config.shadow);
            return Ok(read);
        }
        #[cfg(feature = "redis")]
        "on_failure" => {
            config.on_failure = value.parsed()?;
            config.builder = config.builder.clone().on_failure(config.on_failure);
            return Ok(read);
        }
        "prefix" => config.builder.clone().prefix(value.word()?),
        "max_keys" => config.builder.clone().max_keys(value.number()?),
        _ => of_stores(config.builder.clone(), value, &mut fixed)?,
    };
    config.fixed.insert(value.field, fixed);
    Ok(read)
}

#[cfg(not(feature = "redis"))]
fn of_stores(_: Builder, value: &Value<'_>, _: &mut String) -> Result<Builder, Error> {
    Err(value.wrong("is a setting of shared stores: build shardlimit with its feature `redis`"))
}
