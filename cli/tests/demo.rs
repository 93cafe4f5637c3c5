//! `demo`: ends by itself, and its numbers add up.

mod support;

use serde_json::Value;
use support::{assert_adds_up, assert_fields, int, number, run, run_json};

#[test]
fn its_json_sums_up() {
    let demo = run_json(0, &["demo"]);
    assert_fields(
        &demo,
        &[
            ("schema", "int"),
            ("command", "text"),
            ("store", "text"),
            ("mode", "text"),
            ("key", "text"),
            ("name", "text"),
            ("limit", "text"),
            ("demand", "number"),
            ("elapsed_s", "number"),
            ("offered", "int"),
            ("late", "int"),
            ("valid", "bool"),
            ("interrupted", "bool"),
            ("decisions", "int"),
            ("allowed", "int"),
            ("denied", "int"),
            ("errors", "int"),
            ("most_allowed", "int"),
            ("within_limit", "bool"),
            ("series", "array"),
        ],
    );
    assert_adds_up(&demo);
    assert_eq!((&demo["interrupted"], &demo["errors"]), (&false.into(), &0.into()));
    assert_eq!(demo["limit"], "token-bucket 20000/s burst 2000");
    assert_eq!(demo["demand"], 60_000.0, "three times the limit");

    assert_eq!(demo["within_limit"], true, "{demo}");
    assert!(int(&demo, "allowed") <= int(&demo, "most_allowed"), "{demo}");
    let most = 2_000.0 + 20_000.0 * number(&demo, "elapsed_s");
    assert!((int(&demo, "most_allowed") as f64 - most).abs() <= 1.0, "{demo}");

    let series = demo["series"].as_array().unwrap();
    assert_eq!(series.len(), 50, "five seconds, ten samples each");
    let fields = [("at_s", "number"), ("offered", "int"), ("allowed", "int"), ("denied", "int")];
    for point in series {
        assert_fields(point, &fields);
    }
    assert!(series.iter().map(|point| number(point, "at_s")).is_sorted());
    let sum = |field| series.iter().map(|point: &Value| int(point, field)).sum::<u64>();
    for field in ["offered", "allowed", "denied"] {
        assert_eq!(sum(field), int(&demo, field), "{field}");
    }
}

#[test]
fn for_people_it_draws_a_chart_and_says_what_to_type_next() {
    let answer = run(["demo"]);
    assert_eq!((answer.code, answer.stderr.as_str()), (Some(0), ""), "no live view but on a terminal");
    assert!(!answer.stdout.contains('\x1b'), "{:?}", answer.stdout);
    for part in ["80,000/s", "5 s", "offered", "allowed <= burst + rate * time", "Kept at the end", "What to type next"]
    {
        assert!(answer.stdout.contains(part), "{part:?} in {}", answer.stdout);
    }
    // Under the name by which it was called, so that it can be typed as it stands.
    let program = env!("CARGO_BIN_EXE_shardlimit");
    for command in ["bench", "acquire"] {
        assert!(answer.stdout.contains(&format!("    {program} {command} ")), "{command} in {}", answer.stdout);
    }
}
