//! Makes one cluster of servers that know nothing of each other.

use std::thread::sleep;
use std::time::{Duration, Instant};

use shardlimit::Slot;

use super::server::{Server, interrupted};
use crate::error::Failure;
use crate::interrupt::Interrupt;
use crate::node::{Seen, field, read_nodes};

/// Six nodes on an idle machine need two seconds, most of them Redis's own pause before a master serves.
const PATIENCE: Duration = Duration::from_secs(60);

/// The first `masters` share the slots; the others follow them in turn. Returns when all see it so.
pub(super) fn join(servers: &mut [Server], masters: usize, interrupt: &Interrupt) -> Result<(), Failure> {
    let ids = servers.iter_mut().map(|server| server.ask(&["CLUSTER", "MYID"]));
    let ids: Vec<String> = ids.collect::<Result<_, _>>()?;
    for (index, server) in servers.iter_mut().enumerate() {
        // Different from the start: else they would have to settle it among themselves.
        server.ask::<()>(&["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()])?;
    }
    for (index, server) in servers[..masters].iter_mut().enumerate() {
        add_slots(server, index, masters)?;
    }
    if let Some((first, others)) = servers.split_first_mut() {
        for other in others {
            let (port, bus) = (other.ports.port.to_string(), other.ports.bus.to_string());
            first.ask::<()>(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus])?;
        }
    }
    wait_until("all know each other", servers, interrupt, |server| {
        let seen = nodes_as_seen_by(server)?;
        Ok(ids.iter().all(|id| seen.iter().any(|node| node.id == *id && !node.handshake)))
    })?;
    for (index, replica) in servers[masters..].iter_mut().enumerate() {
        replica.ask::<()>(&["CLUSTER", "REPLICATE", &ids[index % masters]])?;
    }
    let expected: Vec<(&String, Option<&String>)> = ids
        .iter()
        .enumerate()
        .map(|(index, id)| (id, index.checked_sub(masters).map(|replica| &ids[replica % masters])))
        .collect();
    wait_until("the cluster is up and its replicas are in step", servers, interrupt, |server| {
        let state: String = server.ask(&["CLUSTER", "INFO"])?;
        let replication: String = server.ask(&["INFO", "replication"])?;
        let seen = nodes_as_seen_by(server)?;
        let as_expected = |(id, master): &(&String, Option<&String>)| {
            seen.iter().any(|node| node.id == **id && node.replica_of.as_ref() == *master && !node.failed)
        };
        Ok(field(&state, "cluster_state") == Some("ok")
            && field(&replication, "master_link_status").is_none_or(|link| link == "up")
            && expected.iter().all(as_expected))
    })
}

/// ADDSLOTS, which every version has, and not ADDSLOTSRANGE.
fn add_slots(server: &mut Server, index: usize, masters: usize) -> Result<(), Failure> {
    let edge = |part: usize| usize::from(Slot::COUNT) * part / masters;
    let slots: Vec<String> = (edge(index)..edge(index + 1)).map(|slot| slot.to_string()).collect();
    let mut words = vec!["CLUSTER", "ADDSLOTS"];
    words.extend(slots.iter().map(String::as_str));
    server.ask(&words)
}

fn nodes_as_seen_by(server: &mut Server) -> Result<Vec<Seen>, Failure> {
    let text: String = server.ask(&["CLUSTER", "NODES"])?;
    read_nodes(&text).ok_or_else(|| Failure::server("server", "CLUSTER NODES answered what can't be read"))
}

fn wait_until(
    what: &str,
    servers: &mut [Server],
    interrupt: &Interrupt,
    mut done: impl FnMut(&mut Server) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let start = Instant::now();
    for server in servers {
        while !done(server)? {
            if interrupt.is_set() {
                return Err(interrupted());
            }
            if start.elapsed() > PATIENCE {
                return Err(Failure::server("cluster", format!("waited {} s until {what}", PATIENCE.as_secs())));
            }
            sleep(Duration::from_millis(20));
        }
    }
    Ok(())
}
