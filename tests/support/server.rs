//! Real `redis-server` processes on loopback, gone when the test is, also when it panics.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
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
    kept: Port,
    process: Option<Child>,
    folder: PathBuf,
    options: Vec<String>,
}

impl Server {
    /// Starts one with these options on top of a port of its own and nothing saved, and waits until it answers.
    pub fn start(options: &[&str]) -> Self {
        Self::start_many(1, options).remove(0)
    }

    /// Starts several side by side.
    pub fn start_many(count: usize, options: &[&str]) -> Vec<Self> {
        let mut started: Vec<Self> = (0..count).map(|_| Self::spawn(options)).collect();
        for server in &mut started {
            let mut tries = 0;
            // Somebody else may have taken the port between our look and the server's.
            while !server.answers() {
                tries += 1;
                assert!(tries < 20, "{} would not start on any of 20 ports", program());
                *server = Self::spawn(options);
            }
        }
        started
    }

    fn spawn(options: &[&str]) -> Self {
        let kept = Port::take();
        let port = kept.number;
        let folder = std::env::temp_dir().join(format!("shardlimit-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        let mut server =
            Self { port, kept, process: None, folder, options: options.iter().map(ToString::to_string).collect() };
        server.run();
        server
    }

    fn run(&mut self) {
        let process = Command::new(program())
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .args(["--daemonize", "no", "--dir"])
            .arg(&self.folder)
            .args(&self.options)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}; ./scripts/test installs it", program()));
        self.process = Some(process);
    }

    pub fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// As `kill -9`: nothing is said to anybody.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// On the same port and folder, after it was killed.
    pub fn restart(&mut self) {
        assert!(!self.is_running(), "it runs");
        self.run();
        assert!(self.answers(), "port {} is gone", self.port);
    }

    /// Stops it in its tracks; connections stay open and nothing is answered.
    pub fn pause(&self) {
        self.signal("-STOP");
    }

    pub fn resume(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let process = self.process.as_ref().expect("a running server");
        let sent = Command::new("kill").args([signal, &process.id().to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()), "kill {signal}");
    }

    fn answers(&mut self) -> bool {
        let patience = Instant::now();
        while patience.elapsed() < Duration::from_secs(10) {
            if self.process.as_mut().is_none_or(|process| process.try_wait().is_ok_and(|exit| exit.is_some())) {
                return false;
            }
            // Another server may have taken the port between the two moments: it must be this very process.
            let info = self
                .client()
                .get_connection()
                .and_then(|mut connection| redis::cmd("INFO").arg("server").query::<String>(&mut connection));
            if let (Ok(info), Some(process)) = (info, &self.process)
                && info.lines().any(|line| line.strip_prefix("process_id:") == Some(&process.id().to_string()))
            {
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
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A port for a server. It is nobody else's for as long as this is kept, also while the server is down.
pub struct Port {
    pub number: u16,
    /// Locked. All tests of this machine look here first.
    _kept: File,
}

impl Port {
    /// Below 32,768, from where Linux takes the ports of outgoing connections: one of those could be in the way of a server that comes
    /// back. So are those of cluster buses, 10,000 above.
    const FIRST: u16 = 11_000;
    const COUNT: u16 = 10_000;

    pub fn take() -> Self {
        let folder = std::env::temp_dir().join("shardlimit-ports");
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
        for _ in 0..1_000 {
            let number = Self::FIRST + (RandomState::new().hash_one(0) % u64::from(Self::COUNT)) as u16;
            // Another user's file is another user's port.
            let Ok(kept) = File::create(folder.join(number.to_string())) else { continue };
            if kept.try_lock().is_ok() && is_free(number) && is_free(number + 10_000) {
                return Self { number, _kept: kept };
            }
        }
        panic!("1,000 ports are taken, or can't be locked by files in {}", folder.display());
    }
}
