//! `ring`, and the option `--ring` of the other commands.

mod support;

#[path = "../../tests/support/server.rs"]
#[allow(dead_code, unreachable_pub)]
mod server;

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use server::Server;
use support::{run, run_json};

fn names(report: &Value) -> Vec<String> {
    report["nodes"].as_array().unwrap().iter().map(|node| node["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn nodes_come_and_go_and_keys_come_along() {
    let servers = Server::start_many(3, &[]);
    let addresses: Vec<String> = servers.iter().map(|server| format!("127.0.0.1:{}", server.port)).collect();
    let two = addresses[..2].join(",");
    let limit = ["--limit", "token-bucket 300/day burst 300"];

    // To look at a ring makes none.
    let nothing = run_json(2, &["ring", "show", "--ring", &two]);
    assert_eq!(nothing["error"]["field"], "ring", "{nothing}");
    for key in 0..10 {
        let key = format!("key{key}");
        let taken = run_json(0, &[&["acquire", &key, "--permits", "100", "--ring", &two], &limit[..]].concat());
        assert_eq!(taken["allowed"], true, "{taken}");
    }
    let plan = run_json(0, &[&["plan", "key0", "--ring", &two], &limit[..]].concat());
    assert_eq!(plan["shards"].as_array().unwrap().len(), 2, "{plan}");
    let shown = run_json(0, &["ring", "show", "--ring", &addresses[0]]);
    assert_eq!((&shown["settled"], &shown["differs"]), (&json!(true), &json!(true)), "{shown}");

    let added = run_json(0, &["ring", "add", &format!("{}*2", addresses[2]), "--ring", &two]);
    assert_eq!((names(&added).len(), &added["settled"]), (3, &json!(true)), "{added}");
    let refused = run_json(2, &["ring", "remove", "nobody:1", "--ring", &two]);
    assert!(refused["error"]["message"].as_str().unwrap().contains("no node of it"), "{refused}");
    let removed = run_json(0, &["ring", "remove", &addresses[0], "--ring", &addresses[1]]);
    assert!(!names(&removed).contains(&addresses[0]) && names(&removed).len() == 2, "{removed}");
    for key in 0..10 {
        let key = format!("key{key}");
        let ask = |permits: &str| {
            run([&["acquire", &key, "--permits", permits, "--ring", &addresses[1], "--json"], &limit[..]].concat()).code
        };
        // A process that ends while it lends a share leaves that on its way: whoever comes next has it brought home.
        let patience = Instant::now();
        while ask("200") != Some(0) {
            assert!(patience.elapsed() < Duration::from_secs(30), "{key} has lost something");
        }
        assert_eq!(ask("1"), Some(1), "{key} has gained something");
    }
}

#[test]
fn a_ring_is_not_a_cluster() {
    let both = run_json(2, &["acquire", "k", "--limit", "5/s", "--ring", "h:1", "--redis", "h:2"]);
    assert_eq!(both["error"]["kind"], "usage", "{both}");
    let bad = run_json(2, &["ring", "show", "--ring", "http://u:secret@h"]);
    assert!(!bad.to_string().contains("secret"), "{bad}");
}
