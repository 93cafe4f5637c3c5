//! What a reply other than an answer means, and what is known when it comes.

use std::fmt;

use redis::{RedisError, Value};

use crate::error::{Error, ErrorKind};
use crate::key::Slot;
use crate::said::is_host;
use crate::topology::Master;

/// Why a request has no answer yet. Each kind stands for one reaction of the router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Proof that nothing ran: the slot is another master's.
    Moved { slot: Slot, to: Address },
    /// Proof that nothing ran: the slot is on its way, and this key is there already.
    Ask { to: Address },
    /// Proof that nothing ran: the slot is on its way, and the node can't tell yet.
    TryAgain,
    /// Proof that nothing ran: the sub-key has left for another server of the ring.
    Left,
    /// Proof that nothing ran: the server does not have the script.
    NoScript,
    /// Proof that nothing ran: the node can't serve now (READONLY, CLUSTERDOWN, LOADING, MASTERDOWN).
    Unavailable(String),
    /// The server would not run it, and will not if asked again: an operator has to act.
    Refused(String),
    /// It never left this process.
    NotSent(String),
    /// It was sent and no answer came: it may have run. Never sent again, never hopped.
    Unknown(String),
}

/// Where a redirect points. No host: the same as the node that said it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Address {
    pub host: Box<str>,
    pub port: u16,
}

impl From<&Master> for Address {
    fn from(master: &Master) -> Self {
        Self { host: master.host.clone(), port: master.port }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (open, close) = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "{open}{}{close}:{}", self.host, self.port)
    }
}

impl Fault {
    /// Tells answers from faults. `from` is who spoke, and `said` how its words may be shown.
    pub(crate) fn check(
        from: &Address,
        reply: Result<Value, RedisError>,
        said: &dyn Fn(&dyn fmt::Display) -> String,
    ) -> Result<Value, Self> {
        match reply {
            Ok(Value::ServerError(error)) => {
                Err(Self::of_code(from, error.code(), error.details().unwrap_or_default(), said))
            }
            Ok(value) => Ok(value),
            // What the server said comes as an error too where the crate's own cluster client passes it on.
            Err(error) => match error.code() {
                Some(code) => Err(Self::of_code(from, code, error.detail().unwrap_or_default(), said)),
                // The crate does not say whether a broken connection broke before or after it wrote.
                None => Err(Self::Unknown(format!("{from}: {}", said(&error)))),
            },
        }
    }

    /// The reply table. Exhaustive by its last arm: an error that is not known proves nothing but that the server
    /// refused; our scripts write last, so an error from inside one means that nothing was charged.
    fn of_code(from: &Address, code: &str, detail: &str, said: &dyn Fn(&dyn fmt::Display) -> String) -> Self {
        let said = || format!("{from} says {}", said(&format_args!("{code} {detail}")));
        match code {
            "MOVED" => {
                redirect(from, detail).map_or_else(|| Self::Refused(said()), |(slot, to)| Self::Moved { slot, to })
            }
            "ASK" => redirect(from, detail).map_or_else(|| Self::Refused(said()), |(_, to)| Self::Ask { to }),
            "TRYAGAIN" => Self::TryAgain,
            "NOSCRIPT" => Self::NoScript,
            // As a script says of a state that it finds; of this "version" is what stays behind. Or the ring has changed meanwhile.
            "SHARDLIMIT" if detail.contains(" of version 77,") => Self::Left,
            "SHARDLIMITRING" => Self::Left,
            "READONLY" | "CLUSTERDOWN" | "LOADING" | "MASTERDOWN" => Self::Unavailable(said()),
            // OOM, NOREPLICAS, MISCONF, BUSY, NOPERM, WRONGTYPE, NOAUTH, ERR and whatever else there will be.
            _ => Self::Refused(said()),
        }
    }

    /// What happened, for a log or as a part of another message.
    pub(crate) fn what(self) -> String {
        match self {
            Self::Moved { slot, to } => format!("slot {} was moved too often, at last to {to}", slot.number()),
            Self::Ask { to } => format!("redirected too often, at last to {to}"),
            Self::TryAgain => "the slot is being moved, and took too long".into(),
            Self::Left => "the key has moved to another node of the ring, which could not be found".into(),
            Self::NoScript => "the server forgets its scripts at once".into(),
            Self::Unavailable(said) | Self::Refused(said) => said,
            Self::NotSent(why) | Self::Unknown(why) => why,
        }
    }

