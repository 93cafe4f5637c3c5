//! Commands and settings that disturb a server.

use std::thread::sleep;
use std::time::Duration;

use redis::{Cmd, cmd};

use crate::Failure;
use crate::stage::{Marks, Stage};

const PAUSE: Duration = Duration::from_secs(3);
/// Several rounds of calls and of silence that is longer than the servers' patience.
const IDLE: Duration = Duration::from_secs(9);

pub(super) fn script_flush(stage: &mut Stage) -> Result<Marks, Failure> {
    let mut flush = cmd("SCRIPT");
    flush.arg("FLUSH");
    on_all_every(stage, Duration::from_millis(100), &flush)
}

pub(super) fn client_kill(stage: &mut Stage) -> Result<Marks, Failure> {
    let mut kill = cmd("CLIENT");
    kill.arg("KILL").arg("TYPE").arg("normal");
    on_all_every(stage, Duration::from_millis(50), &kill)
}

fn on_all_every(stage: &mut Stage, pause: Duration, command: &Cmd) -> Result<Marks, Failure> {
    let all: Vec<usize> = (0..stage.cluster.masters).collect();
    let marks = Marks::begin(&all);
    stage.keep_doing(pause, |stage| {
        for node in &stage.cluster.nodes[..stage.cluster.masters] {
            node.ask::<redis::Value>(command)?;
        }
        Ok(())
    })?;
    Ok(marks.end())
}

pub(super) fn client_pause(stage: &mut Stage) -> Result<Marks, Failure> {
    let victim = stage.victim();
    let marks = Marks::begin(&[victim]);
    stage.cluster.nodes[victim].ask::<()>(cmd("CLIENT").arg("PAUSE").arg(PAUSE.as_millis() as u64).arg("ALL"))?;
    sleep(PAUSE);
    stage.cluster.wait_until_sound()?;
    Ok(marks.end())
}

pub(super) fn out_of_memory(stage: &mut Stage) -> Result<Marks, Failure> {
    short_of_memory(stage, "noeviction")
}

pub(super) fn evict(stage: &mut Stage) -> Result<Marks, Failure> {
    short_of_memory(stage, "allkeys-random")
}

/// A byte is less than what a server needs to begin with.
fn short_of_memory(stage: &mut Stage, policy: &str) -> Result<Marks, Failure> {
    let victim = stage.victim();
    let set = |setting: &str, value: &str| {
        stage.cluster.nodes[victim].ask::<()>(cmd("CONFIG").arg("SET").arg(setting).arg(value))
    };
    set("maxmemory-policy", policy)?;
    let marks = Marks::begin(&[victim]);
    set("maxmemory", "1")?;
    sleep(stage.length);
    set("maxmemory", "0")?;
    Ok(marks.end())
}

pub(super) fn clock_forward(stage: &mut Stage) -> Result<Marks, Failure> {
    step_clock(stage, "+30s")
}

pub(super) fn clock_back(stage: &mut Stage) -> Result<Marks, Failure> {
    step_clock(stage, "-30s")
}

fn step_clock(stage: &mut Stage, offset: &str) -> Result<Marks, Failure> {
    let victim = stage.victim();
    let ahead = |stage: &Stage| -> Result<i64, Failure> {
        let told: (i64, i64) = stage.cluster.nodes[victim].ask(&cmd("TIME"))?;
        Ok(told.0 - (crate::clock::real_time() / 1_000_000) as i64)
    };
    let marks = Marks::begin(&[victim]);
    stage.set_clock(victim, offset)?;
    stage.cluster.wait_until("the clock is stepped", |_| ahead(stage).is_ok_and(|ahead| ahead.abs() > 20))?;
    sleep(stage.length);
    stage.set_clock(victim, "+0s")?;
    stage.cluster.wait_until("the clock is right", |_| ahead(stage).is_ok_and(|ahead| ahead.abs() < 2))?;
    stage.cluster.wait_until_sound()?;
    Ok(marks.end())
}

pub(super) fn idle(stage: &mut Stage) -> Result<Marks, Failure> {
    let all: Vec<usize> = (0..stage.cluster.nodes.len()).collect();
    let set = |value: u8| {
        stage
            .cluster
            .nodes
            .iter()
            .try_for_each(|node| node.ask::<()>(cmd("CONFIG").arg("SET").arg("timeout").arg(value)))
    };
    let marks = Marks::begin(&all);
    set(1)?;
    sleep(IDLE);
    set(0)?;
    Ok(marks.end())
}

pub(super) fn flush_share(stage: &mut Stage) -> Result<Marks, Failure> {
    flush_all(stage, stage.victim())
}

pub(super) fn flush_home(stage: &mut Stage) -> Result<Marks, Failure> {
    flush_all(stage, stage.home())
}

fn flush_all(stage: &mut Stage, master: usize) -> Result<Marks, Failure> {
    let marks = Marks::begin(&[master]);
    stage.cluster.nodes[master].ask::<()>(&cmd("FLUSHALL"))?;
    Ok(marks.end())
}
