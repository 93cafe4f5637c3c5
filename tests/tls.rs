//! Servers that speak TLS only, and that ask their clients who they are.
#![cfg(feature = "tls")]

#[path = "support/papers.rs"]
mod papers;
#[path = "support/server.rs"]
#[allow(dead_code, unreachable_pub)]
mod server;

use std::time::Duration;

use papers::{Folder, Papers};
use shardlimit::{ErrorKind, FailurePolicy, Limiter};

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
    let url = format!("rediss://localhost:{}", port.number);
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
