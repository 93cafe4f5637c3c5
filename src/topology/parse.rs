//! What a node says about the cluster, as a [`Topology`].

use std::fmt;
use std::ops::RangeInclusive;

use redis::Value;

use super::snapshot::{Malformed, Master, Topology};
use crate::key::Slot;
use crate::said::is_host;

/// Why a node's word was not taken.
#[derive(Debug)]
pub(crate) enum BadTopology {
    /// The reply does not have the form of a reply to that command.
    Form(String),
    /// It contradicts itself.
    Content(Malformed),
}

impl fmt::Display for BadTopology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form(wrong) => f.write_str(wrong),
            Self::Content(malformed) => malformed.fmt(f),
        }
    }
}

impl From<Malformed> for BadTopology {
    fn from(malformed: Malformed) -> Self {
        Self::Content(malformed)
    }
}

/// Reads the replies to CLUSTER SLOTS and CLUSTER INFO. `host` is where they came from: a node that does not know how
/// others reach it (an empty host, `?` or nothing) means the address that was asked.
///
/// # Errors
/// Whatever is not understood: a part of a reply is never taken, because two shards could end on one master.
pub(crate) fn topology(host: &str, slots: &Value, info: &Value) -> Result<Topology, BadTopology> {
    let masters = list(slots, "CLUSTER SLOTS")?.iter().map(|range| range_of(host, range));
    Ok(Topology::new(epoch(info)?, masters.collect::<Result<Vec<_>, _>>()?)?)
}

/// A server that is not part of a cluster: one master that owns every slot.
pub(crate) fn single_server(host: &str, port: u16) -> Topology {
    let id = format!("{host}:{port}").into();
    let everything = vec![0..=Slot::COUNT - 1];
    Topology::new(0, [(Master { id, host: host.into(), port }, everything)]).expect("one range, once")
}

/// `[first, last, [host, port, id, …], replicas…]`. What stands behind the id, and replicas, do not matter here.
fn range_of(asked: &str, range: &Value) -> Result<(Master, Vec<RangeInclusive<u16>>), BadTopology> {
    let [first, last, master, ..] = list(range, "a range of slots")? else {
        return Err(wrong("a range of slots", "has no master", range));
    };
    let [host, port, more @ ..] = list(master, "a master")? else {
        return Err(wrong("a master", "has no address", master));
    };
    let host = match host {
        Value::Nil => asked,
        host => match text(host, "a host")? {
            "" | "?" => asked,
            host if is_host(host) => host,
            _ => return Err(wrong("a host", "is no name and no address", host)),
        },
    };
    let port = number(port, "a port")?;
    if port == 0 {
        return Err(wrong("a port", "must not be 0", master));
    }
    let id = match more {
        [id, ..] => match text(id, "a node id")? {
            text if is_host(text) => text.into(),
            _ => return Err(wrong("a node id", "is no id", id)),
        },
        [] => format!("{host}:{port}").into(),
    };
    Ok((Master { id, host: host.into(), port }, vec![number(first, "a slot")?..=number(last, "a slot")?]))
}

fn epoch(info: &Value) -> Result<u64, BadTopology> {
    let lines = text(info, "CLUSTER INFO")?;
    let epoch = lines.lines().find_map(|line| line.trim_end().strip_prefix("cluster_current_epoch:"));
    epoch.and_then(|epoch| epoch.parse().ok()).ok_or_else(|| wrong("CLUSTER INFO", "names no current epoch", info))
}

fn list<'a>(value: &'a Value, what: &str) -> Result<&'a [Value], BadTopology> {
    match value {
        Value::Array(values) => Ok(values),
        other => Err(wrong(what, "is not a list", other)),
    }
}

fn text<'a>(value: &'a Value, what: &str) -> Result<&'a str, BadTopology> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).map_err(|_| wrong(what, "is not text", value)),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Ok(text),
        other => Err(wrong(what, "is not text", other)),
    }
}

fn number(value: &Value, what: &str) -> Result<u16, BadTopology> {
    match value {
        Value::Int(number) => u16::try_from(*number).map_err(|_| wrong(what, "is out of range", value)),
        other => Err(wrong(what, "is not a number", other)),
    }
}

fn wrong(what: &str, how: &str, value: &Value) -> BadTopology {
    BadTopology::Form(format!("{what} {how}: {}", kind(value)))
}

