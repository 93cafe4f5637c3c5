//! `count`: totals by key, distinct values, and events in sliding windows.

mod support;

#[path = "../../tests/support/cluster.rs"]
#[allow(dead_code, unreachable_pub)]
mod cluster;
#[path = "../../tests/support/server.rs"]
#[allow(dead_code, unreachable_pub)]
mod server;

use cluster::{Cluster, Layout};
use serde_json::{Value, json};
use support::{assert_fields, run, run_json};

fn three_masters() -> (Cluster, String) {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    let urls = cluster.nodes.iter().map(|node| format!("127.0.0.1:{}", node.server.port)).collect::<Vec<_>>();
    (cluster, urls.join(","))
}

fn count(code: i32, urls: &str, arguments: &[&str]) -> Value {
    run_json(code, &[&["count"], arguments, &["--redis", urls]].concat())
}

#[test]
fn every_field_has_its_type() {
    let common = [("schema", "int"), ("command", "text"), ("action", "text"), ("key", "text"), ("name", "text")];
    let fields = |more: &[(&'static str, &'static str)]| [&common[..], more, &[("store", "text")]].concat();
    let added = run_json(0, &["count", "add", "item:\u{1b}", "-3"]);
    assert_fields(&added, &fields(&[("amount", "int"), ("counted", "bool"), ("total", "int")]));
    assert_eq!((&added["command"], &added["action"], &added["total"]), (&json!("count"), &json!("add"), &json!(-3)));
    assert_eq!((&added["key"], &added["store"]), (&json!("item:\\x1b"), &json!("local")));
    for action in ["get", "reset"] {
        let read = run_json(0, &["count", action, "k", "--name", "clicks"]);
        assert_fields(&read, &fields(&[("amount", "null"), ("counted", "null"), ("total", "int")]));
        assert_eq!((&read["action"], &read["name"], &read["total"]), (&json!(action), &json!("clicks"), &json!(0)));
    }
    let values = [("values", "int"), ("distinct", "int"), ("exact", "bool")];
    let exact = run_json(0, &["count", "distinct", "page", "alice", "bob", "alice"]);
    assert_fields(&exact, &fields(&[&values[..], &[("fresh", "int")]].concat()));
    assert_eq!((&exact["values"], &exact["fresh"], &exact["distinct"]), (&json!(3), &json!(2), &json!(2)));
    let about = run_json(0, &["count", "distinct", "page", "alice", "bob", "--approximate"]);
    assert_fields(&about, &fields(&[&values[..], &[("fresh", "null")]].concat()));
    assert_eq!((&about["exact"], &about["distinct"]), (&json!(false), &json!(2)));
    let events = run_json(0, &["count", "events", "alice", "3", "--window", "1min", "--window", "1d"]);
    assert_fields(&events, &fields(&[("added", "int"), ("windows", "array")]));
    assert_eq!(events["windows"], json!([{"ms": 60_000, "events": 3}, {"ms": 86_400_000, "events": 3}]));
}

/// One run after the other, each a process of its own, counts on.
#[test]
fn a_cluster_counts_on() {
    let (_cluster, urls) = three_masters();
    assert_eq!(count(0, &urls, &["add", "k"])["total"], 1);
    assert_eq!(count(0, &urls, &["add", "k", "5", "--ttl", "30d"])["total"], 6);
    let above = count(1, &urls, &["add", "k", "5", "--within", "10"]);
    assert_eq!((&above["counted"], &above["total"]), (&json!(false), &json!(6)));
    assert_eq!(count(0, &urls, &["get", "k"])["total"], 6);
    assert_eq!(count(0, &urls, &["get", "k", "--name", "other"])["total"], 0);
    count(0, &urls, &["reset", "k"]);
    assert_eq!(count(0, &urls, &["get", "k"])["total"], 0);

    assert_eq!(count(0, &urls, &["add", "split", "7", "--shards", "3"])["total"], 7);
    assert_eq!(count(0, &urls, &["get", "split", "--shards", "3"])["total"], 7);

    for (values, distinct) in [(&["a", "b"][..], 2), (&["b", "c"], 3), (&[], 3)] {
        for more in [&["--shards", "3"][..], &["--approximate"]] {
            let report = count(0, &urls, &[&["distinct", "page"], values, more].concat());
            assert_eq!(report["distinct"], distinct, "{report}");
        }
    }

    for (added, events) in [(&["2"][..], 2), (&["3"], 5), (&[], 5)] {
        let report = count(0, &urls, &[&["events", "alice"], added].concat());
        assert_eq!(report["windows"], json!([{"ms": 3_600_000, "events": events}]), "{report}");
    }
    let both = count(0, &urls, &["events", "alice", "1", "--window", "1min", "--window", "1h"]);
    assert_eq!(both["windows"], json!([{"ms": 60_000, "events": 1}, {"ms": 3_600_000, "events": 6}]));
}

#[test]
fn without_json_it_is_a_table() {
    let added = run(["count", "add", "k", "5"]);
    assert_eq!((added.code, added.stderr.as_str()), (Some(0), ""));
    for fact in ["total    5\n", "key      k\n", "amount   5\n", "counted  yes\n"] {
        assert!(added.stdout.contains(fact), "{fact:?} in {}", added.stdout);
    }
    let above = run(["count", "add", "k", "5", "--within", "4"]);
    assert_eq!(above.code, Some(1), "{}", above.stdout);
    assert!(above.stdout.contains("above the bound"), "{}", above.stdout);
    let distinct = run(["count", "distinct", "k", "a"]);
    assert!(distinct.stdout.contains("distinct  1 (exact)\n"), "{}", distinct.stdout);
    let events = run(["count", "events", "k", "1000"]);
    assert_eq!((events.code, events.stderr.as_str()), (Some(0), ""));
    assert!(events.stdout.contains("3600s  1,000\n"), "{}", events.stdout);
}

#[test]
fn what_is_wrong_is_told_with_its_field() {
    for (arguments, field) in [
        (&["count", "add", "k", "x"][..], "amount"),
        (&["count", "add", "k", "1", "--ttl", "0s"], "ttl"),
        (&["count", "add", "k", "1", "--shards", "0"], "shards"),
        (&["count", "add", "k", "1", "--shards", "2", "--within", "5"], "shards"),
        (&["count", "add", "", "1"], "key"),
        (&["count", "get", "k", "--name", "a:b"], "name"),
        (&["count", "distinct", "k", "--window", "9999d"], "window"),
        (&["count", "distinct", "k", ""], "value"),
        (&["count", "events", "k", "-1"], "events"),
        (&["count", "events", "k", "--window", "0s"], "window"),
        (&["count", "add", "k", "--redis", "127.0.0.1:1"], "redis"),
        (&["count", "get", "k", "--redis", "127.0.0.1:1"], "redis"),
    ] {
        let report = run_json(2, arguments);
        assert_eq!((&report["error"]["field"], &report["command"]), (&json!(field), &json!("count")), "{report}");
    }
}
