//! `bench`: what it offers, what it counts, and what it says about itself. No test here asks how fast anything is.

mod support;

use serde_json::Value;
use support::{assert_adds_up, assert_fields, int, number, run, run_json};

const FIELDS: [(&str, &str); 31] = [
    ("schema", "int"),
    ("command", "text"),
    ("store", "text"),
    ("mode", "text"),
    ("key", "text"),
    ("name", "text"),
    ("limit", "text"),
    ("permits", "int"),
    ("callers", "int"),
    ("processes", "int"),
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
    ("decided_by", "object"),
    ("decisions_per_s", "number"),
    ("store_calls", "int"),
    ("client_cpu_s", "number"),
    ("latency_us", "object"),
    ("shards", "array"),
    ("mismatches", "int"),
    ("mismatches_by_process", "array"),
    ("overshoot", "null"),
    ("overshoot_s", "null"),
    ("allowance", "number"),
];

fn bench(arguments: &[&str]) -> Value {
    let run = run_json(0, &[&["bench", "--key", "item:42"], arguments].concat());
    assert_adds_up(&run);
    assert_eq!(run["interrupted"], false);
    run
}

/// The promise of a bucket: never more than burst + rate · time, in each of `processes` separate stores.
fn assert_within(run: &Value, permits: u64, rate: u64, burst: u64, processes: u64) {
    let most = processes as f64 * (burst as f64 + rate as f64 * number(run, "elapsed_s"));
    let allowed = int(run, "allowed") * permits;
    assert!(allowed as f64 <= most, "{allowed} permits, at most {most}: {run}");
    assert!(allowed >= burst.min(int(run, "offered") * permits), "the burst was there: {run}");
}

#[test]
fn every_field_has_its_type() {
    let arguments = ["--limit", "1000/s burst 10", "--duration", "100ms", "--demand", "500/s", "--callers", "3"];
    let run = bench(&arguments);
    assert_fields(&run, &FIELDS);
    let words = ["store", "local", "lease", "ceiling", "fallback"];
    assert_fields(&run["decided_by"], &words.map(|word| (word, "int")));
    assert_fields(&run["latency_us"], &["p50", "p90", "p99", "p999", "max"].map(|rank| (rank, "number")));
    let shards = run["shards"].as_array().unwrap();
    assert_eq!(shards.len(), 1);
    assert_fields(
        &shards[0],
        &[
            ("shard", "int"),
            ("slot", "null"),
            ("master", "null"),
            ("calls", "int"),
            ("allowed", "int"),
            ("denied", "int"),
        ],
    );
    for (field, value) in [
        ("command", "bench".into()),
        ("store", "local".into()),
        ("mode", "exact".into()),
        ("key", "item:42".into()),
        ("name", "default".into()),
        ("limit", Value::from("token-bucket 1000/s burst 10")),
        ("permits", 1.into()),
        ("callers", 3.into()),
        ("processes", 1.into()),
        ("demand", 500.0.into()),
        ("errors", 0.into()),
        ("mismatches", 0.into()),
        ("mismatches_by_process", vec![0].into()),
        ("allowance", 0.0.into()),
    ] {
        assert_eq!(run[field], value, "{field}");
    }
    for field in ["allowed", "denied"] {
        assert_eq!(shards[0][field], run[field]);
    }
    for calls in [&run["decided_by"]["local"], &run["store_calls"], &shards[0]["calls"]] {
        assert_eq!(calls, &run["decisions"]);
    }
    assert!(number(&run, "client_cpu_s") > 0.0);
    let latency = ["p50", "p90", "p99", "p999", "max"].map(|rank| number(&run["latency_us"], rank));
    assert!(latency[0] > 0.0 && latency.is_sorted(), "{latency:?}");
}

#[test]
fn the_open_loop_offers_what_was_demanded() {
    // 64 callers do not divide 1,001 calls, and 1,001 does not divide a second.
    let arguments = ["--limit", "500/s burst 50", "--duration", "1s", "--demand", "1001/s", "--name", "open"];
    let mut most_offered = 0;
    for _ in 0..5 {
        let run = bench(&arguments);
        most_offered = most_offered.max(int(&run, "offered"));
        assert!(int(&run, "offered") <= 1_001, "{run}");
        assert!(number(&run, "elapsed_s") >= 1.0, "{run}");
        assert_within(&run, 1, 500, 50, 1);
        if run["valid"] == true {
            assert!(int(&run, "offered") >= 991, "{run}");
            return;
        }
    }
    // A machine that is too busy says so. Even then calls are late rather than left out.
    assert!(most_offered >= 751, "{most_offered}");
}

