//! `limit`: which limit is in force for a key, and another one while the key is in use.

mod support;

#[path = "../../tests/support/cluster.rs"]
#[allow(dead_code, unreachable_pub)]
mod cluster;
#[path = "../../tests/support/server.rs"]
#[allow(dead_code, unreachable_pub)]
mod server;

use std::thread;
use std::time::{Duration, Instant};

use cluster::{Cluster, Layout};
use serde_json::{Value, json};
use shardlimit::{Limit, Limiter, NamedLimit};
use support::{assert_fields, int, run, run_json};

const DEFINED: &str = "token-bucket 300/day burst 300";

fn three_masters() -> (Cluster, String) {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    let url = |node: &cluster::Node| format!("redis://127.0.0.1:{}", node.server.port);
    let urls = cluster.nodes.iter().map(url).collect::<Vec<_>>().join(",");
    (cluster, urls)
}

/// As another program has it, which began before and goes on.
fn gateway(urls: &str) -> NamedLimit {
    let limiter = Limiter::builder().redis(urls.split(',')).build().unwrap();
    limiter.define("default", DEFINED.parse().unwrap()).unwrap()
}

fn get(urls: &str, key: &str) -> Value {
    run_json(0, &["limit", "get", key, "--limit", DEFINED, "--redis", urls])
}

fn in_force(urls: &str, key: &str) -> (String, bool) {
    let report = get(urls, key);
    (report["limit"].as_str().unwrap().into(), report["differs"].as_bool().unwrap())
}

/// For the calls; the limiter's own tasks go on by themselves between them, on a thread of its own.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn allowed(runtime: &tokio::runtime::Runtime, limit: &NamedLimit, key: &str, calls: u64) -> u64 {
    let ask = || u64::from(runtime.block_on(limit.acquire(key)).unwrap().is_allowed());
    (0..calls).map(|_| ask()).sum()
}

#[test]
fn every_field_has_its_type() {
    let (_cluster, urls) = three_masters();
    let first = get(&urls, "item:\u{1b}");
    let common = [("schema", "int"), ("command", "text"), ("action", "text"), ("name", "text"), ("limit", "text")];
    let fields = [("key", "text"), ("definition", "text"), ("differs", "bool")];
    assert_fields(&first, &[&common[..], &fields].concat());
    assert_eq!((&first["command"], &first["action"]), (&json!("limit"), &json!("get")));
    assert_eq!((&first["key"], &first["definition"]), (&json!("item:\\x1b"), &json!(DEFINED)));

    let fields = [("key", "text"), ("carry", "text"), ("set", "bool")];
    let one = run_json(0, &["limit", "set", "item:\u{1b}", "60/day", "--redis", &urls, "--carry", "reset"]);
    assert_fields(&one, &[&common[..], &fields].concat());
    assert_eq!((&one["command"], &one["action"], &one["set"]), (&json!("limit"), &json!("set"), &json!(true)));
    assert_eq!((&one["key"], &one["carry"]), (&json!("item:\\x1b"), &json!("reset")));
    assert_eq!(one["limit"], "token-bucket 60/day burst 60");

    let fields = [("key", "null"), ("carry", "text"), ("set", "bool")];
    let all = run_json(0, &["limit", "set", "--all", "90/day", "--name", "other", "--redis", &urls]);
    assert_fields(&all, &[&common[..], &fields].concat());
    assert_eq!((&all["name"], &all["carry"]), (&json!("other"), &json!("keep")));
}

/// Another program that uses the key goes by the new limit with its next calls, and does not undo it; nor does the look.
#[test]
fn a_running_limiter_sees_the_limit_of_its_key() {
    let (_cluster, urls) = three_masters();
    let (runtime, limit) = (runtime(), gateway(&urls));
    assert_eq!(in_force(&urls, "hot"), (DEFINED.into(), false), "nobody has used it");
    assert_eq!(allowed(&runtime, &limit, "hot", 30), 30);
    assert_eq!(runtime.block_on(limit.plan("hot")).unwrap().shards.len(), 3);
    let set = ["limit", "set", "hot", "token-bucket 90/day burst 90", "--redis", &urls, "--carry", "proportional"];
    assert_eq!(run_json(0, &set)["set"], true);
    assert_eq!(in_force(&urls, "hot"), ("token-bucket 90/day burst 90".into(), true));
    // Nine tenths were left. A part of a permit on each shard is nobody's.
    let taken = allowed(&runtime, &limit, "hot", 120);
    assert!((78..=81).contains(&taken), "{taken}");
    assert_eq!(allowed(&runtime, &gateway(&urls), "hot", 30), 0, "one that starts later follows too");
    assert_eq!(in_force(&urls, "hot"), ("token-bucket 90/day burst 90".into(), true));
    assert_eq!(in_force(&urls, "cold"), (DEFINED.into(), false));
}

