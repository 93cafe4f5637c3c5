//! Servers that die, stop and start.

use std::thread::sleep;
use std::time::Duration;

use redis::cmd;
use rustix::process::Signal;

use crate::Failure;
use crate::stage::{MASTERS, Marks, Stage};

/// As the promise for a master that hangs has it.
const STOPPED: Duration = Duration::from_secs(10);

pub(super) fn kill_one(stage: &mut Stage) -> Result<Marks, Failure> {
    kill(stage, &[stage.victim()])
}

pub(super) fn kill_home(stage: &mut Stage) -> Result<Marks, Failure> {
    kill(stage, &[stage.home()])
}

pub(super) fn kill_two(stage: &mut Stage) -> Result<Marks, Failure> {
    kill(stage, &[stage.shards[1].node, stage.shards[2].node])
}

pub(super) fn kill_all(stage: &mut Stage) -> Result<Marks, Failure> {
    kill(stage, &[0, 1, 2])
}

/// With a replica and a majority left the fault is over when the replica is master; otherwise when they are started again.
fn kill(stage: &mut Stage, masters: &[usize]) -> Result<Marks, Failure> {
    let marks = Marks::begin(masters);
    for master in masters {
        stage.cluster.nodes[*master].kill();
    }
    if !stage.replicas || masters.len() > MASTERS / 2 {
        sleep(stage.length);
        for master in masters {
            stage.cluster.nodes[*master].restart()?;
        }
    }
    stage.cluster.wait_until_sound()?;
    Ok(marks.end())
}

pub(super) fn stop(stage: &mut Stage) -> Result<Marks, Failure> {
    let victim = stage.victim();
    let marks = Marks::begin(&[victim]);
    stage.cluster.nodes[victim].signal(Signal::STOP)?;
    sleep(STOPPED);
    stage.cluster.nodes[victim].signal(Signal::CONT)?;
    stage.cluster.wait_until_sound()?;
    Ok(marks.end())
}

/// Replicas first, then masters, as an operator does it: with a replica, a master hands over before it goes.
pub(super) fn rolling_restart(stage: &mut Stage) -> Result<Marks, Failure> {
    let all: Vec<usize> = (0..stage.cluster.nodes.len()).collect();
    let marks = Marks::begin(&all);
    for node in all.into_iter().rev() {
        if stage.replicas && node < MASTERS {
            let replica = stage.replica_of(node);
            stage.cluster.nodes[replica].ask::<()>(cmd("CLUSTER").arg("FAILOVER"))?;
            stage.cluster.wait_until("the replica is master", |cluster| cluster.nodes[replica].is_master())?;
            stage.cluster.wait_until_sound()?;
        }
        stage.cluster.nodes[node].terminate()?;
        stage.cluster.nodes[node].restart()?;
        stage.cluster.wait_until_sound()?;
        stage.cluster.wait_until_replicas_are_in_step()?;
    }
    Ok(marks.end())
}
