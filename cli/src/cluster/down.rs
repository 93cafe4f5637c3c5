//! `shardlimit cluster down`.

use std::fmt::Write;

use serde::Serialize;

use super::folder::Folder;
use super::identity::Found;
use crate::error::Failure;
use crate::options::FolderOptions;
use crate::output::{Exit, Report, Style};

/// What became of the servers of the record.
#[derive(Debug, Serialize)]
pub(crate) struct DownReport {
    action: &'static str,
    dir: String,
    /// Whether there was a cluster in the folder.
    found: bool,
    stopped: u64,
    /// Had ended before.
    gone: u64,
    /// Not touched, because they don't say who they are.
    left: Vec<Left>,
    /// Whether the folder is gone.
    removed: bool,
}

#[derive(Debug, Serialize)]
struct Left {
    pid: u32,
    port: u16,
    why: String,
}

pub(crate) fn down(options: &FolderOptions) -> Result<DownReport, Failure> {
    let folder = Folder::new(options);
    let mut report = DownReport {
        action: "down",
        dir: folder.text(),
        found: false,
        stopped: 0,
        gone: 0,
        left: Vec::new(),
        removed: false,
    };
    let Some(record) = folder.read()? else { return Ok(report) };
    report.found = true;
    for node in record.nodes {
        let stopped = match node.find() {
            Found::Ours(server) => node.stop(server).map(|()| report.stopped += 1),
            Found::Gone => {
                report.gone += 1;
                Ok(())
            }
            Found::Unclear(why) => Err(why),
        };
        if let Err(why) = stopped {
            report.left.push(Left { pid: node.pid, port: node.port, why });
        }
    }
    // The record is what a second try goes by.
    if report.left.is_empty() {
        report.removed = folder.remove()?;
    }
    Ok(report)
}

impl Report for DownReport {
    const COMMAND: &'static str = "cluster";

    fn text(&self, style: Style) -> String {
        if !self.found {
            return format!("No cluster is up in {}.\n", self.dir);
        }
        let mut text = format!("Servers stopped: {}", self.stopped);
        if self.gone > 0 {
            let _ = write!(text, "; {} had ended before", self.gone);
        }
        text += ".\n";
        for Left { pid, port, why } in &self.left {
            let left = style.red("Left alone:");
            let _ = writeln!(text, "{left} process {pid}, because port {port} does not say who it is: {why}");
        }
        let _ = match (self.left.is_empty(), self.removed) {
            (true, true) => writeln!(text, "Removed {}.", self.dir),
            (true, false) => writeln!(text, "Other files are in {}: it stays.", self.dir),
            (false, _) => writeln!(text, "{} stays, for another try.", self.dir),
        };
        text
    }

    fn exit(&self) -> Exit {
        if self.left.is_empty() { Exit::Success } else { Exit::Denied }
    }
}
