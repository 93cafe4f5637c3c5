//! `cluster up` and `cluster down`: servers that really run, and nothing left of them.
#![cfg(target_os = "linux")]

mod support;

#[path = "../../tests/support/server.rs"]
#[allow(dead_code, unreachable_pub)]
mod server;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getpgid, kill_process};
use serde_json::{Value, json};
use server::Server;
use support::{Answer, assert_fields, run, run_json, shardlimit};

/// A place for one cluster. Also after a panic nothing runs in it and it is gone.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let place = Self(std::env::temp_dir().join(format!("shardlimit-test-{name}-{}", std::process::id())));
        let _ = fs::remove_dir_all(&place.0);
        place
    }

    fn text(&self) -> &str {
        self.0.to_str().unwrap()
    }

    fn up(&self, more: &[&str]) -> Value {
        run_json(0, &[&["cluster", "up", "--dir", self.text()], more].concat())
    }

    fn down(&self, code: i32) -> Value {
        run_json(code, &["cluster", "down", "--dir", self.text()])
    }

    /// With another program for a server: a script of these lines.
    fn up_with(&self, script: &str) -> Command {
        let program = self.0.with_extension("sh");
        fs::write(&program, format!("#!/bin/sh\n[ \"$1\" = --version ] && exec echo server v=7.0.15\n{script}\n"))
            .unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
        let mut command = shardlimit();
        command.args(["cluster", "up", "--json", "--dir", self.text()]).env("SHARDLIMIT_SERVER", &program);
        command
    }

    /// The processes that work in it. Those that have ended and were not fetched work nowhere.
    fn processes(&self) -> Vec<Pid> {
        let all =
            fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
        let here =
            |pid: &i32| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|folder| folder.starts_with(&self.0));
        all.filter(here).filter_map(Pid::from_raw).collect()
    }

    fn assert_gone(&self) {
        // A server that takes no more connections may need a moment to end.
        wait_until(|| self.processes().is_empty());
        assert!(!self.0.exists(), "{} is left", self.text());
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for pid in self.processes() {
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = fs::remove_file(self.0.with_extension("sh"));
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn answer(command: &mut Command) -> Answer {
    command.output().unwrap().into()
}

fn wait_until(mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(20), "it takes too long");
        sleep(Duration::from_millis(2));
    }
}

fn write_record(place: &Path, pid: u32, port: u16) {
    let node = json!({"pid": pid, "port": port, "bus_port": 1, "run_id": "0123456789012345678901234567890123456789"});
    fs::create_dir(place).unwrap();
    fs::write(place.join("cluster.json"), json!({"nodes": [node]}).to_string()).unwrap();
}

