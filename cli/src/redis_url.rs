//! Where servers are: URLs as an option gives them. What may be a password is never shown.

use std::fmt;
use std::str::FromStr;

use redis::{ConnectionAddr, ConnectionInfo};

use crate::error::Failure;

const ACCEPTED: &str = "must be redis://[user:password@]host:port, rediss://… or host:port";

/// One or more URLs, with commas between.
#[derive(Clone, Debug)]
pub(crate) struct RedisUrls(pub Vec<RedisUrl>);

/// The nodes of a ring, with commas between, as the library reads them. They may hold passwords.
#[derive(Clone)]
pub(crate) struct RingNodes(pub Vec<String>);

impl FromStr for RingNodes {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self, Failure> {
        let nodes: Vec<String> = text.split(',').map(|node| node.trim().to_owned()).collect();
        // The library says what is wrong with them, and nothing is opened yet.
        shardlimit::Limiter::builder().ring(nodes.clone()).build()?;
        Ok(Self(nodes))
    }
}

impl fmt::Debug for RingNodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RingNodes({})", self.0.len())
    }
}

/// A checked URL with a scheme. It may hold a password: for connecting only.
#[derive(Clone)]
pub(crate) struct RedisUrl {
    url: String,
    address: String,
}

impl RedisUrl {
    /// The whole URL, password and all.
    pub(crate) fn as_str(&self) -> &str {
        &self.url
    }

    /// `host:port`, which may be shown.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.url.starts_with("rediss://")
    }

    fn read(text: &str) -> Option<Self> {
        let url = if text.contains("://") { text.to_owned() } else { format!("redis://{text}") };
        // Whether this build has TLS is not a matter of how the URL is written.
        let plain = match url.split_once("://")? {
            ("redis", _) => url.clone(),
            ("rediss", rest) => format!("redis://{}", rest.trim_end_matches("/#insecure")),
            _ => return None,
        };
        let info: ConnectionInfo = plain.parse().ok()?;
        let ConnectionAddr::Tcp(host, port) = info.addr() else { return None };
        // A / or ? in a password ends the host early: what follows it would pass for a path, what precedes it for
        // a host, and both would be shown.
        let rest = url.split_once("://").map_or("", |(_, rest)| rest);
        let torn = rest.rfind('@').is_some_and(|at| rest[..at].contains(['/', '?', '#', '\\']));
        let bare = !text.contains("://") && !text.ends_with(&format!(":{port}"));
        (!torn && !bare).then(|| Self { address: address(host, *port), url })
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedisUrl").field(&self.address).finish()
    }
}

impl FromStr for RedisUrls {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self, Failure> {
        let mut urls = Vec::new();
        for (index, part) in text.split(',').enumerate() {
            let part = part.trim();
            urls.push(RedisUrl::read(part).ok_or_else(|| refuse(text, index + 1, part))?);
        }
        Ok(Self(urls))
    }
}

/// Quotes the bad one only where no password can be in it. A comma in a password tears it into two parts, so one `@`
/// anywhere makes every part a suspect.
fn refuse(text: &str, number: usize, part: &str) -> Failure {
    let hint = "other characters in a password than letters and digits are written %2C, %40, …";
    let message = match part.rsplit_once('@') {
        Some((_, host)) => format!("{ACCEPTED}, got \"…@{host}\"; {hint}"),
        None if text.contains('@') => format!("{ACCEPTED}; number {number} is not; {hint}"),
        None => format!("{ACCEPTED}, got {part:?}"),
    };
    Failure::usage("redis", message)
}

/// `host:port`; an IPv6 address in brackets.
pub(crate) fn address(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// A text with whatever stands between `://`, a quote or a space and an `@` hidden, if a colon is in it.
pub(crate) fn without_passwords(text: &str) -> String {
    let word = |word: &str| match word.rsplit_once('@') {
        Some((secret, host)) if secret.contains(':') => {
            let scheme = secret.find("://").map_or("", |end| &secret[..end + 3]);
            format!("{scheme}…@{host}")
        }
        _ => word.to_owned(),
    };
    text.split_inclusive([' ', '\'', '"', ',']).map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<RedisUrl>, Failure> {
        text.parse().map(|urls: RedisUrls| urls.0)
    }

    #[test]
    fn every_form_of_a_url() {
        let urls = read("redis://a:1,rediss://u:p@b:2/#insecure,c:3, redis://[::1]:4,u:p@d:5,redis://e").unwrap();
        let addresses: Vec<&str> = urls.iter().map(RedisUrl::address).collect();
        assert_eq!(addresses, ["a:1", "b:2", "c:3", "[::1]:4", "d:5", "e:6379"]);
        assert_eq!(urls[2].as_str(), "redis://c:3");
        let tls: Vec<bool> = urls.iter().map(RedisUrl::is_tls).collect();
        assert_eq!(tls, [false, true, false, false, false, false]);
    }

    #[test]
    fn the_bad_one_is_named() {
        for text in ["", "a", "a:1,", "http://a:1", "redis://", "a:99999", "a:x", "redis://a:1/x", "unix:///tmp/x"] {
            let failure = read(text).expect_err(text);
            assert_eq!((failure.kind.as_str(), failure.field.as_str()), ("usage", "redis"));
        }
        assert!(read("a:1,b:99999").unwrap_err().message.contains("\"b:99999\""));
    }

    #[test]
    fn no_part_of_a_password_is_shown() {
        for text in [
            "redis://u:secret@h:99999",
            "redis://u:sec,ret@h:1",
            "redis://u:1/secret@h:1",
            "redis://u:1?secret@h:1",
            "redis://u:1#secret@h:1",
            "u:secret@h:x",
            "redis://:secret,x@h:1",
        ] {
            let message = read(text).expect_err(text).message;
            assert!(!message.contains("sec") && !message.contains("ret@"), "{message}");
        }
        let shown = format!("{:?}", read("redis://u:secret@h:1").unwrap());
        assert!(!shown.contains("secret"), "{shown}");
    }

    #[test]
    fn passwords_are_hidden_in_other_texts() {
        let text = "unexpected argument 'redis://u:secret@h:1' found, and u:secret@h:2";
        assert_eq!(without_passwords(text), "unexpected argument 'redis://…@h:1' found, and …@h:2");
        assert_eq!(without_passwords("alice@example.com"), "alice@example.com");
    }
}
