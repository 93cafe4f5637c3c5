//! The clusters that other tests run on do what they are told.

use crate::shared::cluster::{Cluster, Layout, SLOTS};
use redis::cmd;
use shardlimit::Slot;

/// The first word of what a node says to a command that it refuses.
fn refusal(cluster: &Cluster, node: usize, command: &redis::Cmd) -> String {
    let error = cluster.nodes[node].try_ask::<redis::Value>(command).expect_err("refused");
    error.code().unwrap_or_default().to_owned()
}

#[test]
fn layouts_are_dealt_as_they_are_named() {
    let striped = Cluster::start(3, 0, Layout::Striped, &[]);
    let owners = striped.owners_as_seen_by(&striped.nodes[1]);
    assert!((0..usize::from(SLOTS)).all(|slot| owners[slot] == slot % 3));

    let last_empty = Cluster::start(3, 0, Layout::LastEmpty, &[]);
    let owners = last_empty.owners_as_seen_by(&last_empty.nodes[2]);
    assert!(owners.iter().all(|owner| *owner < 2), "the third master has no slot");
    assert_eq!(owners[0], 0);
    assert_eq!(owners[usize::from(SLOTS) - 1], 1);
}

#[test]
fn a_slot_can_be_held_open_while_it_moves() {
    let mut cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    let slot = Slot::of(b"there");
    let from = cluster.owner_of(slot.number());
    let to = (from + 1) % 3;
    let there = format!("{{{}}}:there", slot.tag());
    cluster.nodes[from].ask::<()>(cmd("SET").arg(&there).arg(1));

    let migration = cluster.begin_migration(slot.number(), to);
    assert_eq!(cluster.move_keys(&migration), 1);
    assert_eq!(refusal(&cluster, from, cmd("GET").arg(&there)), "ASK", "it has left, the slot has not");
    assert_eq!(refusal(&cluster, to, cmd("GET").arg(&there)), "MOVED");
    cluster.finish_migration(migration);
    cluster.wait_until_ok();
    assert_eq!(cluster.owner_of(slot.number()), to);
    assert_eq!(cluster.nodes[to].ask::<u8>(cmd("GET").arg(&there)), 1);
    assert_eq!(refusal(&cluster, from, cmd("GET").arg(&there)), "MOVED");

    // A fourth master takes the slot, gives it back, and goes.
    let fourth = cluster.add_master();
    cluster.migrate(slot.number(), fourth);
    cluster.wait_until_ok();
    assert_eq!(cluster.nodes[fourth].ask::<u8>(cmd("GET").arg(&there)), 1);
    cluster.migrate(slot.number(), to);
    cluster.wait_until_ok();
    cluster.remove(fourth);
    assert_eq!(cluster.nodes.len(), 3);
    cluster.wait_until_ok();
}

#[test]
fn masters_fail_and_replicas_take_over() {
    let mut cluster = Cluster::start(3, 1, Layout::Contiguous, &[]);
    assert_eq!(cluster.owner_of(0), 0);
    cluster.fail_over_to(3);
    assert_eq!(cluster.owner_of(0), 3, "by command");

    cluster.nodes[3].server.kill();
    cluster.wait_until("node 0 is elected", |cluster| cluster.owner_of(0) == 0);
    cluster.wait_until_ok();
    cluster.nodes[3].server.restart();
    cluster.wait_until_ok();

    cluster.nodes[1].server.pause();
    let cut_off = cluster.nodes[0].info("state");
    cluster.nodes[1].server.resume();
    assert_eq!(cut_off, "ok", "nobody has noticed yet");
    cluster.wait_until_ok();
}
