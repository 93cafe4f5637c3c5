//! Passwords and keys of certificates: whatever goes wrong, no error, event, span or `Debug` shows one.
#![cfg(all(feature = "redis", feature = "tls"))]

#[path = "support/hostile.rs"]
mod hostile;
#[path = "support/listener.rs"]
mod listener;
#[path = "support/papers.rs"]
mod papers;
#[path = "support/server.rs"]
#[allow(dead_code, unreachable_pub)]
mod server;

use std::io::Write;
use std::time::Duration;

use hostile::{Act, Hostile};
use listener::Listener;
use papers::{Folder, Papers};
use redis::cmd;
use server::Server;
use shardlimit::{Builder, FailurePolicy, Limiter};
use tracing::Level;

const PASSWORD: &str = "hunter2";

/// All that a user of this client gets to see, whether it works or not.
async fn all_that_shows(builder: Builder) -> String {
    let mut seen = vec![format!("{builder:?}")];
    let limiter = match builder.timeout(Duration::from_millis(300)).build() {
        Ok(limiter) => limiter,
        Err(error) => return format!("{seen:?} {error} {error:?}"),
    };
    let limit = limiter.define("api", "100/s".parse().unwrap()).unwrap();
    let handle = limit.handle("alice").unwrap();
    for _ in 0..2 {
        seen.push(format!("{:?}", limit.acquire("alice").await));
        seen.push(limit.acquire("alice").await.map_or_else(|error| error.to_string(), |_| String::new()));
    }
    seen.push(format!("{:?} {:?}", limit.plan("alice").await, limit.peek("alice").await));
    let topology = limiter.watch_topology().map(|watch| watch.map(|watch| watch.current()));
    seen.push(format!("{topology:?} {:?} {:?}", handle.counts(), limiter.breakers()));
    format!("{} {limiter:?} {limit:?} {handle:?}", seen.join(" "))
}

fn with(url: impl Into<String>) -> Builder {
    Limiter::builder().redis([url]).deadline(Duration::from_secs(60)).on_failure(FailurePolicy::Error)
}

/// A server with a user of that password, and these settings.
fn server_with(options: &[&str]) -> Server {
    let server = Server::start(options);
    let words = ["on", ">hunter2", "~*", "+@all"];
    cmd("ACL").arg("SETUSER").arg("gateway").arg(&words).exec(&mut server.connection()).unwrap();
    server
}