/// What it is, and of what is no number not what it says: that could be anything, a password too.
fn kind(value: &Value) -> String {
    match value {
        Value::Nil => "nothing".into(),
        Value::Int(number) => number.to_string(),
        Value::Array(values) => format!("a list of {}", values.len()),
        Value::BulkString(bytes) => format!("a text of {} bytes", bytes.len()),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => format!("a text of {} bytes", text.len()),
        _ => "something of another kind".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn info(epoch: u64) -> Value {
        bulk(&format!("cluster_state:ok\r\ncluster_current_epoch:{epoch}\r\ncluster_my_epoch:2\r\n"))
    }

    fn range(first: i64, last: i64, nodes: Vec<Value>) -> Value {
        Value::Array([vec![Value::Int(first), Value::Int(last)], nodes].concat())
    }

    fn node(host: Value, port: i64, id: &str) -> Value {
        Value::Array(vec![host, Value::Int(port), bulk(id), Value::Array(vec![])])
    }

    fn addresses(topology: &Topology) -> Vec<String> {
        topology.masters().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn hosts_of_every_kind_are_understood() {
        let slots = Value::Array(vec![
            range(0, 9, vec![node(bulk("10.0.0.1"), 6379, "a"), node(bulk("10.0.0.9"), 6379, "replica")]),
            range(10, 19, vec![node(bulk("fe80::1"), 6380, "b")]),
            range(20, 29, vec![node(bulk("redis-2.example.com"), 6381, "c")]),
            range(30, 39, vec![node(Value::Nil, 6382, "d")]),
            range(40, 49, vec![node(bulk(""), 6383, "e")]),
            range(50, 59, vec![node(bulk("?"), 6384, "f")]),
            range(60, 69, vec![node(bulk("10.0.0.1"), 6379, "a")]),
        ]);
        let topology = topology("seed", &slots, &info(7)).unwrap();
        assert_eq!(
            addresses(&topology),
            ["10.0.0.1:6379", "[fe80::1]:6380", "redis-2.example.com:6381", "seed:6382", "seed:6383", "seed:6384"]
        );
        assert_eq!((topology.epoch(), topology.covered()), (7, 70));
    }

    #[test]
    fn a_cluster_without_slots_is_a_topology_without_masters() {
        let topology = topology("seed", &Value::Array(vec![]), &info(0)).unwrap();
        assert!(topology.masters().is_empty());
    }

    #[test]
    fn a_single_server_owns_everything() {
        let topology = single_server("localhost", 6379);
        assert_eq!((topology.covered(), topology.masters().len()), (16_384, 1));
    }

    #[test]
    fn what_is_malformed_is_refused_whole() {
        let good = || range(0, 9, vec![node(bulk("h"), 1, "a")]);
        for bad in [
            bulk("no list"),
            range(10, 19, vec![]),
            range(10, 19, vec![Value::Array(vec![bulk("h")])]),
            range(10, 19, vec![node(bulk("h"), 0, "b")]),
            range(10, 19, vec![node(bulk("h"), 70_000, "b")]),
            range(10, 19, vec![node(Value::Int(3), 1, "b")]),
            range(10, 16_384, vec![node(bulk("h"), 2, "b")]),
            range(19, 10, vec![node(bulk("h"), 2, "b")]),
            range(9, 10, vec![node(bulk("h"), 2, "b")]),
            range(-1, 10, vec![node(bulk("h"), 2, "b")]),
            range(10, 19, vec![node(bulk("other"), 1, "a")]),
            range(10, 19, vec![node(bulk("\x1b]0;x\x07"), 2, "b")]),
            range(10, 19, vec![node(bulk(&"h".repeat(300)), 2, "b")]),
            range(10, 19, vec![node(bulk("h"), 2, "b\n")]),
        ] {
            let shown = format!("{bad:?}");
            assert!(topology("seed", &Value::Array(vec![good(), bad]), &info(1)).is_err(), "{shown}");
        }
        assert!(topology("seed", &Value::Array(vec![good()]), &bulk("cluster_state:ok")).is_err());
        assert!(topology("seed", &Value::Nil, &info(1)).is_err());
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Nil),
            (-3i64..20_000).prop_map(Value::Int),
            prop::collection::vec(any::<u8>(), 0..4).prop_map(Value::BulkString),
        ];
        leaf.prop_recursive(4, 64, 5, |inner| prop::collection::vec(inner, 0..5).prop_map(Value::Array))
    }

    proptest! {
        #[test]
        fn nothing_that_a_server_says_makes_it_panic(slots in any_value(), said in any_value()) {
            let _ = topology("seed", &slots, &said);
            let _ = topology("seed", &slots, &info(1));
        }
    }
}
