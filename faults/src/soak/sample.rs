//! What there is of memory, tasks, threads and sockets.

use std::fmt;
use std::time::Duration;

use redis::cmd;
use tokio::runtime::Runtime;

use crate::Failure;
use crate::cluster::{Cluster, Node};

/// One look at this process and at the servers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub at: Duration,
    /// Resident memory of this process, in bytes.
    pub memory: u64,
    pub tasks: u64,
    pub threads: u64,
    /// Open files, sockets among them.
    pub files: u64,
    /// What all servers hold, in bytes and in keys.
    pub server_memory: u64,
    pub server_keys: u64,
}

impl Sample {
    pub(super) const HEAD: &str = "   time  memory KiB   tasks  threads  files  servers KiB  keys";

    pub(super) fn take(at: Duration, runtime: &Runtime, cluster: &Cluster) -> Result<Self, Failure> {
        let (mut server_memory, mut server_keys) = (0, 0);
        for node in &cluster.nodes {
            server_keys += keys(node)?;
            let info: String = node.ask(cmd("INFO").arg("memory"))?;
            server_memory += field(&info, "used_memory:")?;
        }
        let status = std::fs::read_to_string("/proc/self/status")?;
        Ok(Self {
            at,
            memory: field(&status, "VmRSS:")? * 1_024,
            tasks: runtime.metrics().num_alive_tasks() as u64,
            threads: field(&status, "Threads:")?,
            files: std::fs::read_dir("/proc/self/fd")?.count() as u64,
            server_memory,
            server_keys,
        })
    }
}

/// Keys that live. A server forgets those that have expired when it meets them: so it is made to meet all.
fn keys(node: &Node) -> Result<u64, Failure> {
    let mut cursor = 0;
    loop {
        let (next, _): (u64, Vec<String>) = node.ask(cmd("SCAN").arg(cursor).arg("COUNT").arg(10_000))?;
        if next == 0 {
            return node.ask(&cmd("DBSIZE"));
        }
        cursor = next;
    }
}

/// The number behind a name.
fn field(text: &str, name: &str) -> Result<u64, Failure> {
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    let number = value.and_then(|value| value.split_whitespace().next()).and_then(|word| word.parse().ok());
    number.ok_or_else(|| Failure::new(format!("there is no {name}")))
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, memory, tasks, threads, files, server_memory, server_keys } = self;
        let (seconds, memory, server_memory) = (at.as_secs(), memory / 1_024, server_memory / 1_024);
        write!(f, "{seconds:5} s  {memory:10}  {tasks:6}  {threads:7}  {files:5}  {server_memory:11}  {server_keys:4}")
    }
}
