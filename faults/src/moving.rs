//! A process that moves the key's shares or sets its limit, once, and ends. Others kill it on its way.

use std::io::{self, BufRead};
use std::time::Duration;

use clap::Args;
use shardlimit::{Carry, Limit};
use tokio::time::sleep;

use crate::Failure;
use crate::limiter::{KEY, Settings};

/// A client that began less than a second ago moves nothing that is split.
const AT_REST: Duration = Duration::from_millis(1_200);
/// Whom to ask until then: a look makes nothing.
const ANOTHER_KEY: &str = "another";

/// What it is to do, when a line comes in.
#[derive(Args, Debug)]
pub(crate) struct Job {
    #[command(flatten)]
    pub settings: Settings,
    /// Sets this limit. Without it, the key is to have the shards of its definition.
    #[arg(long)]
    pub set: Option<Limit>,
    /// Nodes of the cluster.
    #[arg(required = true)]
    pub urls: Vec<String>,
}

pub(crate) fn run(job: &Job) -> Result<(), Failure> {
    io::stdin().lock().read_line(&mut String::new())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let limit = job.settings.define(&job.urls)?;
    runtime.block_on(async {
        if let Some(new) = job.set {
            limit.set_limit_of(KEY, new, Carry::Keep).await?;
        } else {
            limit.limit_of(ANOTHER_KEY).await?;
            sleep(AT_REST).await;
            limit.plan(KEY).await?;
        }
        Ok(())
    })
}