#[test]
fn the_closed_loop_calls_again_and_again() {
    let run = bench(&["--limit", "1000/s burst 100", "--duration", "300ms", "--callers", "5"]);
    assert_eq!(run["demand"], Value::Null);
    assert_eq!((&run["late"], &run["valid"]), (&0.into(), &true.into()));
    assert!(int(&run, "denied") > 0, "five callers ask for more than 1000/s: {run}");
    assert_within(&run, 1, 1_000, 100, 1);
}

#[test]
fn permits_are_charged_as_asked() {
    let run = bench(&["--limit", "700/s burst 100", "--duration", "200ms", "--callers", "2", "--permits", "7"]);
    assert_eq!(int(&run, "permits"), 7);
    let most = 100.0 + 700.0 * number(&run, "elapsed_s");
    assert!(int(&run, "allowed") as f64 * 7.0 <= most, "{run}");
    assert!(int(&run, "allowed") >= 14, "a burst of 100 has fourteen times seven: {run}");
}

#[test]
fn a_demand_that_can_not_be_met_is_not_valid() {
    for callers in ["1", "64"] {
        let arguments = ["--limit", "1000/s burst 100", "--duration", "200ms", "--demand", "1000000000/s"];
        let run = bench(&[&arguments[..], &["--callers", callers]].concat());
        assert_eq!(run["valid"], false, "{run}");
        assert!(int(&run, "late") > 0, "{run}");
        assert!(int(&run, "offered") < 200_000_000, "{run}");
        assert_within(&run, 1, 1_000, 100, 1);
    }
}

#[test]
fn a_slow_schedule_lasts_to_its_end() {
    let run = bench(&["--limit", "5/s", "--duration", "300ms", "--demand", "1/h"]);
    assert_eq!(int(&run, "offered"), 1, "the first call is due at the start: {run}");
    assert!(number(&run, "elapsed_s") >= 0.3, "{run}");
}

#[test]
fn processes_split_the_demand_exactly() {
    let arguments = ["--limit", "100/s burst 20", "--duration", "500ms", "--callers", "7"];
    let mut most_offered = 0;
    for _ in 0..5 {
        let run = bench(&[&arguments[..], &["--processes", "3", "--demand", "1001/s"]].concat());
        assert_fields(&run, &FIELDS);
        assert_eq!((int(&run, "processes"), int(&run, "callers")), (3, 7));
        assert_eq!(run["mismatches_by_process"].as_array().unwrap().len(), 3);
        most_offered = most_offered.max(int(&run, "offered"));
        assert!(int(&run, "offered") <= 501, "{run}");
        assert_within(&run, 1, 100, 20, 3);
        assert!(number(&run, "client_cpu_s") > 0.0);
        if run["valid"] == true {
            assert!(int(&run, "offered") >= 496, "{run}");
            // Each process has its own store, and found its own burst there.
            assert!(int(&run, "allowed") >= 60, "{run}");
            return;
        }
    }
    assert!(most_offered >= 376, "{most_offered}");
}

/// There is nothing to lease from oneself: the limit is kept as in exact mode, and the run says so.
#[test]
fn on_the_embedded_store_leased_is_exact() {
    let limit = ["--limit", "1000/s burst 100", "--duration", "200ms", "--callers", "5", "--processes", "2"];
    let answer = run([&["bench", "--key", "k", "--mode", "leased", "--check", "--json"], &limit[..]].concat());
    assert!(answer.stderr.contains("leases nothing"), "{}", answer.stderr);
    let report = answer.json();
    assert_adds_up(&report);
    assert_eq!((&report["mode"], number(&report, "allowance")), (&"leased".into(), 0.0));
    assert_eq!(report["decided_by"]["local"], report["decisions"]);
    assert_within(&report, 1, 1_000, 100, 2);
}

#[test]
fn processes_say_that_each_has_its_own_limit() {
    let arguments = ["--limit", "5/s", "--duration", "50ms", "--demand", "100/s", "--processes", "2", "--json"];
    let answer = run([&["bench", "--key", "k"], &arguments[..]].concat());
    assert!(answer.stderr.contains("each process has a limit of its own"), "{}", answer.stderr);
    assert_adds_up(&answer.json());
}

#[test]
fn without_json_it_is_tables_without_colour_or_progress() {
    let answer =
        run(["bench", "--key", "k", "--limit", "1000/s burst 10", "--duration", "200ms", "--demand", "2000/s"]);
    assert_eq!((answer.code, answer.stderr.as_str()), (Some(0), ""), "no progress but on a terminal");
    assert!(!answer.stdout.contains('\x1b'), "{:?}", answer.stdout);
    for part in ["2,000 calls a second on schedule", "offered", "  allowed", "latency", "shard  slot  master"] {
        assert!(answer.stdout.contains(part), "{part:?} in {}", answer.stdout);
    }
}
