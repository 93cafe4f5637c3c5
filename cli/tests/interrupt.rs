//! SIGINT: a run ends early, gives its one answer, exits with 130 and leaves nothing running behind.
#![cfg(target_os = "linux")]

mod support;

use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process_group};
use serde_json::Value;
use support::{Answer, assert_adds_up, int, number, shardlimit};

/// Long enough that only a signal ends it.
const LONG: [&str; 7] = ["bench", "--key", "k", "--limit", "1000/s burst 10", "--duration", "1h"];

/// A program in a process group of its own, as a shell starts it.
struct Running {
    child: Child,
    pid: Pid,
}

fn start(arguments: &[&str]) -> Running {
    let mut command = shardlimit();
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let child = command.spawn().unwrap();
    let pid = Pid::from_child(&child);
    wait_until(|| handles_sigint(pid));
    Running { child, pid }
}

/// Before it does, SIGINT ends it as it ends any program.
fn handles_sigint(pid: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    caught & (1 << (Signal::INT.as_raw() - 1)) != 0
}

fn wait_until(mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(20), "it takes too long");
        sleep(Duration::from_millis(2));
    }
}

impl Running {
    fn is_anybody_left(&self) -> bool {
        test_kill_process_group(self.pid).is_ok()
    }

    /// The very first may come when the handler is there and has nothing to do yet.
    fn interrupt_until_it_ends(&mut self) {
        wait_until(|| {
            let _ = kill_process(self.pid, Signal::INT);
            self.child.try_wait().unwrap().is_some()
        });
    }

    fn answer(mut self) -> Answer {
        wait_until(|| self.child.try_wait().unwrap().is_some());
        assert!(!self.is_anybody_left(), "a process was left behind");
        let (mut stdout, mut stderr) = (String::new(), String::new());
        self.child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        let answer = Answer { code: self.child.wait().unwrap().code(), stdout, stderr };
        assert!(!answer.stderr.contains("panicked"), "{}", answer.stderr);
        answer
    }

    fn interrupted(self) -> Value {
        let answer = self.answer();
        assert_eq!(answer.code, Some(130), "{}{}", answer.stdout, answer.stderr);
        let run = answer.json();
        assert_eq!(run["interrupted"], true, "{run}");
        assert_adds_up(&run);
        assert!(number(&run, "elapsed_s") < 60.0, "{run}");
        run
    }
}

/// What a failed test leaves running would go on for an hour.
impl Drop for Running {
    fn drop(&mut self) {
        let _ = kill_process_group(self.pid, Signal::KILL);
        let _ = self.child.wait();
    }
}

fn with(more: &[&'static str]) -> Vec<&'static str> {
    [&LONG[..], more].concat()
}

#[test]
fn a_closed_loop_gives_its_numbers_so_far() {
    let running = start(&with(&["--json"]));
    sleep(Duration::from_millis(300));
    kill_process(running.pid, Signal::INT).unwrap();
    assert!(int(&running.interrupted(), "allowed") >= 10);
}

#[test]
fn callers_that_wait_for_their_next_call_are_woken() {
    let running = start(&with(&["--demand", "1/h", "--json"]));
    sleep(Duration::from_millis(300));
    kill_process(running.pid, Signal::INT).unwrap();
    assert_eq!(running.interrupted()["offered"], 1);
}

#[test]
fn before_the_first_call() {
    for processes in ["1", "2"] {
        let mut running = start(&with(&["--processes", processes, "--json"]));
        running.interrupt_until_it_ends();
        running.interrupted();
    }
}

#[test]
fn the_parent_alone_stops_its_processes() {
    let running = start(&with(&["--processes", "2", "--demand", "1000/s", "--json"]));
    sleep(Duration::from_millis(600));
    kill_process(running.pid, Signal::INT).unwrap();
    let run = running.interrupted();
    assert!(int(&run, "allowed") >= 20, "both had begun: {run}");
}

#[test]
fn a_terminal_sends_it_to_all() {
    let running = start(&with(&["--processes", "2", "--demand", "1000/s", "--json"]));
    sleep(Duration::from_millis(600));
    kill_process_group(running.pid, Signal::INT).unwrap();
    let run = running.interrupted();
    assert!(int(&run, "allowed") >= 20, "both had begun: {run}");
}

#[test]
fn more_than_one_changes_nothing() {
    let running = start(&with(&["--processes", "2", "--json"]));
    for _ in 0..20 {
        // It may have ended by now.
        let _ = kill_process_group(running.pid, Signal::INT);
        sleep(Duration::from_millis(5));
    }
    running.interrupted();
}

#[test]
fn a_parent_that_is_killed_takes_its_processes_along() {
    let mut running = start(&with(&["--processes", "2", "--demand", "10/s", "--json"]));
    sleep(Duration::from_millis(500));
    running.child.kill().unwrap();
    running.child.wait().unwrap();
    wait_until(|| !running.is_anybody_left());
}

#[test]
fn the_demo_shows_what_it_has() {
    let running = start(&["demo", "--json"]);
    sleep(Duration::from_millis(500));
    kill_process(running.pid, Signal::INT).unwrap();
    let demo = running.interrupted();
    assert!(int(&demo, "offered") > 0);
    assert_eq!(demo["within_limit"], true);

    let mut running = start(&["demo"]);
    running.interrupt_until_it_ends();
    let answer = running.answer();
    assert_eq!(answer.code, Some(130));
    assert!(answer.stdout.contains("Interrupted"), "{}", answer.stdout);
}
