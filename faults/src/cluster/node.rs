//! One server.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use redis::{Cmd, Connection, FromRedisValue, Pipeline, RedisResult, cmd};
use rustix::process::{Pid, Signal, kill_process};

use crate::Failure;
use crate::folder::Folder;

/// How long a server may take to start or to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where a server lives.
#[derive(Clone, Debug)]
pub(crate) struct Seat {
    /// The network namespace that it runs in; none: this one.
    pub namespace: Option<String>,
    pub host: String,
    pub port: u16,
    /// The port that it tells others to use: its own, or that of a proxy before it.
    pub announced: u16,
}

/// One server of a cluster.
pub(crate) struct Node {
    pub seat: Seat,
    /// What the cluster calls it.
    pub id: String,
    process: Option<Child>,
    folder: Folder,
    options: Vec<String>,
    /// Added to its environment.
    environment: Vec<(String, String)>,
}

impl Node {
    pub(super) fn start(seat: Seat, options: &[String], environment: &[(String, String)]) -> Result<Self, Failure> {
        let folder = Folder::temporary(&format!("{}-{}", seat.host, seat.port))?;
        let mut node = Self {
            seat,
            id: String::new(),
            process: None,
            folder,
            options: options.to_vec(),
            environment: environment.to_vec(),
        };
        node.restart()?;
        node.id = node.ask(cmd("CLUSTER").arg("MYID"))?;
        Ok(node)
    }

    /// On the same address and folder, and waits until it answers.
    pub(crate) fn restart(&mut self) -> Result<(), Failure> {
        self.spawn()?;
        let patience = Instant::now();
        // LOADING and the like are answers of a server that is not there yet.
        while self.ask::<String>(&cmd("PING")).is_err() {
            let ended = self.process.as_mut().is_none_or(|process| process.try_wait().is_ok_and(|exit| exit.is_some()));
            if ended || patience.elapsed() > PATIENCE {
                return Err(Failure::new(format!("redis-server would not start at {}", self.seat.address())));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// As [`restart`](Node::restart), without waiting.
    pub(crate) fn spawn(&mut self) -> Result<(), Failure> {
        let program = std::env::var("SHARDLIMIT_SERVER").unwrap_or_else(|_| "redis-server".into());
        let mut command = match &self.seat.namespace {
            Some(namespace) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", namespace, &program]);
                command
            }
            None => Command::new(&program),
        };
        let Seat { host, port, announced, .. } = &self.seat;
        let process = command
            .args(["--port", &port.to_string(), "--bind", host, "--protected-mode", "no"])
            .args(["--cluster-announce-port", &announced.to_string()])
            .args(["--cluster-announce-bus-port", &(port + 10_000).to_string()])
            .args(["--save", "", "--appendonly", "no", "--daemonize", "no", "--dir"])
            .arg(&self.folder.path)
            .args(&self.options)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| Failure::new(format!("{program}: {error}")))?;
        self.process = Some(process);
        Ok(())
    }

    pub(crate) fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// As `kill -9`: nothing is said to anybody.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// As an operator stops it: it says goodbye.
    pub(crate) fn terminate(&mut self) -> Result<(), Failure> {
        self.signal(Signal::TERM)?;
        if let Some(mut process) = self.process.take() {
            process.wait()?;
        }
        Ok(())
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<(), Failure> {
        let process = self.process.as_ref().and_then(|process| Pid::from_raw(process.id() as i32));
        let process = process.ok_or_else(|| Failure::new(format!("{} does not run", self.seat.address())))?;
        kill_process(process, signal).map_err(|error| Failure::new(error.to_string()))
    }

    pub(crate) fn ask<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, Failure> {
        self.connected(|connection| command.query(connection))
    }

    /// All of them at once, on one connection.
    pub(crate) fn ask_all<T: FromRedisValue>(&self, commands: &Pipeline) -> Result<T, Failure> {
        self.connected(|connection| commands.query(connection))
    }

    /// What is stored there. A replica tells what it has, too.
    pub(crate) fn look_at(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        let (found,) = self.ask_all(redis::pipe().cmd("READONLY").ignore().cmd("GET").arg(key))?;
        Ok(found)
    }

    fn connected<T>(&self, ask: impl FnOnce(&mut Connection) -> RedisResult<T>) -> Result<T, Failure> {
        let connect = || -> RedisResult<Connection> {
            let client = redis::Client::open((self.seat.host.as_str(), self.seat.port))?;
            let connection = client.get_connection_with_timeout(Duration::from_millis(500))?;
            connection.set_read_timeout(Some(Duration::from_secs(5)))?;
            Ok(connection)
        };
        let asked = connect().and_then(|mut connection| ask(&mut connection));
        asked.map_err(|error| Failure::new(format!("{}: {error}", self.seat.address())))
    }

    /// A field of CLUSTER INFO, without its `cluster_`.
    pub(crate) fn info(&self, field: &str) -> String {
        let info: String = self.ask(cmd("CLUSTER").arg("INFO")).unwrap_or_default();
        let value = info.lines().find_map(|line| line.strip_prefix(&format!("cluster_{field}:")));
        value.unwrap_or_default().to_owned()
    }

    pub(crate) fn replication(&self) -> String {
        self.ask(cmd("INFO").arg("replication")).unwrap_or_default()
    }

    pub(crate) fn is_master(&self) -> bool {
        self.replication().contains("role:master")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Seat {
    pub(crate) fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// For clients.
    pub(crate) fn url(&self) -> String {
        format!("redis://{}:{}", self.host, self.announced)
    }
}
