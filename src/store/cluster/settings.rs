//! Where the servers are and how to speak to them.

use std::fmt;
use std::time::Duration;

use redis::io::tcp::TcpSettings;
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion};

use super::fault::Address;
use crate::breaker::BreakerSettings;
use crate::error::{Error, ErrorKind};
use crate::retries::{Backoff, Retries};

/// What every connection has in common.
#[derive(Clone)]
pub(crate) struct Settings {
    seeds: Vec<Address>,
    /// User, password, TLS: the first seed's, for every node.
    template: ConnectionInfo,
    /// The longest that a request may take, from the moment it is sent.
    pub timeout: Duration,
    pub breaker: BreakerSettings,
    pub retries: Retries,
    /// Between two attempts to connect to the same server.
    pub reconnect: Backoff,
}

/// How to deal with servers that do not answer.
#[derive(Clone, Copy, Default)]
pub(crate) struct Patience {
    pub timeout: Duration,
    pub breaker: BreakerSettings,
    pub retries: Retries,
    pub reconnect: Backoff,
}

impl Settings {
    /// Reads URLs such as `redis://user:password@host:6379`, or just `host:6379`.
    pub(crate) fn new(
        urls: &[String],
        Patience { timeout, breaker, retries, reconnect }: Patience,
        #[cfg(feature = "tls")] certificates: &super::tls::Certificates,
    ) -> Result<Self, Error> {
        let mut seeds = Vec::with_capacity(urls.len());
        let mut template = None;
        for url in urls {
            let info = read(url)?;
            seeds.push(address_of(info.addr()).ok_or_else(|| bad(url, "is not an address of a server"))?);
            template.get_or_insert(info);
        }
        let Some(info) = template else {
            return Err(Error::new(ErrorKind::InvalidSetting, "redis", "needs at least one URL"));
        };
        #[cfg(feature = "tls")]
        let info = certificates.put_into(info)?;
        // RESP3: only there does a connection tell that it was lost.
        let redis = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let tcp = TcpSettings::default().set_nodelay(true);
        // A connection that was cut in silence is given up when what was sent on it is not even received.
        #[cfg(target_os = "linux")]
        let tcp = tcp.set_user_timeout((4 * timeout).max(Duration::from_secs(5)));
        Ok(Self {
            seeds,
            template: info.set_redis_settings(redis).set_tcp_settings(tcp),
            timeout,
            breaker,
            retries,
            reconnect,
        })
    }

    pub(crate) fn seeds(&self) -> &[Address] {
        &self.seeds
    }

    /// How to reach a node.
    pub(crate) fn info_of(&self, address: &Address) -> ConnectionInfo {
        let Address { host, port } = address.clone();
        let addr = match self.template.addr().clone() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host: host.into(), port, insecure, tls_params }
            }
            _ => ConnectionAddr::Tcp(host.into(), port),
        };
        self.template.clone().set_addr(addr)
    }
}

/// Without a scheme it is a plain address.
fn read(url: &str) -> Result<ConnectionInfo, Error> {
    let whole = if url.contains("://") { url.to_owned() } else { format!("redis://{url}") };
    let info = whole.into_connection_info().map_err(|_| bad(url, "is not a URL such as redis://host:6379"))?;
    match info.addr() {
        #[cfg(feature = "tls")]
        ConnectionAddr::TcpTls { .. } => super::tls::check(url)?,
        #[cfg(not(feature = "tls"))]
        ConnectionAddr::TcpTls { .. } => return Err(bad(url, "wants TLS: build shardlimit with its feature `tls`")),
        ConnectionAddr::Unix(_) => {
            return Err(bad(url, "is a socket of this machine: a cluster needs hosts and ports"));
        }
        _ => {}
    }
    Ok(info)
}

fn address_of(addr: &ConnectionAddr) -> Option<Address> {
    match addr {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            let host = host.trim_start_matches('[').trim_end_matches(']');
            Some(Address { host: host.into(), port: *port })
        }
        _ => None,
    }
}

pub(super) fn bad(url: &str, how: &str) -> Error {
    Error::new(ErrorKind::InvalidSetting, "redis", format!("{:?} {how}", without_secret(url)))
}

/// Everything before the last `@` may hold a password.
fn without_secret(url: &str) -> String {
    match (url.find("://"), url.rfind('@')) {
        (Some(scheme), Some(at)) if at > scheme => format!("{}://…@{}", &url[..scheme], &url[at + 1..]),
        (None, Some(at)) => format!("…@{}", &url[at + 1..]),
        _ => url.to_owned(),
    }
}

/// The template holds secrets.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("seeds", &self.seeds).field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(urls: &[&str]) -> Result<Settings, Error> {
        Settings::new(
            &urls.iter().map(ToString::to_string).collect::<Vec<_>>(),
            Patience { timeout: Duration::from_secs(1), ..Patience::default() },
            #[cfg(feature = "tls")]
            &super::super::tls::Certificates::default(),
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
        for url in ["", "http://a:secret@h", "redis://u:secret@:x", "unix:///tmp/secret@x", "u:secret@h:port"] {
            let error = settings(&[url]).unwrap_err();
            assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidSetting, "redis"), "{url}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
        assert_eq!(settings(&[]).unwrap_err().field(), "redis");
    }

    #[test]
    fn secrets_are_not_shown() {
        let settings = settings(&["redis://user:secret@h:1"]).unwrap();
        assert!(!format!("{settings:?}").contains("secret"));
        assert_eq!(settings.info_of(&settings.seeds[0]).redis_settings().password(), Some("secret"));
    }
}