/// One test: what is heard is heard by the whole process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_is_ever_shown() {
    let listener = Listener::default();
    tracing::subscriber::set_global_default(listener.clone()).unwrap();
    rustls::crypto::ring::default_provider().install_default().unwrap();
    let mut seen: Vec<(&str, String)> = Vec::new();
    let url = |user: &str, port: u16| format!("redis://{user}:{PASSWORD}@127.0.0.1:{port}");

    let server = server_with(&[]);
    seen.push(("all is well", all_that_shows(with(url("gateway", server.port))).await));
    seen.push(("an unknown user", all_that_shows(with(url("nobody", server.port))).await));
    seen.push(("all is well without a password", all_that_shows(with(url("", server.port))).await));
    cmd("ACL").arg("SETUSER").arg("gateway").arg("-@all").exec(&mut server.connection()).unwrap();
    seen.push(("no rights", all_that_shows(with(url("gateway", server.port))).await));
    cmd("CONFIG").arg("SET").arg("requirepass").arg("other").exec(&mut server.connection()).unwrap();
    seen.push(("a wrong password", all_that_shows(with(url("", server.port))).await));
    seen.push(("nobody there", all_that_shows(with(url("gateway", 1))).await));
    seen.push(("a wrong port", all_that_shows(with(format!("redis://u:{PASSWORD}@127.0.0.1:port"))).await));
    seen.push(("a torn password", all_that_shows(with(format!("redis://u:12/{PASSWORD}?@127.0.0.1"))).await));

    // It repeats the words that came with a command that it does not know.
    let old = server_with(&["--rename-command", "HELLO", ""]);
    let told = all_that_shows(with(url("gateway", old.port))).await;
    assert!(told.contains("unknown command 'HELLO'"), "{told}");
    seen.push(("a server without HELLO", told));
    let echo = Hostile::start();
    echo.attack(|words, to| Act::Done(to.write_all(&[b"-ERR ", words.join(&b' ').as_slice(), b"\r\n"].concat())));
    let told = all_that_shows(with(url("gateway", echo.port()))).await;
    assert!(told.contains("HELLO 3 AUTH gateway ***"), "{told}");
    seen.push(("a server that repeats everything", told));

    for late in [&b"EVALSHA"[..], b"CLUSTER"] {
        echo.attack(move |words, to| match words.first() {
            Some(word) if word == late => Act::Done(to.write_all(format!("-ERR {PASSWORD}?\r\n").as_bytes())),
            _ => Act::Honest,
        });
        // Any password is right for a user without one.
        let told = all_that_shows(with(url("default", echo.port()))).await;
        assert!(told.contains(" ***?"), "{told}");
        seen.push(("a server that repeats it after the log-in", told));
        for reply in
            [format!("+{PASSWORD}\r\n"), format!("*1\r\n+{PASSWORD}\r\n"), format!("*2\r\n+{PASSWORD}\r\n+a\r\n")]
        {
            echo.attack(move |words, to| match words.first() {
                Some(word) if word == late => Act::Done(to.write_all(reply.as_bytes())),
                _ => Act::Honest,
            });
            seen.push(("a server that answers with it", all_that_shows(with(url("default", echo.port()))).await));
        }
    }

    let (folder, papers) = (Folder::new("secrets"), Papers::new());
    let (_tls_server, kept) = papers.server(&folder.0);
    let tls_port = kept.number;
    let tls = |host: &str, port: u16| with(format!("rediss://gateway:{PASSWORD}@{host}:{port}"));
    let client = |builder: Builder| builder.tls_client(papers.certificate.clone(), papers.key.clone());
    let known = |builder: Builder| client(builder.tls_authority(papers.authority.clone()));
    seen.push(("TLS, a wrong password", all_that_shows(known(tls("localhost", tls_port))).await));
    seen.push((
        "a server that nobody trusts",
        all_that_shows(tls("localhost", tls_port).tls_authority(Papers::new().authority)).await,
    ));
    seen.push(("a server of another name", all_that_shows(known(tls("127.0.0.2", tls_port))).await));
    seen.push(("TLS to a server without", all_that_shows(known(tls("localhost", server.port))).await));
    seen.push(("no TLS to a server with", all_that_shows(with(url("gateway", tls_port))).await));
    seen.push((
        "a client without papers",
        all_that_shows(tls("localhost", tls_port).tls_authority(papers.authority.clone())).await,
    ));
    for half in [papers.key.len() / 2, 40, papers.key.len() - 30] {
        let torn = tls("localhost", tls_port).tls_client(papers.certificate.clone(), &papers.key[..half]);
        seen.push(("half a key", all_that_shows(torn).await));
    }
    let swapped = tls("localhost", tls_port).tls_client(papers.key.clone(), papers.certificate.clone());
    seen.push(("key and certificate mixed up", all_that_shows(swapped).await));

    let key_line = papers.key.lines().nth(1).unwrap();
    let told = listener.lines("").join("\n");
    assert!(listener.has(Level::ERROR, "unreachable") && listener.has(Level::ERROR, "topology unknown"), "{told}");
    assert!(listener.has(Level::DEBUG, "span acquire"), "quieter things are heard too");
    for (what, text) in seen.iter().map(|(what, text)| (*what, text)).chain([("what was told", &told)]) {
        assert!(!text.contains(PASSWORD), "{what}: {text}");
        assert!(!text.contains(&key_line[..20]), "{what}: {text}");
    }
    for (what, text) in seen.iter().filter(|(what, _)| !what.starts_with("all is well")) {
        println!("{what}: {text}\n");
        assert!(text.contains("Err") || text.contains("Error"), "{what} went well: {text}");
    }
}
