//! Certificates for `rediss://` URLs.

use redis::{Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, TlsCertificates};

use super::settings::bad;
use crate::error::{Error, ErrorKind};

/// As PEM.
#[derive(Clone, Default)]
pub(crate) struct Certificates {
    /// Who signed the servers' certificates; the system's authorities if none.
    pub authority: Option<Vec<u8>>,
    /// Certificate and key that the servers ask a client for.
    pub client: Option<(Vec<u8>, Vec<u8>)>,
}

impl Certificates {
    pub(super) fn put_into(&self, info: ConnectionInfo) -> Result<ConnectionInfo, Error> {
        if self.authority.is_none() && self.client.is_none() {
            return Ok(info);
        }
        let wrong = |message: String| Error::new(ErrorKind::InvalidSetting, "tls", message);
        if !matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
            return Err(wrong("certificates are of no use without a rediss:// URL".into()));
        }
        let client = self.client.clone();
        let certificates = TlsCertificates {
            client_tls: client.map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key }),
            root_cert: self.authority.clone(),
        };
        let client = Client::build_with_tls(info, certificates)
            .map_err(|error| wrong(format!("certificates can't be read: {error}")))?;
        Ok(client.get_connection_info().clone())
    }
}

/// The crate below panics when no provider of cryptography is installed, so we ask first.
pub(super) fn check(url: &str) -> Result<(), Error> {
    if rustls::crypto::CryptoProvider::get_default().is_some() {
        return Ok(());
    }
    let how = "wants TLS, and this process has no crypto provider: call \
               rustls::crypto::ring::default_provider().install_default() (or another one's) first";
    Err(bad(url, how))
}
