//! What can't be accepted is refused: exit 2, a message that names the field and what is accepted, and with
//! `--json` still exactly one object.

mod support;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;

use support::{assert_fields, run, shardlimit};

/// Runs in both forms and checks the field and a part of the message.
fn refused(arguments: &[&str], kind: &str, field: &str, accepted: &str) {
    let plain = run(arguments);
    assert_eq!(plain.code, Some(2), "{arguments:?}");
    assert_eq!(plain.stdout, "", "{arguments:?}");
    assert!(plain.stderr.starts_with("error: ") && plain.stderr.contains(accepted), "{arguments:?}: {}", plain.stderr);

    let answer = run(arguments.iter().chain(&["--json"]));
    assert_eq!(answer.code, Some(2), "{arguments:?}");
    let object = answer.json();
    assert_fields(&object, &[("schema", "int"), ("command", if_named(arguments)), ("error", "object")]);
    assert_fields(&object["error"], &[("kind", "text"), ("field", "text"), ("message", "text")]);
    assert_eq!(object["error"]["kind"], kind, "{object}");
    assert_eq!(object["error"]["field"], field, "{object}");
    let message = object["error"]["message"].as_str().unwrap();
    assert!(message.contains(accepted), "{arguments:?}: {message}");
    assert!(message.to_lowercase().contains(field) || field == "arguments", "the message names {field}: {message}");
    assert!(answer.stderr.contains(message), "{arguments:?}: on stderr too: {}", answer.stderr);
}

fn if_named(arguments: &[&str]) -> &'static str {
    let commands = ["acquire", "bench", "limit", "demo", "cluster", "doctor"];
    if arguments.iter().any(|argument| commands.contains(argument)) { "text" } else { "null" }
}

#[test]
fn limits() {
    let limit = |text, field, accepted| {
        refused(&["acquire", "k", "--limit", text], "invalid_limit", field, accepted);
        refused(&["bench", "--key", "k", "--limit", text], "invalid_limit", field, accepted);
    };
    limit("0/s", "rate", "from 1 to 100000000000");
    limit("-5/s", "rate", "whole number above 0");
    limit("token-bucket -5/s", "rate", "whole number above 0");
    limit("1.5/s", "rate", "whole number above 0");
    limit("5/s burst 0", "burst", "from 1 to 100000000000");
    limit("5/s burst -1", "burst", "whole number above 0");
    limit("5/s burst 18446744073709551616", "burst", "from 1 to 100000000000");
    limit("leaky-bucket 5/s capacity 0", "capacity", "from 1 to");
    limit("18446744073709551615/s", "rate", "from 1 to 100000000000");
    limit("gcra 5/s", "algorithm", "token-bucket");
    limit("bucket 5/s", "algorithm", "known are token-bucket");
    limit("5/fortnight", "period", "us, ms, s, min, h, day or week");
    limit("5/0s", "period", "above 0");
    limit("5", "rate", "permits/period");
    limit("", "limit", "permits/period");
    limit("5/s tokens 3", "limit", "burst");
    limit("fixed-window 5/s burst 3", "limit", "no setting");
}

#[test]
fn permits() {
    let permits = |number, kind, accepted| {
        refused(&["acquire", "k", "--limit", "5/s", "--permits", number], kind, "permits", accepted);
        refused(&["bench", "--key", "k", "--limit", "5/s", "--permits", number], kind, "permits", accepted);
    };
    permits("0", "usage", "from 1 to 18446744073709551615");
    permits("-1", "usage", "from 1 to");
    permits("one", "usage", "from 1 to");
    permits("18446744073709551616", "usage", "from 1 to");
    permits("18446744073709551615", "never", "at most 5");
    permits("6", "never", "at most 5");
}

#[test]
fn keys_and_names() {
    let long = "k".repeat(16_385);
    for key in ["", long.as_str()] {
        refused(&["acquire", key, "--limit", "5/s"], "invalid_key", "key", "1 to 16384 bytes");
        refused(&["bench", "--key", key, "--limit", "5/s"], "invalid_key", "key", "1 to 16384 bytes");
    }
    let long = "n".repeat(129);
    for (name, accepted) in
        [("a{b}", "braces"), ("a:b", "colons"), ("é", "ASCII"), ("", "1 to 128"), (&long, "1 to 128")]
    {
        refused(&["acquire", "k", "--limit", "5/s", "--name", name], "invalid_name", "name", accepted);
        refused(&["bench", "--key", "k", "--limit", "5/s", "--name", name], "invalid_name", "name", accepted);
    }
}

