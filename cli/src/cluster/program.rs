//! The server program, and ports for it.

use std::env;
use std::io::{self, ErrorKind};
use std::net::TcpListener;
use std::process::{Command, Stdio};

use crate::error::Failure;

/// Where a server listens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    pub port: u16,
    /// For the other nodes of the cluster.
    pub bus: u16,
}

#[derive(Clone, Debug)]
pub(super) struct Program {
    name: String,
    /// From 7.0 on the bus may be anywhere; before, it is 10,000 above the port.
    free_bus: bool,
}

impl Program {
    /// `redis-server`, or what `SHARDLIMIT_SERVER` names.
    pub(super) fn find() -> Result<Self, Failure> {
        let named = env::var("SHARDLIMIT_SERVER").ok().filter(|name| !name.is_empty());
        let name = named.unwrap_or_else(|| "redis-server".into());
        let answer = Command::new(&name).arg("--version").stdin(Stdio::null()).output();
        let answer = answer.map_err(|error| missing(&name, &error))?;
        let text = String::from_utf8_lossy(&answer.stdout);
        // "Redis server v=7.0.15 sha=…"
        let version = text.split_whitespace().find_map(|word| word.strip_prefix("v="));
        let major = version.and_then(|version| version.split('.').next()?.parse::<u32>().ok());
        let wrong = || Failure::server("server", format!("{name} --version doesn't say which server it is"));
        Ok(Self { free_bus: major.ok_or_else(wrong)? >= 7, name })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Ports that were free a moment ago, all different.
    pub(super) fn free_ports(&self, count: usize) -> Result<Vec<Ports>, Failure> {
        let failure = |error| Failure::system("ports", "none is free", &error);
        // Held until all are found: one that is let go could be found again.
        let mut held = Vec::new();
        let mut found = Vec::new();
        while found.len() < count {
            let (client, port) = listen(0).map_err(failure)?;
            let bus = if self.free_bus { Some(0) } else { port.checked_add(10_000) };
            match bus.map(listen) {
                Some(Ok((listener, bus))) => {
                    found.push(Ports { port, bus });
                    held.push(listener);
                }
                Some(Err(error)) if self.free_bus => return Err(failure(error)),
                // The one 10,000 above is taken, or there is none.
                Some(Err(_)) | None => {}
            }
            held.push(client);
        }
        Ok(found)
    }

    /// The command that starts one, without its folder.
    pub(super) fn command(&self, ports: Ports) -> Command {
        let mut command = Command::new(&self.name);
        command.args(["--port", &ports.port.to_string(), "--bind", "127.0.0.1", "--protected-mode", "yes"]);
        if self.free_bus {
            command.args(["--cluster-port", &ports.bus.to_string()]);
        }
        command.args(["--save", "", "--appendonly", "no", "--daemonize", "no"]);
        command.args(["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"]);
        command.args(["--cluster-allow-replica-migration", "no"]);
        // By default a master waits 5 s for more replicas before it sends them its state.
        command.args(["--repl-diskless-sync-delay", "0"]);
        command
    }
}

fn listen(port: u16) -> io::Result<(TcpListener, u16)> {
    let listener = TcpListener::bind(("127.0.0.1", port))?;
    let port = listener.local_addr()?.port();
    Ok((listener, port))
}

fn missing(name: &str, error: &io::Error) -> Failure {
    if error.kind() != ErrorKind::NotFound {
        return Failure::system("server", &format!("{name} can't be started"), error);
    }
    let packages = "install the package redis-server (Debian, Ubuntu), redis (Fedora, Homebrew) or valkey";
    Failure::server("server", format!("{name} was not found; {packages}, or name the program in SHARDLIMIT_SERVER"))
}
