//! Configuration files: checked, and gone by.

mod support;

#[path = "../../tests/support/server.rs"]
#[allow(dead_code, unreachable_pub)]
mod server;

use std::path::PathBuf;

use redis::cmd;
use server::Server;
use support::{assert_adds_up, assert_fields, int, run, run_json, shardlimit};

/// A file that goes when the test does.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("shardlimit-config-{name}-{}.toml", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

const LIMITS: &str = r#"
[limits.checkout]
limit = "token-bucket 90000/day burst 900"
[limits.leased]
limit = "token-bucket 90000/day burst 900"
leases = { ttl = "100ms" }
"#;

#[test]
fn a_file_is_checked_without_a_server() {
    let file = File::new("check", &format!("redis = [\"redis://u:hunter2@127.0.0.1:1\"]\n{LIMITS}"));
    let report = run_json(0, &["config", "check", file.path()]);
    let fields = [("schema", "int"), ("command", "text"), ("action", "text"), ("file", "text"), ("store", "text")];
    assert_fields(&report, &[&fields[..], &[("limits", "array")]].concat());
    assert_eq!((&report["command"], &report["store"]), (&"config".into(), &"redis".into()));
    assert_fields(&report["limits"][0], &[("name", "text"), ("limit", "text"), ("leased", "bool")]);
    assert_eq!((&report["limits"][0]["name"], &report["limits"][1]["leased"]), (&"checkout".into(), &true.into()));
    let table = run(["config", "check", file.path()]);
    assert!(table.stdout.contains("can be used") && table.stdout.contains("burst 900"), "{}", table.stdout);
    assert!(!table.stdout.contains("hunter2"), "{}", table.stdout);
}

#[test]
fn what_is_wrong_with_a_file_is_told() {
    let refused = |text: &str, parts: &[&str]| {
        let file = File::new("bad", text);
        for arguments in [&["config", "check", file.path()][..], &["acquire", "k", "--config", file.path()]] {
            let error = &run_json(2, arguments)["error"];
            assert_eq!(error["kind"], "invalid_setting", "{error}");
            let message = error["message"].as_str().unwrap();
            assert!(parts.iter().all(|part| message.contains(part)), "{message}");
            assert!(message.contains(file.path()) && !message.contains("hunter2"), "{message}");
        }
    };
    refused("redis = \"redis://u:hunter2@h\"", &["must be a list", "redis, line 1"]);
    refused("redis = [\"redis://u:${SHARDLIMIT_TEST_NO}@h\"]", &["SHARDLIMIT_TEST_NO", "not set"]);
    refused("\ntimeout = \"1 parsec\"", &["timeout, line 2"]);
    refused("timeuot = \"1s\"", &["\"timeuot\" is not known", "timeout"]);
    let missing = run_json(2, &["config", "check", "/nowhere/limits.toml"]);
    assert!(missing["error"]["message"].as_str().unwrap().contains("/nowhere/limits.toml"), "{missing}");
}

/// A file says all there is to say: what else would say it is refused, and not passed over.
#[test]
fn a_file_and_other_words_for_the_same_are_refused() {
    let file = File::new("twice", LIMITS);
    for (option, value) in [
        ("--limit", "5/s"),
        ("--redis", "127.0.0.1:1"),
        ("--ring", "127.0.0.1:1"),
        ("--shards", "2"),
        ("--hot", "7"),
        ("--revision", "7"),
        ("--selector", "round-robin"),
        ("--on-failure", "error"),
        ("--deadline", "1s"),
    ] {
        let answer = run_json(2, &["acquire", "k", "--config", file.path(), option, value]);
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains("--config") && message.contains(option), "{message}");
    }
    let answer = run_json(2, &["bench", "--key", "k", "--config", file.path(), "--mode", "leased"]);
    assert!(answer["error"]["message"].as_str().unwrap().contains("--mode"), "{answer}");
    let unknown = run_json(2, &["acquire", "k", "--config", file.path()]);
    let message = unknown["error"]["message"].as_str().unwrap();
    assert!(message.contains("\"default\" is no limit") && message.contains("checkout, leased"), "{message}");
    let nothing = run_json(2, &["acquire", "k"]);
    assert!(nothing["error"]["message"].as_str().unwrap().contains("--limit"), "{nothing}");
}

#[test]
fn commands_go_by_a_file() {
    let server = Server::start(&[]);
    cmd("CONFIG").arg("SET").arg("requirepass").arg("p@ss/w?rd").exec(&mut server.connection()).unwrap();
    let text = "redis = [\"redis://default:${SHARDLIMIT_TEST_PASSWORD}@127.0.0.1:PORT\"]\ndeadline = \"10s\"\n\
                prefix = \"by-file\"\non_failure = \"error\"\n";
    let file = File::new("go", &format!("{}{LIMITS}", text.replace("PORT", &server.port.to_string())));
    let by_file = |arguments: &[&str]| {
        let mut command = shardlimit();
        command.env("SHARDLIMIT_TEST_PASSWORD", "p@ss/w?rd").args(arguments);
        let answer: support::Answer = command.args(["--config", file.path(), "--json"]).output().unwrap().into();
        assert_eq!(answer.code, Some(0), "{arguments:?}: {}{}", answer.stdout, answer.stderr);
        answer.json()
    };
    let decision = by_file(&["acquire", "k", "--name", "checkout", "--permits", "5"]);
    assert_eq!((&decision["limit"], int(&decision, "remaining")), (&"token-bucket 90000/day burst 900".into(), 895));
    let plan = by_file(&["plan", "k", "--name", "checkout"]);
    assert!(plan["shards"][0]["subkey"].as_str().unwrap().starts_with("by-file:{"), "{plan}");
    for (name, mode, processes) in [("checkout", "exact", "1"), ("leased", "leased", "2")] {
        let run = by_file(&[
            "bench",
            "--key",
            "hot",
            "--name",
            name,
            "--duration",
            "300ms",
            "--callers",
            "4",
            "--check",
            "--processes",
            processes,
        ]);
        assert_adds_up(&run);
        assert_eq!((&run["mode"], &run["store"]), (&mode.into(), &"cluster".into()), "{run}");
        let allowed = int(&run, "allowed");
        assert!((850..=900 + 1 + 105).contains(&allowed), "{run}");
        assert_eq!(run["allowance"].as_f64().unwrap() > 0.0, mode == "leased", "{run}");
    }
}
