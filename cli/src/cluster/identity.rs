//! Whether what answers on a port is the server of the record. Nothing else may ever be stopped.

use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use super::folder::Recorded;
use crate::node::{Node, field};

/// A server that holds nothing stops in milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);

/// What became of a server.
pub(super) enum Found {
    /// It answers, with the run id and the pid of the record.
    Ours(Node),
    /// It has ended: nobody has its pid, or somebody else its port.
    Gone,
    /// A process has its pid, but what answers on its port, if anything does, doesn't say who it is.
    Unclear(String),
}

impl Found {
    pub(super) fn is_ours(&self) -> bool {
        matches!(self, Self::Ours(_))
    }
}

impl Recorded {
    pub(super) fn find(&self) -> Found {
        if self.pid().is_none_or(|pid| test_kill_process(pid).is_err()) {
            return Found::Gone;
        }
        let mut node = match Node::connect_local(self.port) {
            Ok(node) => node,
            Err(error) if error.is_connection_refusal() => return Found::Gone,
            Err(error) => return Found::Unclear(error.to_string()),
        };
        let info: String = match node.ask(&["INFO", "server"]) {
            Ok(info) => info,
            Err(error) => return Found::Unclear(error.to_string()),
        };
        let same_run = field(&info, "run_id") == Some(&self.run_id);
        let same_process = field(&info, "process_id") == Some(&self.pid.to_string());
        if same_run && same_process { Found::Ours(node) } else { Found::Gone }
    }

    /// Asks the server itself to end; only one that doesn't, and still says who it is, is killed.
    pub(super) fn stop(&self, mut node: Node) -> Result<(), String> {
        // It ends without an answer. One that answers doesn't know NOW, which is of 7.0.
        if node.ask::<()>(&["SHUTDOWN", "NOSAVE", "NOW"]).is_err_and(|error| error.code().is_some()) {
            let _ = node.ask::<()>(&["SHUTDOWN", "NOSAVE"]);
        }
        drop(node);
        if self.is_gone_soon() {
            return Ok(());
        }
        if let (Found::Ours(_), Some(pid)) = (self.find(), self.pid()) {
            let _ = kill_process(pid, Signal::KILL);
        }
        if self.is_gone_soon() { Ok(()) } else { Err("it was told to end and did not".into()) }
    }

    fn is_gone_soon(&self) -> bool {
        let start = Instant::now();
        while !matches!(self.find(), Found::Gone) {
            if start.elapsed() > PATIENCE {
                return false;
            }
            sleep(Duration::from_millis(5));
        }
        true
    }

    fn pid(&self) -> Option<Pid> {
        let raw = i32::try_from(self.pid).ok().filter(|pid| *pid > 0)?;
        Pid::from_raw(raw)
    }
}
