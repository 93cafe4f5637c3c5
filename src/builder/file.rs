//! What a configuration file needs of a builder.

#[cfg(feature = "tls")]
use super::Builder;
#[cfg(test)]
use super::redis::RedisSettings;
#[cfg(feature = "tls")]
use crate::store::cluster::Certificates;
#[cfg(test)]
use crate::store::cluster::Patience;

#[cfg(feature = "tls")]
impl Builder {
    /// As it is, or without TLS where the process has not said yet by what it speaks it: it may do so before it builds.
    #[cfg(feature = "tls")]
    pub(super) fn without_crypto(mut self) -> Self {
        let plain = |url: &str| {
            let stripped = url.strip_prefix("rediss://").or_else(|| url.strip_prefix("valkeys://"));
            stripped
                .map(|rest| format!("redis://{rest}"))
                .or_else(|| url.starts_with("sentinel:").then(|| url.to_owned()))
        };
        if rustls::crypto::CryptoProvider::get_default().is_some() {
            return self;
        }
        for urls in [&mut self.redis.urls, &mut self.redis.ring].into_iter().flatten() {
            // All of them or none: a mixture is for the builder to refuse.
            if let Some(all) = urls.iter().map(|url| plain(url)).collect() {
                *urls = all;
                self.redis.certificates = Certificates::default();
            }
        }
        self
    }
}

/// Every setting as text, so that a test sees which of them a file has reached. Who adds one has to add it here.
#[cfg(test)]
impl RedisSettings {
    pub(super) fn told(&self) -> Vec<(&'static str, String)> {
        let Self {
            urls,
            ring,
            shards,
            selector: _,
            selector_type,
            patience: Patience { connections, connect_timeout, timeout, breaker, retries, reconnect },
            deadline,
            policy,
            gateways,
            ceiling,
            hot,
            max_in_flight,
            watched,
            sample_allowed,
            runtime: _,
            #[cfg(feature = "tls")]
            certificates,
            #[cfg(feature = "cluster-async")]
                connection: _,
        } = self;
        vec![
            ("redis", format!("{urls:?}")),
            ("ring", format!("{ring:?}")),
            ("shards", format!("{shards:?}")),
            ("selector", format!("{selector_type:?}")),
            ("connections", format!("{connections:?}")),
            ("connect_timeout", format!("{connect_timeout:?}")),
            ("timeout", format!("{timeout:?}")),
            ("breaker", format!("{breaker:?}")),
            ("retries", format!("{retries:?}")),
            ("reconnect", format!("{reconnect:?}")),
            ("deadline", format!("{deadline:?}")),
            ("on_failure", format!("{policy:?}")),
            ("gateways", format!("{gateways:?}")),
            ("ceiling", format!("{ceiling:?}")),
            ("hot", format!("{hot:?}")),
            ("max_in_flight", format!("{max_in_flight:?}")),
            ("watch_overshoot", format!("{watched:?}")),
            ("sample_allowed", format!("{sample_allowed:?}")),
            #[cfg(feature = "tls")]
            ("tls", format!("{:?} {:?}", certificates.authority, certificates.client)),
        ]
    }
}
