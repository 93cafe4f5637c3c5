//! Who is in the cluster, as one of its nodes sees it.

use redis::{RedisError, RedisResult, Value, from_redis_value_ref};

use crate::node::{Node, Seen, field, read_nodes};

/// The members as one node sees them.
#[derive(Debug)]
pub(super) struct View {
    pub members: Vec<Seen>,
    /// Of two views the one with the higher is newer.
    pub epoch: u64,
    /// Whether the user may ask who is in the cluster. If not, the one asked is all we know.
    pub blind: bool,
}

impl View {
    /// `None`: not a cluster. CLUSTER SLOTS has the addresses that clients are meant to use, CLUSTER NODES also
    /// those that have no slots or are held for dead; either may be forbidden.
    pub(super) fn ask(node: &mut Node, host: &str, port: u16) -> Result<Option<Self>, String> {
        let slots: RedisResult<Vec<Vec<Value>>> = node.ask(&["CLUSTER", "SLOTS"]);
        let nodes: RedisResult<String> = node.ask(&["CLUSTER", "NODES"]);
        if [slots.as_ref().err(), nodes.as_ref().err()].into_iter().flatten().any(is_no_cluster) {
            return Ok(None);
        }
        let slots = permitted(slots)?;
        let nodes = permitted(nodes)?;
        let unreadable = |command: &str| format!("CLUSTER {command} answered what can't be read");
        let slots = slots.map(|ranges| read_slots(&ranges).ok_or_else(|| unreadable("SLOTS"))).transpose()?;
        let nodes = nodes.map(|text| read_nodes(&text).ok_or_else(|| unreadable("NODES"))).transpose()?;
        let blind = slots.is_none() && nodes.is_none();
        let mut members = merge(slots, nodes);
        if members.is_empty() {
            members.push(Seen::master(String::new(), host, port));
        }
        for member in members.iter_mut().filter(|member| ["", "?"].contains(&member.host.as_str())) {
            host.clone_into(&mut member.host);
        }
        let info: String = node.ask(&["CLUSTER", "INFO"]).unwrap_or_default();
        let epoch = field(&info, "cluster_current_epoch").and_then(|epoch| epoch.parse().ok()).unwrap_or(0);
        Ok(Some(Self { members, epoch, blind }))
    }
}

impl Seen {
    pub(super) fn master(id: String, host: &str, port: u16) -> Self {
        let slots = Vec::new();
        Self { id, host: host.into(), port, replica_of: None, failed: false, handshake: false, slots }
    }
}

fn is_no_cluster(error: &RedisError) -> bool {
    let text = error.to_string();
    text.contains("cluster support disabled") || text.contains("unknown command")
}

/// `None` where the user may not ask.
fn permitted<T>(answer: RedisResult<T>) -> Result<Option<T>, String> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.code() == Some("NOPERM") => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// Addresses by CLUSTER SLOTS, all else by CLUSTER NODES where there is one.
fn merge(slots: Option<Vec<Seen>>, nodes: Option<Vec<Seen>>) -> Vec<Seen> {
    let Some(mut members) = nodes else { return slots.unwrap_or_default() };
    members.retain(|member| !member.handshake);
    for preferred in slots.unwrap_or_default() {
        if let Some(member) = members.iter_mut().find(|member| member.id == preferred.id) {
            (member.host, member.port) = (preferred.host, preferred.port);
        }
    }
    members
}

/// `[[first, last, master, replica…], …]`, each node `[host, port, id, …]`.
fn read_slots(ranges: &[Vec<Value>]) -> Option<Vec<Seen>> {
    let mut members: Vec<Seen> = Vec::new();
    for range in ranges {
        let [first, last, nodes @ ..] = range.as_slice() else { return None };
        let (first, last): (u16, u16) = (from_redis_value_ref(first).ok()?, from_redis_value_ref(last).ok()?);
        let mut master: Option<String> = None;
        for node in nodes {
            let Value::Array(node) = node else { return None };
            let [host, port, id, ..] = node.as_slice() else { return None };
            let host: Option<String> = from_redis_value_ref(host).ok()?;
            let (port, id): (u16, String) = (from_redis_value_ref(port).ok()?, from_redis_value_ref(id).ok()?);
            let index = members.iter().position(|member| member.id == id).unwrap_or_else(|| {
                members.push(Seen::master(id.clone(), &host.unwrap_or_default(), port));
                members.len() - 1
            });
            if master.is_some() {
                members[index].replica_of.clone_from(&master);
            } else {
                members[index].slots.push(first..=last);
                master = Some(id);
            }
        }
    }
    Some(members)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn node(host: Value, port: i64, id: &str) -> Value {
        Value::Array(vec![host, Value::Int(port), text(id), Value::Array(vec![])])
    }

    #[test]
    fn slots_are_gathered_by_master() {
        let (a, b) = (node(text("h1"), 1, "a"), node(Value::Nil, 2, "b"));
        let ranges = [
            vec![Value::Int(0), Value::Int(9), a.clone(), b],
            vec![Value::Int(20), Value::Int(20), a, node(text("h3"), 3, "c")],
        ];
        let members = read_slots(&ranges).unwrap();
        assert_eq!(members[0].slots, [0..=9, 20..=20]);
        assert_eq!((members[1].host.as_str(), members[1].replica_of.as_deref()), ("", Some("a")));
        assert_eq!(members.len(), 3);
        assert!(read_slots(&[vec![Value::Int(0)]]).is_none());
    }

    #[test]
    fn clients_are_meant_to_use_the_addresses_of_slots() {
        let nodes = read_nodes(
            "a 10.0.0.1:1@2 myself,master - 0 0 1 connected 0-16383\nb 10.0.0.2:1@2 master - 0 0 2 connected\n\
             x 10.0.0.3:1@2 handshake - 0 0 0 connected",
        );
        let members = merge(Some(vec![Seen::master("a".into(), "redis-1.example", 1)]), nodes);
        let hosts: Vec<&str> = members.iter().map(|member| member.host.as_str()).collect();
        assert_eq!(hosts, ["redis-1.example", "10.0.0.2"]);
        assert_eq!(members[0].slots, [0..=16383]);
    }
}