#[test]
fn the_settings_of_a_bench() {
    let bench = |option, value, accepted| {
        let arguments = ["bench", "--key", "k", "--limit", "5/s", option, value];
        refused(&arguments, "usage", option.trim_start_matches('-'), accepted);
    };
    for duration in ["5", "-5s", "0s", "1.5s", "5 s", "x", "", "25h", "99999999999999999999s"] {
        bench("--duration", duration, "such as 5s");
    }
    for demand in ["5", "0/s", "-5/s", "5/x", "/s", "", "1000000001/s", "99999999999999999999/s"] {
        bench("--demand", demand, "such as 200000/s");
    }
    for callers in ["0", "-1", "many", "100001"] {
        bench("--callers", callers, "from 1 to 100000");
    }
    for processes in ["0", "-1", "257"] {
        bench("--processes", processes, "from 1 to 256");
    }
    bench("--processes", "65", "the number of callers, 64");
    for mode in ["", "lease", "Exact", "-1"] {
        bench("--mode", mode, "must be exact or leased");
    }
}

#[test]
fn the_settings_of_a_store() {
    let store = |option, value, accepted| {
        let arguments = ["acquire", "k", "--limit", "5/s", option, value];
        refused(&arguments, "usage", option.trim_start_matches('-'), accepted);
        let arguments = ["bench", "--key", "k", "--limit", "5/s", option, value];
        refused(&arguments, "usage", option.trim_start_matches('-'), accepted);
    };
    for hot in ["0", "-1", "many", "1.5"] {
        store("--hot", hot, "from 1 to");
    }
    for revision in ["-1", "2251799813685248", "latest"] {
        store("--revision", revision, "from 0 to 2251799813685247");
    }
    let leased = ["bench", "--key", "k", "--limit", "5/s", "--mode", "leased", "--revision", "1"];
    refused(&leased, "usage", "revision", "moment of the definition");
    refused(
        &["acquire", "k", "--limit", "5/s", "--shards", "some"],
        "invalid_setting",
        "shards",
        "per-master, off, auto",
    );
}

#[test]
fn the_limits_of_keys_in_use() {
    let set = |arguments: &[&str], kind, field, accepted| {
        refused(&[&["limit", "set", "--redis", "h:1"], arguments].concat(), kind, field, accepted);
    };
    for carry in ["", "all", "Keep", "-1"] {
        set(&["k", "5/s", "--carry", carry], "invalid_setting", "carry", "keep, proportional or reset");
    }
    set(&["k", "-5/s"], "invalid_limit", "rate", "whole number above 0");
    set(&["k", "5"], "invalid_limit", "rate", "permits/period");
    set(&["--all", "0/s"], "invalid_limit", "rate", "from 1 to");
    set(&["k", "5/s", "--limit", "0/s"], "invalid_limit", "rate", "from 1 to");
    set(&["", "5/s"], "invalid_key", "key", "1 to 16384 bytes");
    set(&["k", "5/s", "--name", "a:b"], "invalid_name", "name", "colons");
    set(&["k"], "usage", "limit", "a key and its new limit, or --all");
    set(&["--all", "k", "5/s"], "usage", "all", "none can be given");
    set(&["k", "5/s", "more"], "usage", "more", "shardlimit limit set");
    set(&[], "usage", "key", "<KEY>");
    refused(&["limit", "set", "k", "5/s"], "usage", "redis", "--redis <URL");
    refused(&["limit", "set", "--all", "5/s"], "usage", "redis", "--redis <URL");
    refused(&["limit", "set", "k", "5/s", "--redis", "http://h"], "usage", "redis", "host:port");
    refused(&["limit", "get", "k", "--limit", "5/s"], "usage", "redis", "--redis <URL");
    refused(&["limit", "get", "k", "--redis", "h:1"], "usage", "limit", "--limit <LIMIT>");
    refused(&["limit", "get", "", "--limit", "5/s", "--redis", "h:1"], "invalid_key", "key", "1 to 16384 bytes");
    refused(&["limit", "raise"], "usage", "command", "known are get, set");
}

#[test]
fn the_settings_of_a_cluster() {
    for masters in ["0", "17", "-1", "three", ""] {
        refused(&["cluster", "up", "--masters", masters], "usage", "masters", "from 1 to 16");
    }
    for replicas in ["4", "-1", "one"] {
        refused(&["cluster", "up", "--replicas", replicas], "usage", "replicas", "from 0 to 3");
    }
}

