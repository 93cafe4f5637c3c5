//! `acquire`: one question, one decision, and an exit code for scripts.

mod support;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use support::{assert_fields, run, run_json};

#[test]
fn every_field_has_its_type() {
    let decision = run_json(0, &["acquire", "item:42", "--limit", "token-bucket 50/s burst 20", "--permits", "3"]);
    assert_fields(
        &decision,
        &[
            ("schema", "int"),
            ("command", "text"),
            ("key", "text"),
            ("name", "text"),
            ("limit", "text"),
            ("permits", "int"),
            ("allowed", "bool"),
            ("remaining", "int"),
            ("remaining_exact", "bool"),
            ("retry_after_ms", "number"),
            ("reset_after_ms", "number"),
            ("wait_ms", "number"),
            ("decided_by", "text"),
        ],
    );
    assert_eq!(decision["command"], "acquire");
    assert_eq!(decision["key"], "item:42");
    assert_eq!(decision["name"], "default");
    assert_eq!(decision["limit"], "token-bucket 50/s burst 20");
    assert_eq!(decision["permits"], 3);
    assert_eq!(decision["allowed"], true);
    assert_eq!(decision["remaining"], 17);
    assert_eq!(decision["remaining_exact"], true);
    assert_eq!(decision["retry_after_ms"], 0.0);
    assert_eq!(decision["reset_after_ms"], 60.0);
    assert_eq!(decision["wait_ms"], 0.0);
    assert_eq!(decision["decided_by"], "local");
}

#[test]
fn the_limit_is_written_out_and_named() {
    let decision = run_json(0, &["acquire", "k", "--limit", "500_000/s", "--name", "checkout"]);
    assert_eq!(decision["limit"], "token-bucket 500000/s burst 500000");
    assert_eq!(decision["name"], "checkout");
}

#[test]
fn every_algorithm_answers() {
    for limit in [
        "token-bucket 5/s burst 2",
        "leaky-bucket 5/s capacity 2",
        "pacing-queue 5/s capacity 2",
        "fixed-window 5/day",
        "sliding-window 3/10s",
        "sliding-log 5/min",
    ] {
        let decision = run_json(0, &["acquire", "k", "--limit", limit, "--permits", "2"]);
        assert_eq!(decision["limit"], limit);
        assert_eq!(decision["allowed"], true);
    }
}

#[test]
fn a_key_is_any_bytes() {
    let key = OsStr::from_bytes(b"\x01\\x01\n \xc2\xb5~");
    let arguments = [OsStr::new("acquire"), OsStr::new("--limit"), OsStr::new("5/s"), OsStr::new("--json"), key];
    assert_eq!(run(arguments).json()["key"], r"\x01\\x01\x0a \xc2\xb5~");
}

#[test]
fn a_key_may_look_like_an_option() {
    let answer = run(["acquire", "--limit", "5/s", "--json", "--", "--json"]);
    assert_eq!(answer.json()["key"], "--json");
    let answer = run(["acquire", "--limit", "5/s", "--", "--json"]);
    assert!(answer.stdout.starts_with("decision"), "a key asks for nothing: {}", answer.stdout);
}

#[test]
fn without_json_it_is_a_table_without_colour() {
    let answer = run(["acquire", "item:42", "--limit", "5000/s burst 2000", "--permits", "3"]);
    assert_eq!(answer.code, Some(0));
    assert_eq!(answer.stderr, "");
    assert!(!answer.stdout.contains('\x1b'), "{:?}", answer.stdout);
    for fact in ["decision     allowed\n", "key          item:42\n", "remaining    1,997 (exact)\n"] {
        assert!(answer.stdout.contains(fact), "{fact:?} in {}", answer.stdout);
    }
}
