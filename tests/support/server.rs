//! Real `redis-server` processes on loopback, gone when the test is, also when it panics.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The program to start: `redis-server`, or what `SHARDLIMIT_SERVER` names (such as `valkey-server`).
fn program() -> String {
    std::env::var("SHARDLIMIT_SERVER").unwrap_or_else(|_| "redis-server".into())
}

/// One running server.
pub struct Server {
    pub port: u16,
    process: Child,
    folder: PathBuf,
}

impl Server {
    /// Starts one with these options on top of a port of its own and nothing saved, and waits until it answers.
    pub fn start(options: &[&str]) -> Self {
        for _ in 0..20 {
            if let Some(server) = Self::try_start(options) {
                return server;
            }
        }
        panic!("{} would not start on any of 20 ports", program());
    }

    /// `None` when somebody else took the port meanwhile.
    fn try_start(options: &[&str]) -> Option<Self> {
        let port = free_port();
        let folder = std::env::temp_dir().join(format!("shardlimit-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        let process = Command::new(program())
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .args(["--daemonize", "no", "--dir"])
            .arg(&folder)
            .args(options)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}; ./scripts/test installs it", program()));
        let mut server = Self { port, process, folder };
        server.answers().then_some(server)
    }

    fn answers(&mut self) -> bool {
        let patience = Instant::now();
        while patience.elapsed() < Duration::from_secs(10) {
            if self.process.try_wait().is_ok_and(|exit| exit.is_some()) {
                return false;
            }
            let pong = self
                .client()
                .get_connection()
                .and_then(|mut connection| redis::cmd("PING").query::<String>(&mut connection));
            if pong.is_ok() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }

    pub fn client(&self) -> redis::Client {
        redis::Client::open(("127.0.0.1", self.port)).expect("an address")
    }

    pub fn connection(&self) -> redis::Connection {
        self.client().get_connection().expect("the server answers")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A port whose cluster bus (10,000 above) exists too.
fn free_port() -> u16 {
    loop {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        if port < 55_000 {
            return port;
        }
    }
}