#[test]
fn urls() {
    for url in ["", "localhost", "http://a:1", "a:1,", "a:99999", "redis://a:1/x", "redis://"] {
        refused(&["doctor", "--redis", url], "usage", "redis", "host:port");
    }
    refused(&["doctor", "--redis", "rediss://a:1"], "usage", "redis", "TLS");
    refused(&["doctor"], "usage", "redis", "--redis <URL");
    refused(&["doctor", "--redis", "a:1", "--name", "a:b"], "invalid_name", "name", "colons");
}

#[test]
fn no_error_shows_a_password() {
    for arguments in [
        &["doctor", "--redis", "redis://u:secret@h:99999"][..],
        &["doctor", "--redis", "redis://u:sec,ret@h:1"],
        &["doctor", "--redis", "rediss://u:secret@h:1"],
        &["doctor", "--redis", "h:1", "redis://u:secret@h:2"],
        &["doctor", "--radis=redis://u:secret@h:2"],
        &["redis://u:secret@h:2"],
        &["acquire", "k", "--limit", "5/s", "--permits", "redis://u:secret@h:2"],
    ] {
        let answer = run(arguments.iter().chain(&["--json"]));
        assert_eq!(answer.code, Some(2), "{arguments:?}");
        let said = answer.stdout + &answer.stderr;
        assert!(!said.contains("secret") && !said.contains("sec,") && !said.contains("ret@"), "{said}");
    }
}

#[test]
fn arguments_that_no_command_has() {
    refused(
        &["frobnicate"],
        "usage",
        "command",
        "acquire, bench, check, plan, limit, count, demo, cluster, ring, config, doctor",
    );
    refused(&["cluster", "sideways"], "usage", "command", "known are up, down");
    refused(&["cluster", "up", "--nodes", "3"], "usage", "nodes", "known are --masters, --replicas, --dir");
    refused(
        &["acquire", "k", "--limit", "5/s", "--burst", "3"],
        "usage",
        "burst",
        "known are --limit, --config, --name, --redis, --ring, --shards, --hot, --revision, --selector, --on-failure, --deadline, --permits",
    );
    refused(&["acquire", "k", "--limit", "5/s", "-x"], "usage", "x", "known are --limit");
    refused(&["demo", "--duration", "3s"], "usage", "duration", "known are --json");
    refused(&["acquire", "k", "extra", "--limit", "5/s"], "usage", "extra", "shardlimit acquire");
    refused(&["acquire", "k"], "usage", "limit", "--limit <LIMIT>");
    refused(&["acquire", "--limit", "5/s"], "usage", "key", "<KEY>");
    refused(&["bench", "--limit", "5/s"], "usage", "key", "--key <KEY>");
    refused(&["acquire", "k", "--limit", "5/s", "--limit", "6/s"], "usage", "limit", "multiple times");
}

#[test]
fn an_option_without_its_value() {
    let answer = run(["acquire", "k", "--json", "--limit"]);
    assert_eq!((answer.code, &answer.json()["error"]["field"]), (Some(2), &"limit".into()));
}

#[test]
fn no_command_at_all() {
    let answer = run(["--json"]);
    assert_eq!(answer.code, Some(2));
    assert_eq!(answer.json()["error"]["field"], "command");

    let answer = run::<&str>([]);
    assert_eq!((answer.code, answer.stdout.as_str()), (Some(2), ""));
    assert!(answer.stderr.contains("Usage: shardlimit"), "{}", answer.stderr);
}

#[test]
fn text_that_is_none() {
    let limit = OsStr::from_bytes(b"5\xff/s");
    let answer = run([OsStr::new("acquire"), OsStr::new("k"), OsStr::new("--json"), OsStr::new("--limit"), limit]);
    assert_eq!((answer.code, &answer.json()["error"]["kind"]), (Some(2), &"usage".into()));
}

#[test]
fn help_and_version_stay_plain_text() {
    for arguments in [["--help", "--json"], ["--version", "--json"], ["acquire", "--help"], ["help", "bench"]] {
        let answer = run(arguments);
        assert_eq!((answer.code, answer.stderr.as_str()), (Some(0), ""), "{arguments:?}");
        assert!(answer.stdout.starts_with("shardlimit 0.") || answer.stdout.contains("Usage: "), "{}", answer.stdout);
    }
}

#[test]
fn an_answer_that_can_not_be_written_is_an_error() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = shardlimit();
    command.args(["acquire", "k", "--limit", "5/s", "--json"]).stdout(writer).stderr(Stdio::piped());
    let output = command.output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.starts_with("error: stdout: "), "{stderr}");
}