    /// The error that a caller gets, with what is known and what to do.
    pub(crate) fn into_error(self) -> Error {
        let (kind, advice) = match self {
            Self::Moved { .. }
            | Self::Ask { .. }
            | Self::TryAgain
            | Self::Left
            | Self::Unavailable(_)
            | Self::NotSent(_) => (ErrorKind::NotSent, "nothing was charged; try again"),
            Self::NoScript | Self::Refused(_) => {
                (ErrorKind::Refused, "nothing was charged; asking again will not help, see `shardlimit doctor`")
            }
            Self::Unknown(_) => {
                (ErrorKind::Unknown, "the permits may have been charged; do not ask again for this call")
            }
        };
        let message = format!("{}; {advice}", self.what());
        Error::new(kind, "redis", message)
    }
}

/// `1234 10.0.0.1:6379`; the host may be missing or an IPv6 address without brackets.
fn redirect(from: &Address, detail: &str) -> Option<(Slot, Address)> {
    let (slot, address) = detail.trim().split_once(' ')?;
    let (host, port) = address.trim().rsplit_once(':')?;
    let host = match host.trim_start_matches('[').trim_end_matches(']') {
        "" | "?" => from.host.clone(),
        host => Box::from(Some(host).filter(|host| is_host(host))?),
    };
    Some((Slot::new(slot.parse().ok()?)?, Address { host, port: port.parse().ok()? }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::said::said_without;

    fn from() -> Address {
        Address { host: "10.0.0.1".into(), port: 6379 }
    }

    fn fault(words: &str) -> Fault {
        let bytes = format!("-{words}\r\n");
        Fault::check(&from(), redis::parse_redis_value(bytes.as_bytes()), &|words| said_without("", words)).unwrap_err()
    }

    #[test]
    fn redirects_name_slot_and_address() {
        let slot = Slot::new(3999).unwrap();
        let to = |host: &str, port| Address { host: host.into(), port };
        assert_eq!(fault("MOVED 3999 127.0.0.2:6381"), Fault::Moved { slot, to: to("127.0.0.2", 6381) });
        assert_eq!(fault("MOVED 3999 :6381"), Fault::Moved { slot, to: to("10.0.0.1", 6381) });
        assert_eq!(fault("MOVED 3999 ?:6381"), Fault::Moved { slot, to: to("10.0.0.1", 6381) });
        assert_eq!(fault("ASK 3999 fe80::1:6381"), Fault::Ask { to: to("fe80::1", 6381) });
        assert_eq!(fault("ASK 3999 redis-7.example.com:6381"), Fault::Ask { to: to("redis-7.example.com", 6381) });
    }

    #[test]
    fn a_redirect_to_nowhere_is_a_refusal() {
        for said in
            ["MOVED", "MOVED 3999", "MOVED 99999 h:1", "MOVED x h:1", "ASK 1 h:99999", "ASK 1 h", "ASK 1 \x1b[2J:1"]
        {
            assert!(matches!(fault(said), Fault::Refused(_)), "{said}");
        }
    }

    #[test]
    fn what_a_server_says_is_shown_as_a_terminal_can_bear_it() {
        let error = fault(&format!("ERR \x1b[31mred\u{202e}{}", "x".repeat(10_000))).into_error().to_string();
        assert!(error.contains("says ERR \\u{1b}[31mred\\u{202e}xxx"), "{error}");
        assert!(error.len() < 500, "{error}");
    }

    #[test]
    fn every_reply_of_the_table_has_its_reaction() {
        assert_eq!(fault("TRYAGAIN Multiple keys request during rehashing of slot"), Fault::TryAgain);
        assert_eq!(fault("NOSCRIPT No matching script. Please use EVAL."), Fault::NoScript);
        for said in ["READONLY You can't write", "CLUSTERDOWN The cluster is down", "LOADING x", "MASTERDOWN Link"] {
            assert!(matches!(fault(said), Fault::Unavailable(_)), "{said}");
        }
        for said in
            ["OOM x", "NOREPLICAS x", "MISCONF x", "BUSY x", "NOPERM x", "WRONGTYPE x", "NOAUTH x", "ERR x", "NEW x"]
        {
            assert!(matches!(fault(said), Fault::Refused(_)), "{said}");
        }
    }

    #[test]
    fn callers_learn_what_is_known() {
        assert_eq!(fault("OOM x").into_error().kind(), ErrorKind::Refused);
        assert_eq!(fault("CLUSTERDOWN x").into_error().kind(), ErrorKind::NotSent);
        assert_eq!(Fault::Unknown("time-out".into()).into_error().kind(), ErrorKind::Unknown);
        assert_eq!(Fault::NotSent("no master".into()).into_error().kind(), ErrorKind::NotSent);
    }
}
