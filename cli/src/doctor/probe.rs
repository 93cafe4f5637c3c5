//! What one server says about itself, and how far away it is.

use std::collections::HashMap;
use std::time::Instant;

use redis::{ConnectionInfo, Value, from_redis_value_ref};

use super::permission::{self, Missing};
use crate::node::{Node, field};

const PINGS: usize = 20;
/// The quickest of so many is nearly always one that nothing held up.
const CLOCK_READINGS: usize = 8;

/// `None` in a field: the user may not ask, or the server does not say.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    pub version: Option<Version>,
    pub maxmemory: Option<u64>,
    pub maxmemory_policy: Option<String>,
    pub full_coverage: Option<bool>,
    /// `ok` or `fail`: what it holds of the cluster.
    pub state: Option<String>,
    /// Its own role, and for a replica whether it is in step with its master.
    pub is_replica: bool,
    pub in_step: bool,
    pub connected_replicas: u64,
    pub missing: Vec<Missing>,
    pub round_trip_us: Option<f64>,
    /// How far its clock is ahead of ours, on a scale that all servers of one examination share.
    pub clock_us: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Version {
    /// Of the Redis that it is, or is compatible with.
    pub compatible: (u32, u32),
    /// `7.0.15`, `valkey 8.1.0`.
    pub text: String,
}

/// A server that answers.
pub(super) struct Patient {
    node: Node,
    pub facts: Facts,
}

/// Connects and makes sure that it answers at all.
pub(super) fn connect(info: ConnectionInfo) -> Result<Node, String> {
    let mut node = Node::connect(info).map_err(|error| error.to_string())?;
    match node.ask::<Value>(&["PING"]) {
        Ok(_) => Ok(node),
        // May do other things.
        Err(error) if error.code() == Some("NOPERM") => Ok(node),
        Err(error) if error.code() == Some("NOAUTH") => {
            Err("it wants a password: redis://user:password@host:port".into())
        }
        Err(error) => Err(error.to_string()),
    }
}

impl Patient {
    /// `limit_name`: whose keys the user must be allowed to use; `None` for a replica, which the limiter doesn't ask.
    pub(super) fn examine(info: ConnectionInfo, limit_name: Option<&str>) -> Result<Self, String> {
        let mut node = connect(info)?;
        let info: String = node.ask(&["INFO"]).unwrap_or_default();
        let number = |name| field(&info, name).and_then(|value| value.parse().ok());
        let cluster: String = node.ask(&["CLUSTER", "INFO"]).unwrap_or_default();
        let facts = Facts {
            version: Version::of(&info).or_else(|| version_by_hello(&mut node)),
            maxmemory: number("maxmemory"),
            maxmemory_policy: field(&info, "maxmemory_policy").map(ToOwned::to_owned),
            full_coverage: full_coverage(&mut node),
            state: field(&cluster, "cluster_state").map(ToOwned::to_owned),
            is_replica: field(&info, "role") == Some("slave"),
            in_step: field(&info, "master_link_status").is_none_or(|link| link == "up"),
            connected_replicas: number("connected_slaves").unwrap_or(0),
            missing: limit_name.map(|name| permission::missing(&mut node, name)).unwrap_or_default(),
            round_trip_us: None,
            clock_us: None,
        };
        Ok(Self { node, facts })
    }

    /// One server at a time: they would hold each other up.
    pub(super) fn measure(&mut self, start: Instant) {
        self.facts.round_trip_us = self.round_trip();
        self.facts.clock_us = self.clock(start);
    }

    /// The median, in microseconds.
    fn round_trip(&mut self) -> Option<f64> {
        let mut times = Vec::with_capacity(PINGS);
        for _ in 0..PINGS {
            let sent = Instant::now();
            let _: Value = self.node.ask(&["PING"]).ok()?;
            times.push(sent.elapsed().as_secs_f64() * 1e6);
        }
        times.sort_by(f64::total_cmp);
        Some(f64::midpoint(times[PINGS / 2 - 1], times[PINGS / 2]))
    }

    /// As if the server had read its clock half-way: wrong by half a round trip at most, so the quickest counts.
    fn clock(&mut self, start: Instant) -> Option<f64> {
        let mut best: Option<(f64, f64)> = None;
        for _ in 0..CLOCK_READINGS {
            let sent = start.elapsed().as_secs_f64() * 1e6;
            let (seconds, micros): (u64, u64) = self.node.ask(&["TIME"]).ok()?;
            let received = start.elapsed().as_secs_f64() * 1e6;
            let ahead = (seconds as f64) * 1e6 + micros as f64 - f64::midpoint(sent, received);
            if best.is_none_or(|(quickest, _)| received - sent < quickest) {
                best = Some((received - sent, ahead));
            }
        }
        best.map(|(_, ahead)| ahead)
    }
}

impl Version {
    fn of(info: &str) -> Option<Self> {
        let redis = field(info, "redis_version")?;
        // Valkey says both: its own, and the last Redis that it is compatible with.
        let text = field(info, "valkey_version").map_or_else(|| redis.to_owned(), |own| format!("valkey {own}"));
        Some(Self { compatible: numbers(redis)?, text })
    }
}

fn numbers(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.').map(str::parse);
    Some((parts.next()?.ok()?, parts.next()?.ok()?))
}

/// For a user that may not ask INFO.
fn version_by_hello(node: &mut Node) -> Option<Version> {
    let hello: HashMap<String, Value> = node.ask(&["HELLO"]).ok()?;
    let text: String = from_redis_value_ref(hello.get("version")?).ok()?;
    Some(Version { compatible: numbers(&text)?, text })
}

fn full_coverage(node: &mut Node) -> Option<bool> {
    let name = "cluster-require-full-coverage";
    let setting: HashMap<String, String> = node.ask(&["CONFIG", "GET", name]).ok()?;
    setting.get(name).map(|value| value == "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_both_servers() {
        let redis = Version::of("redis_version:7.0.15\r\n").unwrap();
        assert_eq!((redis.compatible, redis.text.as_str()), ((7, 0), "7.0.15"));
        let valkey = Version::of("redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.0\r\n").unwrap();
        assert_eq!((valkey.compatible, valkey.text.as_str()), ((7, 2), "valkey 8.1.0"));
        assert_eq!(Version::of("redis_version:unstable\r\n"), None);
        assert_eq!(Version::of(""), None);
    }
}
