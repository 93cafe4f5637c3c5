//! The settings of a shared store.

use super::value::Value;
use super::variables;
use crate::breaker::BreakerSettings;
use crate::builder::Builder;
use crate::error::Error;
use crate::retries::{Backoff, Retries};
use crate::selector::{LeastLoaded, PowerOfTwo, RoundRobin};

/// One of them. `fixed` is what is compared with another file.
pub(super) fn of_stores(builder: Builder, value: &Value<'_>, fixed: &mut String) -> Result<Builder, Error> {
    Ok(match value.field {
        "redis" => builder.redis(urls(value, fixed)?),
        "ring" => builder.ring(urls(value, fixed)?),
        "tls" => tls(builder, value, fixed)?,
        // A number is one without quotes too.
        "shards" if value.is_whole() => {
            builder.shards(value.number::<u64>()?.to_string().parse().map_err(|error| value.note(error))?)
        }
        "shards" => builder.shards(value.parsed()?),
        "selector" => match value.text()? {
            "round-robin" => builder.selector(RoundRobin),
            "least-loaded" => builder.selector(LeastLoaded),
            "power-of-two" => builder.selector(PowerOfTwo),
            _ => return Err(value.wrong("must be round-robin, least-loaded or power-of-two")),
        },
        "connections" => builder.connections(value.number()?),
        "connect_timeout" => builder.connect_timeout(value.time()?),
        "timeout" => builder.timeout(value.time()?),
        "deadline" => builder.deadline(value.time()?),
        "gateways" => builder.gateways(value.number()?),
        "breaker" => builder.breaker(breaker(value)?),
        "retries" => builder.retries(retries(value)?),
        "reconnect" => builder.reconnect(backoff(value, Backoff::default())?),
        "ceiling" => builder.ceiling(value.time()?),
        "hot" => builder.hot(value.number()?),
        "max_in_flight" => builder.max_in_flight(value.number()?),
        "watch_overshoot" => builder.watch_overshoot(value.number()?),
        "sample_allowed" => builder.sample_allowed(value.ratio()?),
        other => unreachable!("{other} is none of the settings of shared stores"),
    })
}

fn urls(value: &Value<'_>, fixed: &mut String) -> Result<Vec<String>, Error> {
    let urls = value.list()?.iter().map(variables::url).collect::<Result<Vec<_>, _>>()?;
    *fixed = format!("{urls:?}");
    Ok(urls)
}

fn breaker(value: &Value<'_>) -> Result<BreakerSettings, Error> {
    let mut breaker = BreakerSettings::default();
    let known = ["error_ratio", "slow_ratio", "slow", "window", "least", "open", "longest_open"];
    for value in value.table()?.fields(&known)? {
        match value.field {
            "error_ratio" => breaker.error_ratio = value.ratio()?,
            "slow_ratio" => breaker.slow_ratio = value.ratio()?,
            "slow" => breaker.slow = Some(value.time()?),
            "window" => breaker.window = value.time()?,
            "least" => breaker.least = value.number()?,
            "open" => breaker.open = value.time()?,
            _ => breaker.longest_open = value.time()?,
        }
    }
    Ok(breaker)
}

fn retries(value: &Value<'_>) -> Result<Retries, Error> {
    let mut retries = Retries::default();
    for value in value.table()?.fields(&["budget", "free", "backoff"])? {
        match value.field {
            "budget" => retries.budget = value.ratio()?,
            "free" => retries.free = value.number()?,
            _ => retries.backoff = backoff(&value, retries.backoff)?,
        }
    }
    Ok(retries)
}

fn backoff(value: &Value<'_>, mut backoff: Backoff) -> Result<Backoff, Error> {
    for value in value.table()?.fields(&["first", "most", "multiplier", "jitter"])? {
        match value.field {
            "first" => backoff.first = value.time()?,
            "most" => backoff.most = value.time()?,
            "multiplier" => backoff.multiplier = value.ratio()?,
            _ => backoff.jitter = value.ratio()?,
        }
    }
    Ok(backoff)
}

/// Files are read here and now, so that nothing is found missing later. Relative paths begin where the configuration lies.
#[cfg(feature = "tls")]
fn tls(mut builder: Builder, value: &Value<'_>, fixed: &mut String) -> Result<Builder, Error> {
    let read = |value: &Value<'_>| -> Result<Vec<u8>, Error> {
        let path = value.source.path.and_then(std::path::Path::parent).unwrap_or(std::path::Path::new(""));
        let path = path.join(value.text()?);
        std::fs::read(&path).map_err(|error| value.wrong(format!("can't read {}: {error}", path.display())))
    };
    let (mut certificate, mut key) = (None, None);
    for value in value.table()?.fields(&["authority", "client_certificate", "client_key"])? {
        let pem = read(&value)?;
        fixed.extend([canonical(&pem)]);
        match value.field {
            "authority" => builder = builder.tls_authority(pem),
            "client_certificate" => certificate = Some(pem),
            _ => key = Some(pem),
        }
    }
    match (certificate, key) {
        (Some(certificate), Some(key)) => Ok(builder.tls_client(certificate, key)),
        (None, None) => Ok(builder),
        _ => Err(value.wrong("a client needs both: client_certificate and client_key")),
    }
}

#[cfg(feature = "tls")]
fn canonical(pem: &[u8]) -> String {
    String::from_utf8_lossy(pem).into_owned()
}

#[cfg(not(feature = "tls"))]
fn tls(_: Builder, value: &Value<'_>, _: &mut String) -> Result<Builder, Error> {
    Err(value.wrong("this program is built without TLS: certificates need shardlimit with its feature `tls`"))
}
