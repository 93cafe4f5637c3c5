//! Where the servers are and how to log in.

use std::fmt;
use std::time::Duration;

use redis::{ConnectionAddr, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo};

use super::dial::Dial;
use super::fault::Address;
#[cfg(feature = "tls")]
use super::tls::{self, Tls};
use crate::breaker::BreakerSettings;
use crate::error::{Error, ErrorKind};
use crate::retries::{Backoff, Retries};

/// What every connection has in common.
#[derive(Clone)]
pub(crate) struct Settings {
    seeds: Vec<Address>,
    /// User and password: the first seed's, for every node.
    redis: RedisConnectionInfo,
    #[cfg(feature = "tls")]
    tls: Option<Tls>,
    pub patience: Patience,
}

/// How to deal with servers: how many connections each has, and how long to wait for what.
#[derive(Clone, Copy)]
pub(crate) struct Patience {
    /// At least 1.
    pub connections: usize,
    /// The longest that opening a connection may take: name, handshake, log-in and scripts.
    pub connect_timeout: Duration,
    /// The longest that a request may take, from the moment it is sent.
    pub timeout: Duration,
    pub breaker: BreakerSettings,
    pub retries: Retries,
    /// Between two attempts to connect to the same server.
    pub reconnect: Backoff,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            // A master runs some 20,000 scripts a second; a connection carries many times that.
            connections: 1,
            // A name, a handshake and a log-in take some round trips; a lost packet makes it a second more. Whoever has not
            // answered by then hangs.
            connect_timeout: Duration::from_secs(2),
            // A failover takes seconds; what takes less is a stall, and its answers are worth having: what they granted to
            // calls that are over goes back.
            timeout: Duration::from_millis(500),
            breaker: BreakerSettings::default(),
            retries: Retries::default(),
            reconnect: Backoff::default(),
        }
    }
}

/// What a URL says.
struct Seed {
    address: Address,
    redis: RedisConnectionInfo,
    wants_tls: bool,
}

impl Settings {
    /// Reads URLs such as `redis://user:password@host:6379`, or just `host:6379`.
    pub(crate) fn new(
        urls: &[String],
        patience: Patience,
        #[cfg(feature = "tls")] certificates: &tls::Certificates,
    ) -> Result<Self, Error> {
        let mut seeds = Vec::with_capacity(urls.len());
        let mut first: Option<Seed> = None;
        for url in urls {
            let seed = Seed::read(url)?;
            // Otherwise a URL that asks for TLS would lead to servers that are spoken to without.
            if first.as_ref().is_some_and(|first| first.wants_tls != seed.wants_tls) {
                return Err(bad(url, "is not as the first URL: either all want TLS (rediss://) or none"));
            }
            seeds.push(seed.address.clone());
            first.get_or_insert(seed);
        }
        let Some(Seed { redis, wants_tls, .. }) = first else {
            return Err(Error::new(ErrorKind::InvalidSetting, "redis", "needs at least one URL"));
        };
        #[cfg(feature = "tls")]
        if !wants_tls && !certificates.is_empty() {
            return Err(tls::wrong("certificates are of no use without a rediss:// URL"));
        }
        #[cfg(not(feature = "tls"))]
        if wants_tls {
            return Err(bad(
                &urls[0],
                "wants TLS, and this program is built without it: it needs shardlimit with its feature `tls`",
            ));
        }
        Ok(Self {
            seeds,
            // RESP3: only there does a connection tell that it was lost. Its name is nothing that a user needs leave for.
            redis: redis.set_protocol(ProtocolVersion::RESP3).set_skip_set_lib_name(),
            #[cfg(feature = "tls")]
            tls: if wants_tls { Some(Tls::new(certificates)?) } else { None },
            patience,
        })
    }

    pub(crate) fn seeds(&self) -> &[Address] {
        &self.seeds
    }

    /// The same without user and password.
    pub(crate) fn anonymous(&self) -> Self {
        let redis = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3).set_skip_set_lib_name();
        Self { redis, ..self.clone() }
    }

    /// How to reach a node.
    pub(crate) fn info_of(&self, address: &Address) -> Dial {
        Dial {
            address: address.clone(),
            redis: self.redis.clone(),
            #[cfg(feature = "tls")]
            tls: self.tls.clone(),
            patience: (4 * self.patience.timeout).max(Duration::from_secs(5)),
        }
    }
}

