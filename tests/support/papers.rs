//! Certificates of our own, and servers that go by them.
#![allow(dead_code, unreachable_pub)]

use rcgen::{BasicConstraints, Certificate, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use super::server::{Port, Server};

/// An authority of our own, and a certificate by it for this machine's loopback, which serves both ends.
pub struct Papers {
    pub authority: String,
    pub certificate: String,
    pub key: String,
}

impl Papers {
    pub fn new() -> Self {
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

    /// The options of a server that takes only clients with such papers.
    pub fn files(&self, folder: &std::path::Path) -> [String; 6] {
        let file = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let (authority, certificate) = (file("ca.pem", &self.authority), file("cert.pem", &self.certificate));
        let key = file("key.pem", &self.key);
        let [ca_option, cert_option, key_option] =
            ["--tls-ca-cert-file", "--tls-cert-file", "--tls-key-file"].map(str::to_owned);
        [ca_option, authority, cert_option, certificate, key_option, key]
    }

    /// Such a server, and its port.
    pub fn server(&self, folder: &std::path::Path) -> (Server, Port) {
        let port = Port::take();
        let (port_text, files) = (port.number.to_string(), self.files(folder));
        let mut options = vec!["--tls-port", &port_text];
        options.extend(files.iter().map(String::as_str));
        (Server::start(&options), port)
    }
}

pub struct Folder(pub std::path::PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
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
