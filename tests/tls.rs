//! Servers that speak TLS only, and that ask their clients who they are.
#![cfg(feature = "tls")]

#[path = "support/server.rs"]
#[allow(dead_code, unreachable_pub)]
mod server;

use std::net::TcpListener;
use std::time::Duration;

use rcgen::{BasicConstraints, Certificate, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use server::Server;
use shardlimit::{ErrorKind, FailurePolicy, Limiter};

/// An authority of our own, and a certificate by it for this machine's loopback, which serves both ends.
struct Papers {
    authority: String,
    certificate: String,
    key: String,
}

impl Papers {
    fn new() -> Self {
        let authority_key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        // Named, or openssl takes the certificates that it signs for its own.
        params.distinguished_name.push(DnType::CommonName, "the authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority: Certificate = params.self_signed(&authority_key).unwrap();
        let issuer = Issuer::new(params, authority_key);
        let key = KeyPair::generate().unwrap();
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
        Self { authority: authority.pem(), certificate: certificate.pem(), key: key.serialize_pem() }
    }

    /// A server that takes only clients with such papers.
    fn server(&self, folder: &std::path::Path) -> (Server, u16) {
        let file = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (authority, certificate) = (file("ca.pem", &self.authority), file("cert.pem", &self.certificate));
        let (key, port_text) = (file("key.pem", &self.key), port.to_string());
        let server = Server::start(&[
            "--tls-port",
            &port_text,
            "--tls-ca-cert-file",
            &authority,
            "--tls-cert-file",
            &certificate,
            "--tls-key-file",
            &key,
        ]);
        (server, port)
    }
}

struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("shardlimit-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn both_ends_show_their_papers() {
    // The order matters: a process without a provider of cryptography is told so, and does not panic.
    let refused = Limiter::builder().redis(["rediss://u:secret@localhost:1"]).build().unwrap_err();
    assert_eq!((refused.kind(), refused.field()), (ErrorKind::InvalidSetting, "tls"));
    assert!(refused.to_string().contains("crypto provider"), "{refused}");
    assert!(!refused.to_string().contains("secret"), "{refused}");
    rustls::crypto::ring::default_provider().install_default().unwrap();

    let (folder, papers) = (Folder::new("tls"), Papers::new());
    let (_server, port) = papers.server(&folder.0);
    let url = format!("rediss://localhost:{port}");
    let builder = Limiter::builder().redis([url]).deadline(Duration::from_secs(10)).on_failure(FailurePolicy::Error);

    let known = builder.clone().tls_authority(papers.authority.clone()).tls_client(papers.certificate, papers.key);
    let limit = known.build().unwrap().define("api", "2/day".parse().unwrap()).unwrap();
    assert!(limit.acquire("alice").await.unwrap().is_allowed());

    let stranger = builder.clone().tls_authority(papers.authority).build().unwrap();
    let limit = stranger.define("api", "2/day".parse().unwrap()).unwrap();
    let error = limit.acquire("alice").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotSent, "a client without papers: {error}");

    let wary = builder.tls_authority(Papers::new().authority).build().unwrap();
    let limit = wary.define("api", "2/day".parse().unwrap()).unwrap();
    let error = limit.acquire("alice").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotSent, "a server that nobody trusts: {error}");
}

#[test]
fn certificates_need_a_url_that_wants_them() {
    let error = Limiter::builder().redis(["redis://h:1"]).tls_authority("x").build().unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidSetting, "tls"));
}