#[test]
fn it_goes_up_and_down() {
    let place = Place::new("up-down");
    let up = place.up(&["--masters", "2", "--replicas", "1"]);
    let texts = ["command", "action", "dir", "redis"].map(|field| (field, "text"));
    assert_fields(&up, &[&texts[..], &[("schema", "int"), ("masters", "array"), ("replicas", "array")]].concat());
    let urls: Vec<&str> = up["masters"].as_array().unwrap().iter().map(|url| url.as_str().unwrap()).collect();
    assert_eq!((urls.len(), up["replicas"].as_array().unwrap().len()), (2, 2));
    assert_eq!(up["redis"], urls.join(","));
    assert_eq!(fs::metadata(&place.0).unwrap().permissions().mode() & 0o777, 0o700);

    let processes = place.processes();
    assert_eq!(processes.len(), 4);
    for pid in processes {
        assert_eq!(getpgid(Some(pid)), Ok(pid), "Ctrl-C at the shell is not for it");
    }
    for url in urls {
        let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
        let info: String = redis::cmd("CLUSTER").arg("INFO").query(&mut connection).unwrap();
        assert!(info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:4"), "{info}");
        let bind: (String, String) = redis::cmd("CONFIG").arg("GET").arg("bind").query(&mut connection).unwrap();
        assert_eq!(bind.1, "127.0.0.1");
    }

    let down = place.down(0);
    assert_eq!((&down["stopped"], &down["gone"], &down["removed"]), (&json!(4), &json!(0), &json!(true)), "{down}");
    place.assert_gone();
    let again = place.down(0);
    assert_eq!((&again["found"], &again["stopped"]), (&json!(false), &json!(0)));
}

#[test]
fn one_is_enough_and_says_what_to_type_next() {
    let place = Place::new("text");
    let up = run(["cluster", "up", "--masters", "1", "--replicas", "0", "--dir", place.text()]);
    assert_eq!(up.code, Some(0), "{}", up.stderr);
    for line in ["acquire item:42 --limit \"token-bucket 1000/s burst 100\" --redis redis://127.0.0.1:", "cluster down"]
    {
        assert!(up.stdout.contains(line), "{}", up.stdout);
    }

    // Twice: the first is untouched.
    let before = place.processes();
    let twice = run_json(2, &["cluster", "up", "--dir", place.text()]);
    assert_eq!(twice["error"]["kind"], "already_up");
    let message = twice["error"]["message"].as_str().unwrap();
    assert!(message.contains("a cluster is up") && message.contains("cluster down"), "{message}");
    assert_eq!(place.processes(), before);

    // A server that has ended already is no error.
    kill_process(before[0], Signal::KILL).unwrap();
    wait_until(|| place.processes().is_empty());
    let left = run_json(2, &["cluster", "up", "--dir", place.text()]);
    assert!(left["error"]["message"].as_str().unwrap().contains("what is left"), "{left}");
    let down = place.down(0);
    assert_eq!((&down["stopped"], &down["gone"]), (&json!(0), &json!(1)));
    place.assert_gone();
}

#[test]
fn a_server_that_does_not_say_who_it_is_is_left_alone() {
    let place = Place::new("paused");
    place.up(&["--masters", "1", "--replicas", "0"]);
    let pid = place.processes()[0];
    kill_process(pid, Signal::STOP).unwrap();
    let down = place.down(1);
    assert_eq!(down["left"][0]["pid"], pid.as_raw_nonzero().get(), "{down}");
    assert_eq!((place.processes().len(), &down["removed"]), (1, &json!(false)));

    kill_process(pid, Signal::CONT).unwrap();
    assert_eq!(place.down(0)["stopped"], 1);
    place.assert_gone();
}

#[test]
fn a_forged_record_stops_nobody() {
    let place = Place::new("forged");
    let mut sleeper = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    write_record(&place.0, sleeper.id(), port);
    let down = run(["cluster", "down", "--json", "--dir", place.text()]);
    let alive = sleeper.try_wait().unwrap().is_none();
    let _ = sleeper.kill();
    let _ = sleeper.wait();
    assert!(alive, "it killed a foreign process");
    assert_eq!((down.code, &down.json()["gone"]), (Some(0), &json!(1)));
    place.assert_gone();

    // A real server on the recorded port, with the recorded pid, but of another run.
    let foreign = Server::start(&[]);
    let info: String = redis::cmd("INFO").arg("server").query(&mut foreign.connection()).unwrap();
    let pid = info.lines().find_map(|line| line.strip_prefix("process_id:")).unwrap().parse().unwrap();
    write_record(&place.0, pid, foreign.port);
    assert_eq!(place.down(0)["stopped"], 0);
    let pong: String = redis::cmd("PING").query(&mut foreign.connection()).unwrap();
    assert_eq!(pong, "PONG");

    // Nobody, everybody and init.
    for pid in [0, u32::MAX, 1] {
        write_record(&place.0, pid, port);
        assert_eq!(place.down(0)["gone"], 1, "pid {pid}");
    }
}

#[test]
fn a_folder_with_other_things_is_not_touched() {
    let place = Place::new("other");
    fs::create_dir(&place.0).unwrap();
    fs::write(place.0.join("letter"), "dear").unwrap();
    let up = run_json(2, &["cluster", "up", "--dir", place.text()]);
    assert_eq!(up["error"]["field"], "dir");
    assert_eq!(place.down(0)["found"], false);
    assert_eq!(fs::read_to_string(place.0.join("letter")).unwrap(), "dear");

    fs::write(place.0.join("cluster.json"), "{\"nodes\": 7}").unwrap();
    assert_eq!(place.down(2)["error"]["field"], "dir");
    fs::write(place.0.join("cluster.json"), "{\"nodes\": []}").unwrap();
    assert_eq!(place.down(0)["removed"], false);
    assert!(place.0.join("letter").exists() && !place.0.join("cluster.json").exists());

    fs::remove_file(place.0.join("letter")).unwrap();
    fs::set_permissions(&place.0, fs::Permissions::from_mode(0o777)).unwrap();
    let up = run_json(2, &["cluster", "up", "--dir", place.text()]);
    assert!(up["error"]["message"].as_str().unwrap().contains("nobody else"), "{up}");
}

#[test]
fn without_a_server_program() {
    let place = Place::new("missing");
    let mut command = shardlimit();
    command.args(["cluster", "up", "--json", "--dir", place.text()]).env("SHARDLIMIT_SERVER", "/no/such/redis-server");
    let answer = answer(&mut command);
    assert_eq!(answer.code, Some(2));
    assert!(answer.stderr.contains("install the package redis-server"), "{}", answer.stderr);
    place.assert_gone();
}

#[test]
fn a_server_that_ends_takes_the_others_along() {
    let place = Place::new("ends");
    // One gets to run, the others do not. No process of the script's own: it would outlive the script.
    let once = place.0.display();
    let script = format!("set -C; true > {once}/once && exec redis-server \"$@\"\necho bad luck; exit 1");
    let mut command = place.up_with(&script);
    let answer = answer(&mut command);
    assert_eq!(answer.code, Some(2), "{}", answer.stdout);
    assert!(answer.stderr.contains("ended by itself: bad luck"), "{}", answer.stderr);
    assert_eq!(place.processes(), []);
    // Of what is in the folder only the script's own is left.
    let left: Vec<_> = fs::read_dir(&place.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["once"]);
}

#[test]
fn sigint_stops_what_was_started() {
    let place = Place::new("sigint");
    let mut command = place.up_with("for folder; do :; done; cd \"$folder\"; exec sleep 1000");
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until(|| place.processes().len() == 6);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let answer: Answer = child.wait_with_output().unwrap().into();
    assert_eq!(answer.code, Some(130), "{}", answer.stderr);
    assert_eq!(answer.json()["error"]["kind"], "interrupted");
    place.assert_gone();
}
