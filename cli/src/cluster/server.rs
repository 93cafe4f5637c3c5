//! One server that was started here.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use redis::FromRedisValue;

use super::folder::{Folder, Recorded};
use super::program::{Ports, Program};
use crate::error::Failure;
use crate::interrupt::Interrupt;
use crate::node::{Node, field};

/// For a busy machine; an idle one needs some 50 ms.
const PATIENCE: Duration = Duration::from_secs(20);

/// Stopped when it is dropped, unless it was told to stay.
pub(super) struct Server {
    pub ports: Ports,
    process: Child,
    log: PathBuf,
    node: Option<Node>,
    stays: bool,
}

impl Server {
    /// Starts it and does not wait for it.
    pub(super) fn start(program: &Program, folder: &Folder, ports: Ports) -> Result<Self, Failure> {
        let own = folder.of_server(ports.port)?;
        let log = own.join("log");
        let spawn = || -> io::Result<Child> {
            let output = File::create(&log)?;
            let mut command = program.command(ports);
            command.arg("--dir").arg(&own);
            // A process group of its own: Ctrl-C at the shell is not meant for it. A hang-up it ignores by itself.
            command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).process_group(0).spawn()
        };
        let process = spawn().map_err(|error| Failure::system("server", program.name(), &error))?;
        Ok(Self { ports, process, log, node: None, stays: false })
    }

    /// Waits until it answers. `false`: somebody else took one of its ports.
    pub(super) fn answers(&mut self, interrupt: &Interrupt) -> Result<bool, Failure> {
        let start = Instant::now();
        loop {
            if self.has_ended() {
                let log = fs::read_to_string(&self.log).unwrap_or_default();
                let taken = log.contains("Address already in use") || log.contains("Failed listening");
                return if taken { Ok(false) } else { Err(self.ended()) };
            }
            // Whoever took the port may answer too.
            if let Ok(mut node) = Node::connect_local(self.ports.port)
                && let Ok(info) = node.ask::<String>(&["INFO", "server"])
                && field(&info, "process_id") == Some(&self.process.id().to_string())
            {
                self.node = Some(node);
                return Ok(true);
            }
            if interrupt.is_set() {
                return Err(interrupted());
            }
            if start.elapsed() > PATIENCE {
                return Err(Failure::server("server", format!("port {} does not answer", self.ports.port)));
            }
            sleep(Duration::from_millis(5));
        }
    }

    /// One that has ended says so in its log, which says more than a broken connection.
    pub(super) fn ask<T: FromRedisValue>(&mut self, words: &[&str]) -> Result<T, Failure> {
        let node = self.node.as_mut().expect("it has answered");
        let answer = node.ask(words);
        answer.map_err(|error| {
            if self.has_ended() {
                return self.ended();
            }
            Failure::server("server", format!("port {} refused {}: {error}", self.ports.port, words.join(" ")))
        })
    }

    pub(super) fn record(&mut self) -> Result<Recorded, Failure> {
        let info: String = self.ask(&["INFO", "server"])?;
        let run_id = field(&info, "run_id").unwrap_or_default().to_owned();
        Ok(Recorded { pid: self.process.id(), port: self.ports.port, bus_port: self.ports.bus, run_id })
    }

    /// It goes on after this program.
    pub(super) fn stay(&mut self) {
        self.stays = true;
    }

    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.ports.port)
    }

    fn has_ended(&mut self) -> bool {
        self.process.try_wait().is_ok_and(|exit| exit.is_some())
    }

    fn ended(&self) -> Failure {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let last = log.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("its log is empty");
        Failure::server("server", format!("port {} ended by itself: {last}", self.ports.port))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !self.stays {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}

pub(super) fn interrupted() -> Failure {
    Failure::interrupted("cluster", "interrupted; what was started is stopped")
}
