//! `shardlimit cluster up`.

use std::env;
use std::fmt::Write;

use serde::Serialize;

use super::folder::{Folder, Record};
use super::join::join;
use super::program::Program;
use super::server::{Server, interrupted};
use crate::error::Failure;
use crate::interrupt::Interrupt;
use crate::options::UpOptions;
use crate::output::{Exit, Report, Style, facts};

/// Somebody else may take a port between our look and the server's; more often than this, something else is wrong.
const MOST_TRIES: u32 = 20;

/// What to type next.
const NEXT: [(&str, &str); 3] = [
    ("ask it once", "PROGRAM acquire item:42 --limit \"token-bucket 1000/s burst 100\" --redis URLS"),
    ("look how it is", "PROGRAM doctor --redis URLS"),
    ("stop it", "PROGRAM cluster down --dir DIR"),
];

/// Where the new cluster is.
#[derive(Debug, Serialize)]
pub(crate) struct UpReport {
    action: &'static str,
    masters: Vec<String>,
    replicas: Vec<String>,
    dir: String,
    /// For `--redis`.
    redis: String,
}

/// Whatever ends it early, also a panic, stops what was started and removes the folder.
pub(crate) fn up(options: &UpOptions, interrupt: &Interrupt) -> Result<UpReport, Failure> {
    let program = Program::find()?;
    let folder = Folder::new(&options.folder);
    let claim = folder.claim()?;
    let masters = options.masters as usize;
    let mut servers = start(&program, &folder, masters * (1 + options.replicas as usize), interrupt)?;
    // Before the long part: if this process is killed in it, `down` knows what to stop.
    let nodes = servers.iter_mut().map(Server::record).collect::<Result<_, _>>()?;
    folder.write(&Record { nodes })?;
    join(&mut servers, masters, interrupt)?;
    if interrupt.is_set() {
        return Err(interrupted());
    }
    servers.iter_mut().for_each(Server::stay);
    claim.keep();
    let urls: Vec<String> = servers.iter().map(Server::url).collect();
    let (masters, replicas) = urls.split_at(masters);
    Ok(UpReport {
        action: "up",
        masters: masters.into(),
        replicas: replicas.into(),
        dir: folder.text(),
        redis: masters.join(","),
    })
}

/// All at once, then waits for each.
fn start(program: &Program, folder: &Folder, count: usize, interrupt: &Interrupt) -> Result<Vec<Server>, Failure> {
    let mut servers = Vec::new();
    for ports in program.free_ports(count)? {
        servers.push(Server::start(program, folder, ports)?);
    }
    for server in &mut servers {
        let mut tries = 1;
        while !server.answers(interrupt)? {
            if tries == MOST_TRIES {
                return Err(Failure::server("ports", format!("others took {MOST_TRIES} free ports in a row")));
            }
            tries += 1;
            *server = Server::start(program, folder, program.free_ports(1)?[0])?;
        }
    }
    Ok(servers)
}

impl Report for UpReport {
    const COMMAND: &'static str = "cluster";

    fn text(&self, style: Style) -> String {
        let mut lines = vec![("cluster", style.green("up, until it is stopped")), ("folder", self.dir.clone())];
        lines.extend(self.masters.iter().map(|url| ("master", url.clone())));
        lines.extend(self.replicas.iter().map(|url| ("replica", url.clone())));
        let mut text = facts(style, &lines);
        text += "\nWhat to type next:\n";
        // As it was called: who came by `cargo run` has no `shardlimit` on the path.
        let program = env::args().next().unwrap_or_else(|| "shardlimit".into());
        let dir = if self.dir.contains(' ') { format!("\"{}\"", self.dir) } else { self.dir.clone() };
        for (purpose, command) in NEXT {
            let command = command.replace("URLS", &self.redis).replace("DIR", &dir).replace("PROGRAM", &program);
            let _ = write!(text, "  {}\n    {command}\n", style.dim(purpose));
        }
        text
    }

    fn exit(&self) -> Exit {
        Exit::Success
    }
}
