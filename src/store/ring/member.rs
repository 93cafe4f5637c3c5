//! A member of a ring: a server, or a master that Sentinels watch over.

use std::fmt;

use crate::error::{Error, ErrorKind};
use crate::said::is_host;
use crate::store::cluster::{Address, without_secret};
use crate::topology::MOST_WEIGHT;

const SENTINEL: &str = "sentinel://";

/// What a ring knows of one of its nodes. Users and passwords are no part of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Member {
    /// What it is called: its slots hang on it. The address of a server, the Sentinels' name for a master.
    pub name: Box<str>,
    /// Its part of the slots, against those of the others.
    pub weight: u16,
    pub place: Place,
}

/// Where it is found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    Server(Address),
    /// Any of these knows.
    Sentinels(Vec<Address>),
}

impl Member {
    /// Reads `redis://[user:password@]host:port[*weight]` or `sentinel://[user:password@]host:port[+host:port…]/name[*weight]`, and
    /// says by which URL to log in.
    pub(crate) fn read(text: &str) -> Result<(Self, String), Error> {
        let bad =
            |how: &str| Error::new(ErrorKind::InvalidSetting, "ring", format!("{:?} {how}", without_secret(text)));
        let (url, weight) = match text.rsplit_once('*') {
            Some((url, weight)) if weight.bytes().all(|byte| byte.is_ascii_digit()) => {
                (url, weight.parse().unwrap_or(0))
            }
            _ => (text, 1),
        };
        if !(1..=MOST_WEIGHT).contains(&weight) {
            return Err(bad(&format!("must have a weight from 1 to {MOST_WEIGHT}")));
        }
        let Some(rest) = url.strip_prefix(SENTINEL) else {
            let address = Address::of_url(url)?;
            return Ok((
                Self { name: address.to_string().into(), weight, place: Place::Server(address) },
                url.to_owned(),
            ));
        };
        let (user, rest) = rest.rsplit_once('@').map_or(("", rest), |(user, rest)| (user, rest));
        let (hosts, name) =
            rest.split_once('/').ok_or_else(|| bad("must name a master: sentinel://host:26379/name"))?;
        if !is_name(name) {
            return Err(bad(
                "has a name of a master that is empty, or has characters other than letters, digits and .-_:",
            ));
        }
        let addresses: Option<Vec<Address>> = hosts.split('+').map(|host| address(host, 26_379)).collect();
        let addresses = addresses.ok_or_else(|| bad("must name Sentinels: sentinel://host:26379+host:26379/name"))?;
        let first = &addresses[0];
        let login = if user.is_empty() { format!("redis://{first}") } else { format!("redis://{user}@{first}") };
        Ok((Self { name: name.into(), weight, place: Place::Sentinels(addresses) }, login))
    }

    /// As a record has it, in one line; see [`parse`](Self::parse).
    pub(super) fn line(&self) -> String {
        let Self { name, weight, place } = self;
        match place {
            Place::Server(address) => format!("{name} {weight} server {address}"),
            Place::Sentinels(addresses) => {
                let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
                format!("{name} {weight} sentinels {}", addresses.join("+"))
            }
        }
    }

    /// Whoever can write to a server may have written it.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let [name, weight, kind, place] = line.split(' ').collect::<Vec<_>>().try_into().ok()?;
        let weight = weight.parse().ok().filter(|weight| (1..=MOST_WEIGHT).contains(weight))?;
        let mut addresses = place.split('+').map(|text| address(text, 0)).collect::<Option<Vec<_>>>()?;
        let place = match (kind, addresses.len()) {
            ("server", 1) => Place::Server(addresses.remove(0)),
            ("sentinels", 1..=16) => Place::Sentinels(addresses),
            _ => return None,
        };
        is_name(name).then(|| Self { name: name.into(), weight, place })
    }
}

/// A word of a record's line, also where it is shown.
pub(super) fn is_name(text: &str) -> bool {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
    (1..=255).contains(&text.len()) && text.bytes().all(is_good)
}

/// `host:port`, IPv6 in brackets; without a port this one, unless it is zero.
fn address(text: &str, port: u16) -> Option<Address> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, number)) if !number.ends_with(']') => (host, number.parse().ok()?),
        _ => (text, port),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    (port > 0 && is_host(host)).then(|| Address { host: host.into(), port })
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_read_as_they_are_written() {
        for (text, name, weight, login) in [
            ("redis://10.0.0.1:7000", "10.0.0.1:7000", 1, "redis://10.0.0.1:7000"),
            ("10.0.0.1:7000*3", "10.0.0.1:7000", 3, "10.0.0.1:7000"),
            ("redis://u:p*4@h:1", "h:1", 1, "redis://u:p*4@h:1"),
            ("redis://[::1]:7000", "[::1]:7000", 1, "redis://[::1]:7000"),
            ("sentinel://a:1+b/main*2", "main", 2, "redis://a:1"),
            ("sentinel://u:p@a:1/main", "main", 1, "redis://u:p@a:1"),
        ] {
            let (member, url) = Member::read(text).unwrap();
            assert_eq!((&*member.name, member.weight, &*url), (name, weight, login));
            assert_eq!(Member::parse(&member.line()), Some(member), "{text}");
        }
    }

    #[test]
    fn what_is_no_member_is_named_without_its_password() {
        for text in [
            "http://u:secret@h",
            "redis://u:secret@h:1*0",
            "redis://u:secret@h:1*101",
            "sentinel://u:secret@h:1",
            "sentinel://u:secret@h:1/",
            "sentinel://u:secret@h:1/a b",
            "sentinel://u:secret@/a",
            "sentinel://h+/a",
        ] {
            let error = Member::read(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidSetting, "{text}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_line_that_is_none_is_refused() {
        for line in [
            "",
            "a 1 server",
            "a 0 server h:1",
            "a 1 server h:0",
            "a 1 other h:1",
            "a 1 server h:1+h:2",
            "\x1b 1 server h:1",
        ] {
            assert_eq!(Member::parse(line), None, "{line:?}");
        }
    }
}
