//! A router that is closed, where a look is still under way: no user can tell when.

use std::io::ErrorKind;
use std::net::TcpListener;

use redis::cmd;

#[cfg(feature = "tls")]
use super::Certificates;
use super::{Fault, Patience, Router, Settings, connect_ahead};
use crate::sync::Arc;
use crate::topology::parse::single_server;

/// A master that was found while the limiter came to its end had connections that lived as long as the limiter's object.
#[tokio::test]
async fn a_master_that_is_found_after_the_end_is_not_connected() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let settings = Settings::new(
        &["127.0.0.1:1".into()],
        Patience::default(),
        #[cfg(feature = "tls")]
        &Certificates::default(),
    );
    let router = Arc::new(Router::new(settings.unwrap(), None));
    router.close();
    assert!(router.adopt(single_server("127.0.0.1", port)));
    connect_ahead(&router);
    let [node] = &*router.nodes() else { panic!("there is one master") };
    let asked = node.ask(&[cmd("PING")]).await;
    assert!(matches!(asked, Err(Fault::NotSent(why)) if why.contains("shut down")));
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
}
