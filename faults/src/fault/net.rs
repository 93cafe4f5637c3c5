//! Networks that are cut or lossy.

use std::thread::sleep;

use crate::Failure;
use crate::network::{Side, caller, server};
use crate::stage::{Marks, Stage};

pub(super) fn partition(stage: &mut Stage) -> Result<Marks, Failure> {
    island(stage, stage.victim())
}

pub(super) fn partition_home(stage: &mut Stage) -> Result<Marks, Failure> {
    island(stage, stage.home())
}

/// One master and the second process that calls; a replica of it stays with the majority.
fn island(stage: &mut Stage, master: usize) -> Result<Marks, Failure> {
    let them = [server(master), caller(1)];
    let marks = Marks::begin(&[master]);
    for name in &them {
        stage.network()?.move_to(name, Side::Right)?;
    }
    sleep(stage.length);
    for name in &them {
        stage.network()?.move_to(name, Side::Left)?;
    }
    stage.cluster.wait_until_sound()?;
    Ok(marks.end())
}

pub(super) fn no_outgoing(stage: &mut Stage) -> Result<Marks, Failure> {
    firewall(stage, &["OUTPUT"])
}

pub(super) fn no_incoming(stage: &mut Stage) -> Result<Marks, Failure> {
    firewall(stage, &["INPUT"])
}

/// Of all packets, also of the cluster's own talk.
pub(super) fn loss(stage: &mut Stage) -> Result<Marks, Failure> {
    const SOME: &str = "-m statistic --mode random --probability 0.05";
    firewall(stage, &[&format!("INPUT {SOME}"), &format!("OUTPUT {SOME}")])
}

fn firewall(stage: &mut Stage, rules: &[&str]) -> Result<Marks, Failure> {
    let victim = stage.victim();
    let (network, name) = (stage.network()?, server(victim));
    let marks = Marks::begin(&[victim]);
    for rule in rules {
        network.drop_at(&name, rule)?;
    }
    sleep(stage.length);
    network.heal(&name)?;
    stage.cluster.wait_until_sound()?;
    Ok(marks.end())
}
