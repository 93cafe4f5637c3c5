//! The clients of one turn: processes that begin together and report at their end.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use shardlimit_peers::cluster::{Cluster, cluster_runs};

use crate::CLIENT;
use crate::client::monotonic;
use crate::job::{Counts, Job};

/// From the word to the start: enough for all of sixteen to hear it.
const LEAD: Duration = Duration::from_millis(50);

/// Runs so many clients with the same job, and adds up what they counted. Also says how many scripts the servers ran, by their
/// own count: from when all clients are connected until the last one has reported. The few runs that split the key are in it.
pub(crate) fn run(cluster: &Cluster, job: &Job, clients: usize) -> (Counts, u64) {
    let mut clients: Vec<Client> = (0..clients).map(|_| Client::start(job)).collect();
    for client in &mut clients {
        assert_eq!(client.line(), "ready", "a client");
    }
    let before = cluster_runs(cluster);
    let start = (monotonic() + LEAD).as_nanos();
    for client in &mut clients {
        let mut input = client.process.stdin.take().expect("piped");
        writeln!(input, "{start}").expect("the client listens");
    }
    let counts = clients.iter_mut().map(Client::counts).fold(Counts::default(), Counts::with);
    (counts, cluster_runs(cluster) - before)
}

/// Ended when it is dropped.
struct Client {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Client {
    fn start(job: &Job) -> Self {
        let program = std::env::current_exe().expect("a path to this program");
        let mut command = Command::new(program);
        command.arg(CLIENT).args(job.arguments()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("a process");
        let lines = BufReader::new(process.stdout.take().expect("piped")).lines();
        Self { process, lines }
    }

    fn line(&mut self) -> String {
        self.lines.next().expect("the client ended early").expect("its output can be read")
    }

    fn counts(&mut self) -> Counts {
        let line = self.line();
        Counts::parse(&line).unwrap_or_else(|| panic!("not the counts of a client: {line}"))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