/// For all keys of the name but those that have a limit of their own.
#[test]
fn a_running_limiter_sees_the_limit_of_all_keys() {
    let (_cluster, urls) = three_masters();
    let (runtime, limit) = (runtime(), gateway(&urls));
    assert_eq!(allowed(&runtime, &limit, "known", 1), 1);
    run_json(0, &["limit", "set", "own", "7/day", "--redis", &urls]);
    // The flag may stand behind the limit as well.
    run_json(0, &["limit", "set", "token-bucket 30/day burst 30", "--redis", &urls, "--all"]);
    let set: Limit = "token-bucket 30/day burst 30".parse().unwrap();
    let since = Instant::now();
    while runtime.block_on(limit.limit_of("known")).unwrap() != set {
        assert!(since.elapsed() < Duration::from_secs(20), "it is known within a second or so");
        let _ = runtime.block_on(limit.acquire("known")).unwrap();
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(in_force(&urls, "known"), (set.to_string(), true));
    assert_eq!(in_force(&urls, "nobody's"), (set.to_string(), true));
    assert_eq!(in_force(&urls, "own").0, "token-bucket 7/day burst 7");
    assert_eq!(allowed(&runtime, &limit, "own", 10), 7);
}

/// What the program has to define before it can set anything comes before all that others define.
#[test]
fn nothing_that_others_defined_is_replaced() {
    let (_cluster, urls) = three_masters();
    let plan = |more: &[&str]| {
        let report = run_json(0, &[&["plan", "k", "--redis", &urls, "--limit", DEFINED][..], more].concat());
        (report["shards"].as_array().unwrap().len(), report["limit"].clone())
    };
    assert_eq!(plan(&["--shards", "2", "--revision", "5"]).0, 2);
    run_json(0, &["limit", "get", "k", "--limit", "9/day", "--redis", &urls]);
    assert_eq!(plan(&["--revision", "4"]), (2, json!(DEFINED)), "a lower one follows");
    run_json(0, &["limit", "set", "k", "600/day", "--limit", "9/day", "--redis", &urls]);
    assert_eq!(plan(&["--revision", "6"]), (2, json!("token-bucket 600/day burst 600")), "its shards are as they were");

    // A key that nobody has used begins with the definition, and keeps what that has.
    run_json(0, &["limit", "set", "new", "600/day", "--limit", "9/day", "--redis", &urls, "--shards", "off"]);
    let first = run_json(0, &["acquire", "new", "--limit", DEFINED, "--redis", &urls]);
    assert_eq!(int(&first, "remaining"), 8);
}

/// A key is split while it is hot, from so many script runs a second on.
#[test]
fn auto_splits_what_is_hot() {
    let (_cluster, urls) = three_masters();
    let limit = ["--limit", "token-bucket 100000/s burst 30000", "--redis", &urls, "--shards", "auto"];
    let shards = |hot: &str, name: &str| {
        let more = ["--hot", hot, "--name", name, "--demand", "500/s", "--duration", "3s", "--callers", "4"];
        let report = run_json(0, &[&["bench", "--key", "k"], &limit[..], &more].concat());
        report["shards"].as_array().unwrap().len()
    };
    assert_eq!(shards("20", "low"), 3);
    assert_eq!(shards("1000000", "high"), 1);
}

/// Two runs that disagree about a limit: the later one counts, and the other one says so.
#[test]
fn a_bench_tells_of_mismatches() {
    let (_cluster, urls) = three_masters();
    let run_at = |revision: &str, limit: &str| {
        let more = ["--demand", "100/s", "--duration", "500ms", "--processes", "2", "--revision", revision];
        run_json(0, &[&["bench", "--key", "k", "--redis", &urls, "--limit", limit], &more[..]].concat())
    };
    assert_eq!(run_at("7", "600/day")["mismatches"], 0);
    let report = run_at("6", "900/day");
    let by: Vec<u64> = report["mismatches_by_process"].as_array().unwrap().iter().filter_map(Value::as_u64).collect();
    assert!(by.len() == 2 && by.iter().all(|mismatches| *mismatches > 0), "{report}");
    assert_eq!(int(&report, "mismatches"), by.iter().sum::<u64>());
}

#[test]
fn without_json_it_is_a_table() {
    let (_cluster, urls) = three_masters();
    let set = run(["limit", "set", "k", "60/day", "--redis", &urls]);
    assert_eq!((set.code, set.stderr.as_str()), (Some(0), ""));
    for fact in ["limit  token-bucket 60/day burst 60\n", "set    yes\n", "key    k\n", "carry  keep\n"] {
        assert!(set.stdout.contains(fact), "{fact:?} in {}", set.stdout);
    }
    let get = run(["limit", "get", "k", "--limit", DEFINED, "--redis", &urls]);
    assert!(get.stdout.contains("differs     yes\n"), "{}", get.stdout);
}

#[test]
fn a_server_that_is_not_there_is_an_error() {
    for arguments in [
        &["limit", "get", "k", "--limit", "1/s", "--redis", "127.0.0.1:1"][..],
        &["limit", "set", "k", "1/s", "--redis", "127.0.0.1:1"],
        &["limit", "set", "--all", "1/s", "--redis", "127.0.0.1:1"],
    ] {
        let report = run_json(2, arguments);
        assert_fields(&report, &[("schema", "int"), ("command", "text"), ("error", "object")]);
        assert_eq!((&report["error"]["kind"], &report["error"]["field"]), (&json!("not_sent"), &json!("redis")));
    }
}
