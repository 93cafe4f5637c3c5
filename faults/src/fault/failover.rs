//! Replicas that take over.

use std::thread::sleep;
use std::time::Duration;

use redis::cmd;

use crate::Failure;
use crate::network;
use crate::stage::{Marks, Stage};

/// How much of what its master wrote the promoted replica lacks.
const LAG: Duration = Duration::from_millis(300);

pub(super) fn by_command(stage: &mut Stage) -> Result<Marks, Failure> {
    let masters = [stage.victim(), stage.home()];
    let marks = Marks::begin(&masters);
    for master in masters {
        let replica = stage.replica_of(master);
        stage.cluster.nodes[replica].ask::<()>(cmd("CLUSTER").arg("FAILOVER"))?;
        stage.cluster.wait_until("the replica is master", |cluster| cluster.nodes[replica].is_master())?;
        stage.cluster.wait_until_sound()?;
    }
    Ok(marks.end())
}

/// The cluster's own talk goes on. What a dead server had sent would still be delivered, so the firewall stays until its
/// replica is master.
pub(super) fn with_lag(stage: &mut Stage) -> Result<Marks, Failure> {
    let victim = stage.victim();
    let replica = stage.replica_of(victim);
    let_lag(stage, victim, replica)?;
    sleep(LAG);
    let marks = Marks::begin(&[victim]);
    stage.cluster.nodes[victim].kill();
    stage.cluster.wait_until("the replica is master", |cluster| cluster.nodes[replica].is_master())?;
    stage.cluster.wait_until_sound()?;
    let marks = marks.end();
    stage.network()?.heal(&network::server(replica))?;
    Ok(marks)
}

/// The replica learns of nothing that its master writes from now on, until its network is healed.
pub(crate) fn let_lag(stage: &Stage, master: usize, replica: usize) -> Result<(), Failure> {
    let data = format!("INPUT -p tcp -s {} --sport {}", network::address(&network::server(master)), network::PORT);
    stage.network()?.drop_at(&network::server(replica), &data)
}
