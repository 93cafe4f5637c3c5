//! Runs the program as a shell would, and reads its answer.

#![allow(dead_code, reason = "each test file uses its part")]

use std::ffi::OsStr;
use std::process::{Command, Output};

use serde_json::Value;

pub(crate) fn shardlimit() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shardlimit"));
    command.env_remove("NO_COLOR");
    command
}

pub(crate) struct Answer {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Answer {
    /// The one object on stdout.
    pub(crate) fn json(&self) -> Value {
        one_object(&self.stdout)
    }
}

impl From<Output> for Answer {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).expect("stdout is text"),
            stderr: String::from_utf8(output.stderr).expect("stderr is text"),
        }
    }
}

pub(crate) fn run<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Answer {
    let answer: Answer = shardlimit().args(arguments).output().expect("the program starts").into();
    assert!(!answer.stderr.contains("panicked"), "{}", answer.stderr);
    answer
}

/// Runs with `--json`, expects an exit code, and gives the one object.
pub(crate) fn run_json(code: i32, arguments: &[&str]) -> Value {
    let answer = run(arguments.iter().chain(&["--json"]));
    assert_eq!(answer.code, Some(code), "{arguments:?}: {}{}", answer.stdout, answer.stderr);
    answer.json()
}

pub(crate) fn one_object(stdout: &str) -> Value {
    assert_eq!(stdout.matches('\n').count(), 1, "one line: {stdout:?}");
    assert!(stdout.ends_with('\n'), "a whole line: {stdout:?}");
    let value: Value = serde_json::from_str(stdout).expect("JSON");
    assert!(value.is_object(), "{value}");
    assert_eq!(value["schema"], 1);
    value
}

/// Exactly these fields, with these types: `int`, `number` (always with a point), `text`, `bool`, `null`, `object`,
/// `array`.
pub(crate) fn assert_fields(object: &Value, fields: &[(&str, &str)]) {
    let found: Vec<(&str, &str)> =
        object.as_object().expect("an object").iter().map(|(name, value)| (name.as_str(), type_of(value))).collect();
    let sorted = |fields: &[(&str, &str)]| {
        let mut fields: Vec<(String, String)> = fields.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect();
        fields.sort();
        fields
    };
    assert_eq!(sorted(&found), sorted(fields), "{object}");
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "int",
        Value::String(_) => "text",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

pub(crate) fn int(object: &Value, field: &str) -> u64 {
    object[field].as_u64().unwrap_or_else(|| panic!("{field} is a count: {object}"))
}

pub(crate) fn number(object: &Value, field: &str) -> f64 {
    object[field].as_f64().unwrap_or_else(|| panic!("{field} is a number: {object}"))
}

/// What holds for every run, also for one that ended early.
pub(crate) fn assert_adds_up(run: &Value) {
    let decided = int(run, "allowed") + int(run, "denied") + int(run, "errors");
    assert_eq!(int(run, "decisions"), decided, "{run}");
    assert_eq!(int(run, "offered"), decided, "every call that began was decided: {run}");
    assert!(int(run, "late") <= int(run, "offered"), "{run}");
}
