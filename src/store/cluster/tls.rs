//! Certificates for `rediss://` URLs, and the handshake.

use std::io;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::error::{Error, ErrorKind};
use crate::sync::Arc;

/// As PEM.
#[derive(Clone, Default)]
pub(crate) struct Certificates {
    /// Who signed the servers' certificates; the system's authorities if none.
    pub authority: Option<Vec<u8>>,
    /// Certificate and key that the servers ask a client for.
    pub client: Option<(Vec<u8>, Vec<u8>)>,
}

/// What every handshake goes by.
#[derive(Clone)]
pub(super) struct Tls(TlsConnector);

impl Tls {
    /// Reads the certificates. Whoever has no provider of cryptography is told so: rustls itself would panic.
    pub(super) fn new(certificates: &Certificates) -> Result<Self, Error> {
        let Some(provider) = CryptoProvider::get_default() else {
            let message = "a rediss:// URL needs a crypto provider, and this process has none: call \
                           rustls::crypto::ring::default_provider().install_default() (or another one's) first";
            return Err(wrong(message));
        };
        let config = ClientConfig::builder_with_provider(Arc::clone(provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong(format!("the crypto provider is of no use: {error}")))?
            .with_root_certificates(certificates.roots()?);
        let config = match &certificates.client {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => {
                // What a key holds is not for an error: not even why it can't be read.
                let key = PrivateKeyDer::from_pem_slice(key)
                    .map_err(|_| wrong("the client's key must be one private key as PEM"))?;
                config
                    .with_client_auth_cert(read("the client's certificate", certificate)?, key)
                    .map_err(|error| wrong(format!("the client's certificate and key can't be used: {error}")))?
            }
        };
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }

    /// # Cancel safety
    /// The connection is closed.
    pub(super) async fn shake_hands(&self, host: &str, socket: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        self.0.connect(name, socket).await
    }
}

impl Certificates {
    pub(super) fn is_empty(&self) -> bool {
        self.authority.is_none() && self.client.is_none()
    }

    fn roots(&self) -> Result<RootCertStore, Error> {
        let mut roots = RootCertStore::empty();
        if let Some(pem) = &self.authority {
            for certificate in read("the authority", pem)? {
                roots.add(certificate).map_err(|error| wrong(format!("the authority can't be used: {error}")))?;
            }
            return Ok(roots);
        }
        let found = rustls_native_certs::load_native_certs();
        // One that is broken is no reason to mistrust the others; none at all is.
        if roots.add_parsable_certificates(found.certs).0 == 0 {
            let why = found.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
            return Err(wrong(format!("this system trusts no authority{why}: name one by tls_authority")));
        }
        Ok(roots)
    }
}

/// All certificates of a PEM text; at least one.
fn read(what: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    all.ok().filter(|all| !all.is_empty()).ok_or_else(|| wrong(format!("{what} must be certificates as PEM")))
}

pub(super) fn wrong(message: impl Into<Box<str>>) -> Error {
    Error::new(ErrorKind::InvalidSetting, "tls", message)
}
