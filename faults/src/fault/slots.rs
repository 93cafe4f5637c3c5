//! Slots that are on their way between masters.

use std::thread::sleep;
use std::time::Duration;

use redis::cmd;

use crate::Failure;
use crate::stage::{MASTERS, Marks, Stage};

/// How long a slot stays open, so that calls meet ASK.
const OPEN: Duration = Duration::from_millis(100);

/// Every slot of the key goes to the next master and back, and stands open for a while each time.
pub(super) fn back_and_forth(stage: &mut Stage) -> Result<Marks, Failure> {
    let all: Vec<usize> = (0..MASTERS).collect();
    let marks = Marks::begin(&all);
    stage.keep_doing(Duration::ZERO, |stage| {
        for shard in &stage.shards {
            let next = (shard.node + 1) % MASTERS;
            for (from, to) in [(shard.node, next), (next, shard.node)] {
                let migration = stage.cluster.begin_migration(shard.slot..shard.slot + 1, from, to)?;
                sleep(OPEN);
                stage.cluster.move_keys(&migration)?;
                sleep(OPEN);
                stage.cluster.finish_migration(&migration)?;
            }
        }
        Ok(())
    })?;
    stage.cluster.wait_until_sound()?;
    Ok(marks.end())
}

/// Without a replica it comes back and the slot goes on its way; a replica that takes over knows nothing of it.
pub(super) fn kill_source(stage: &mut Stage) -> Result<Marks, Failure> {
    let (slot, source) = (stage.shards[1].slot, stage.shards[1].node);
    let target = (source + 1) % MASTERS;
    let migration = stage.cluster.begin_migration(slot..slot + 1, source, target)?;
    sleep(OPEN);
    let marks = Marks::begin(&[source]);
    stage.cluster.nodes[source].kill();
    if stage.replicas {
        let replica = stage.replica_of(source);
        stage.cluster.wait_until("the replica is master", |cluster| cluster.nodes[replica].is_master())?;
        // Until then the target takes nobody's word for the slot.
        stage.cluster.nodes[target].ask::<()>(cmd("CLUSTER").arg("SETSLOT").arg(slot).arg("STABLE"))?;
        stage.cluster.wait_until_sound()?;
    } else {
        sleep(stage.length);
        stage.cluster.nodes[source].restart()?;
        stage.cluster.wait_until_sound()?;
        stage.cluster.move_keys(&migration)?;
        stage.cluster.finish_migration(&migration)?;
        stage.cluster.wait_until_sound()?;
    }
    Ok(marks.end())
}