impl Seed {
    /// Without a scheme it is a plain address.
    fn read(url: &str) -> Result<Self, Error> {
        let (scheme, rest) = url.split_once("://").unwrap_or(("redis", url));
        let wants_tls = match scheme {
            "redis" | "valkey" => false,
            "rediss" | "valkeys" => true,
            "unix" | "redis+unix" | "valkey+unix" => {
                return Err(bad(url, "is a socket of this machine: a cluster needs hosts and ports"));
            }
            _ => return Err(bad(url, "is not a URL such as redis://host:6379")),
        };
        if rest.contains('#') {
            return Err(bad(url, "has a part behind #: there is nothing that it could mean"));
        }
        // A / or ? in a password ends the host early, and a part of it would pass for a host.
        if rest.rfind('@').is_some_and(|at| rest[..at].contains(['/', '?', '\\'])) {
            let how = "has a password that is torn: write other characters than letters and digits as %2F, %40, …";
            return Err(bad(url, how));
        }
        // TLS is ours, so the crate below need not know of it.
        let info = format!("redis://{rest}").into_connection_info();
        let info = info.map_err(|_| bad(url, "is not a URL such as redis://host:6379"))?;
        let redis = info.redis_settings().clone();
        let ConnectionAddr::Tcp(host, port) = info.addr() else {
            return Err(bad(url, "is not an address of a server"));
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Ok(Self { address: Address { host: host.into(), port: *port }, redis, wants_tls })
    }
}

impl Address {
    /// Where a URL points.
    pub(crate) fn of_url(url: &str) -> Result<Self, Error> {
        Seed::read(url).map(|seed| seed.address)
    }
}

fn bad(url: &str, how: &str) -> Error {
    Error::new(ErrorKind::InvalidSetting, "redis", format!("{:?} {how}", without_secret(url)))
}

/// Everything before the last `@` may hold a password, but for a scheme that we know.
pub(crate) fn without_secret(url: &str) -> String {
    let Some((_, rest)) = url.rsplit_once('@') else { return url.to_owned() };
    let scheme = ["redis://", "rediss://"].into_iter().find(|scheme| url.starts_with(scheme)).unwrap_or_default();
    format!("{scheme}…@{rest}")
}

/// The log-in holds secrets.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("seeds", &self.seeds)
            .field("timeout", &self.patience.timeout)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(urls: &[&str]) -> Result<Settings, Error> {
        Settings::new(
            &urls.iter().map(ToString::to_string).collect::<Vec<_>>(),
            Patience::default(),
            #[cfg(feature = "tls")]
            &tls::Certificates::default(),
        )
    }

    #[test]
    fn urls_and_plain_addresses_are_read() {
        let seeds = settings(&["redis://10.0.0.1:7000", "h:6380", "redis://[::1]:6381", "redis://h"]).unwrap().seeds;
        let shown: Vec<String> = seeds.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["10.0.0.1:7000", "h:6380", "[::1]:6381", "h:6379"]);
    }

    #[test]
    fn what_is_no_url_is_named_without_its_password() {
        for url in
            ["", "http://a:secret@h", "redis://u:secret@:x", "unix:///tmp/secret@x", "u:secret@h:port", ":secret@://"]
        {
            let error = settings(&[url]).unwrap_err();
            assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidSetting, "redis"), "{url}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
        assert_eq!(settings(&[]).unwrap_err().field(), "redis");
    }

    /// `12/3?` looks like a port and a database: the rest of the password was taken for nothing.
    #[test]
    fn a_torn_password_is_no_address() {
        for url in ["redis://user:12/3?secret@h:1", "redis://:12?secret@h", "user:12/3?secret@h:1", "@@secret12?@h:1"] {
            let error = settings(&[url]).unwrap_err().to_string();
            assert!(error.contains("torn") && !error.contains("12") && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn tls_is_for_all_or_for_none() {
        let error = settings(&["redis://h:1", "rediss://u:secret@h:2"]).unwrap_err();
        assert!(error.to_string().contains("either all want TLS") && !error.to_string().contains("secret"), "{error}");
        assert!(settings(&["rediss://h:1/#insecure"]).unwrap_err().to_string().contains("behind #"));
    }

    #[test]
    fn secrets_are_not_shown() {
        let settings = settings(&["redis://user:secret@h:1"]).unwrap();
        assert!(!format!("{settings:?}").contains("secret"));
        assert_eq!(settings.info_of(&settings.seeds[0]).redis.password(), Some("secret"));
    }
}
