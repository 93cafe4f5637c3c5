//! Connections that are cut on a request's way, or slow.

use std::thread::sleep;
use std::time::Duration;

use crate::Failure;
use crate::proxy::{Cut, Proxy};
use crate::stage::{Marks, Stage};

const PAUSE: Duration = Duration::from_millis(50);
const LATENCY: Duration = Duration::from_millis(100);

pub(super) fn before(stage: &mut Stage) -> Result<Marks, Failure> {
    cut(stage, Cut::Before)
}

pub(super) fn after(stage: &mut Stage) -> Result<Marks, Failure> {
    cut(stage, Cut::After)
}

pub(super) fn inside(stage: &mut Stage) -> Result<Marks, Failure> {
    cut(stage, Cut::Inside)
}

/// One connection to each node every so often: the first that comes by.
fn cut(stage: &mut Stage, where_it_is: Cut) -> Result<Marks, Failure> {
    let all: Vec<usize> = (0..stage.cluster.masters).collect();
    let marks = Marks::begin(&all);
    stage.keep_doing(PAUSE, |stage| {
        stage.proxies.iter().for_each(|proxy| proxy.cut_next(where_it_is));
        Ok(())
    })?;
    stage.proxies.iter().for_each(Proxy::let_be);
    if stage.proxies.iter().all(|proxy| proxy.cuts() == 0) {
        return Err(Failure::new("no connection was cut: nobody called through the proxies"));
    }
    Ok(marks.end())
}

/// By the proxy, which works where the kernel can't delay packets.
pub(super) fn latency(stage: &mut Stage) -> Result<Marks, Failure> {
    let victim = stage.victim();
    let marks = Marks::begin(&[victim]);
    stage.proxies[victim].delay(LATENCY);
    sleep(stage.length);
    stage.proxies[victim].delay(Duration::ZERO);
    stage.cluster.wait_until_sound()?;
    Ok(marks.end())
}
