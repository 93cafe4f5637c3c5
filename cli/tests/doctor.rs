//! `doctor`: what it says about real servers, in order and not.

mod support;

#[path = "../../tests/support/cluster.rs"]
#[allow(dead_code, unreachable_pub)]
mod cluster;
#[path = "../../tests/support/server.rs"]
#[allow(dead_code, unreachable_pub)]
mod server;

use cluster::{Cluster, Layout};
use redis::cmd;
use serde_json::{Value, json};
use server::Server;
use support::{assert_fields, run, run_json};

/// By default a master waits 5 s before it sends a new replica its state.
const QUICK: [&str; 2] = ["--repl-diskless-sync-delay", "0"];

fn url(port: u16) -> String {
    format!("redis://127.0.0.1:{port}")
}

fn doctor(code: i32, urls: &str) -> Value {
    let report = run_json(code, &["doctor", "--redis", urls]);
    assert_eq!((&report["command"], &report["ok"]), (&json!("doctor"), &json!(code == 0)), "{report}");
    report
}

/// The kinds of what is wrong.
fn wrong(report: &Value) -> Vec<&str> {
    let findings = report["findings"].as_array().unwrap();
    let wrong = findings.iter().filter(|finding| finding["level"] == "wrong");
    wrong.map(|finding| finding["kind"].as_str().unwrap()).collect()
}

fn user(server: &Server, name: &str, rules: &[&str]) -> String {
    cmd("ACL").arg("SETUSER").arg(name).arg("on").arg(">sesame").arg(rules).exec(&mut server.connection()).unwrap();
    format!("redis://{name}:sesame@127.0.0.1:{}", server.port)
}

#[test]
fn a_healthy_cluster_is_fit() {
    let cluster = Cluster::start(3, 1, Layout::Contiguous, &QUICK);
    // Any node will do, also a replica.
    let report = doctor(0, &url(cluster.nodes[4].server.port));
    let lists = ["masters", "replicas", "uncovered", "permissions_missing", "findings"].map(|list| (list, "array"));
    let rest = [("schema", "int"), ("command", "text"), ("ok", "bool"), ("cluster", "bool"), ("covered", "int")];
    assert_fields(&report, &[&lists[..], &rest, &[("clock_spread_ms", "number")]].concat());
    assert_eq!((&report["cluster"], &report["covered"]), (&json!(true), &json!(16_384)));
    assert_eq!(report["findings"], json!([]));
    assert_eq!(report["replicas"].as_array().unwrap().len(), 3);
    let masters = report["masters"].as_array().unwrap();
    for (master, node) in masters.iter().zip(&cluster.nodes) {
        let texts = ["id", "address", "version", "maxmemory_policy"].map(|field| (field, "text"));
        let numbers = ["round_trip_us", "clock_ms"].map(|field| (field, "number"));
        let rest = [("slots", "int"), ("replicas", "int"), ("reachable", "bool"), ("full_coverage", "bool")];
        assert_fields(master, &[&texts[..], &numbers, &rest].concat());
        assert_eq!((&master["id"], &master["replicas"]), (&json!(node.id), &json!(1)));
    }
    assert_eq!(masters.iter().map(|master| master["slots"].as_u64().unwrap()).sum::<u64>(), 16_384);

    let text = run(["doctor", "--redis", &url(cluster.nodes[0].server.port)]);
    assert_eq!(text.code, Some(0));
    for part in ["3 masters, 3 replicas, 16,384 of 16,384 slots covered", "noeviction", "Fit for limits."] {
        assert!(text.stdout.contains(part), "{}", text.stdout);
    }
}

#[test]
fn a_cluster_without_replicas_that_loses_a_master() {
    let mut cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    let urls: Vec<String> = cluster.nodes.iter().map(|node| url(node.server.port)).collect();
    let urls = urls.join(",");
    let report = doctor(1, &urls);
    assert_eq!(wrong(&report), ["no_replica"]);
    let what = report["findings"][0]["what"].as_str().unwrap();
    assert!(what.contains("one dead master stops the whole cluster"), "{what}");

    for node in &cluster.nodes {
        node.ask::<()>(cmd("CONFIG").arg("SET").arg("cluster-require-full-coverage").arg("no"));
    }
    assert_eq!(doctor(0, &urls)["masters"][0]["full_coverage"], false);

    // Stopped in its tracks: it takes connections and never answers.
    cluster.nodes[1].server.pause();
    let report = doctor(1, &urls);
    assert_eq!(report["masters"][1]["reachable"], false, "{report}");
    cluster.nodes[1].server.kill();
    let report = doctor(1, &urls);
    assert!(wrong(&report).contains(&"unreachable") && wrong(&report).contains(&"uncovered"), "{report}");
    assert_eq!(report["uncovered"], json!(["5461-10921"]));
    assert_eq!(report["covered"], 16_384 - 5_461);
    let text = run(["doctor", "--redis", &urls]);
    assert_eq!(text.code, Some(1));
    assert!(text.stdout.contains("(silent)") && text.stdout.contains("Not fit"), "{}", text.stdout);
}

#[test]
fn slots_that_nobody_has_and_a_master_without_any() {
    let cluster = Cluster::start(3, 0, Layout::LastEmpty, &["--cluster-require-full-coverage", "no"]);
    let first = &cluster.nodes[0];
    let report = doctor(0, &url(first.server.port));
    assert_eq!(report["findings"][0]["kind"], "no_slots");
    assert_eq!(report["masters"][2]["slots"], 0);

    first.ask::<()>(cmd("CLUSTER").arg("DELSLOTS").arg(7).arg(8).arg(10));
    let report = doctor(1, &url(first.server.port));
    assert_eq!((&report["uncovered"], &report["covered"]), (&json!(["7-8", "10"]), &json!(16_381)));
    assert_eq!(wrong(&report), ["uncovered"]);
}

#[test]
fn a_single_server() {
    let server = Server::start(&[]);
    let report = doctor(0, &format!("127.0.0.1:{}", server.port));
    assert_eq!((&report["cluster"], &report["covered"]), (&json!(false), &Value::Null));
    assert_eq!(report["masters"].as_array().unwrap().len(), 1);
    let text = run(["doctor", "--redis", &url(server.port)]);
    assert!(text.stdout.starts_with("one master, not a cluster\n"), "{}", text.stdout);

    // One that follows another refuses writes.
    let replica = Server::start(&["--replicaof", "127.0.0.1", &server.port.to_string()]);
    assert_eq!(wrong(&doctor(1, &url(replica.port))), ["is_replica"]);
}

#[test]
fn memory_that_evicts() {
    let server = Server::start(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]);
    let report = doctor(1, &url(server.port));
    assert_eq!(wrong(&report), ["eviction"]);
    assert!(report["findings"][0]["what"].as_str().unwrap().contains("allkeys-*"), "{report}");
    assert_eq!(report["masters"][0]["maxmemory_policy"], "allkeys-lru");
}

/// Whether or not the user may ask by ACL DRYRUN.
#[test]
fn permissions_that_are_missing() {
    let server = Server::start(&[]);
    for (name, acl) in [("dry", "+acl"), ("real", "-acl")] {
        let urls = user(&server, name, &["~*", "+@all", "-evalsha", "-script|load", acl]);
        let report = doctor(1, &urls);
        assert_eq!(report["permissions_missing"], json!(["EVALSHA", "SCRIPT|LOAD"]));
        assert!(report["findings"][0]["do"].as_str().unwrap().ends_with("+evalsha +script|load"), "{report}");

        let urls = user(&server, &format!("{name}-keys"), &["~other:*", "+@all", acl]);
        assert_eq!(doctor(1, &urls)["permissions_missing"], json!(["~shardlimit:*"]));

        let urls = user(&server, &format!("{name}-name"), &["~shardlimit:*:checkout:*", "+@all", acl]);
        assert_eq!(doctor(1, &urls)["permissions_missing"], json!(["~shardlimit:*"]));
        run_json(0, &["doctor", "--redis", &urls, "--name", "checkout"]);
    }
    let keys: Vec<String> = cmd("KEYS").arg("*").query(&mut server.connection()).unwrap();
    assert!(keys.is_empty(), "it left {keys:?}");
}

#[test]
fn a_user_that_may_do_no_more_than_the_limiter_does() {
    let cluster = Cluster::start(1, 0, Layout::Contiguous, &["--cluster-require-full-coverage", "no"]);
    let mut rules = vec!["~shardlimit:*", "+evalsha", "+eval", "+script|load", "+time", "+asking"];
    rules.extend(["+get", "+set", "+pttl", "+cluster|slots", "+cluster|info"]);
    let server = &cluster.nodes[0].server;
    let report = doctor(0, &user(server, "limiter", &rules));
    let master = &report["masters"][0];
    assert_eq!((&master["full_coverage"], &master["maxmemory_policy"]), (&Value::Null, &Value::Null));
    assert_eq!((&master["slots"], &master["id"]), (&json!(16_384), &json!(cluster.nodes[0].id)));
    assert!(master["version"].is_string(), "HELLO says it: {report}");

    rules.extend(["-cluster|slots"]);
    let report = doctor(1, &user(server, "blind", &rules));
    assert_eq!((&report["covered"], &report["permissions_missing"]), (&Value::Null, &json!(["CLUSTER|SLOTS"])));
}

#[test]
fn nothing_there() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let urls = format!("redis://me:sesame@127.0.0.1:{port},127.0.0.1:{port}");
    let answer = run(["doctor", "--json", "--redis", &urls]);
    assert_eq!(answer.code, Some(2));
    assert!(
        answer.stderr.contains(&format!("nothing answers: 127.0.0.1:{port}: Connection refused")),
        "{}",
        answer.stderr
    );
    assert_eq!(answer.json()["error"]["kind"], "server");
    assert!(!(answer.stdout + &answer.stderr).contains("sesame"));
}

#[test]
fn passwords() {
    let server = Server::start(&[]);
    let right = user(&server, "me", &["~*", "+@all"]);
    cmd("ACL").arg("SETUSER").arg("default").arg("off").exec(&mut server.connection()).unwrap();
    for json in [&["--json"][..], &[]] {
        for (urls, code) in [(right.clone(), 0), (right.replace("me:", "you:"), 2), (url(server.port), 2)] {
            let answer = run([&["doctor", "--redis", &urls], json].concat());
            assert_eq!(answer.code, Some(code), "{}{}", answer.stdout, answer.stderr);
            assert!(!(answer.stdout + &answer.stderr).contains("sesame"));
        }
    }
    let without = run(["doctor", "--redis", &url(server.port)]);
    assert!(without.stderr.contains("wants a password"), "{}", without.stderr);
}

#[test]
fn a_url_that_does_not_answer_is_only_advice_beside_one_that_does() {
    let cluster = Cluster::start(1, 0, Layout::Contiguous, &["--cluster-require-full-coverage", "no"]);
    let single = Server::start(&[]);
    let report = doctor(0, &format!("127.0.0.1:1,{},{}", url(cluster.nodes[0].server.port), url(single.port)));
    let kinds: Vec<&Value> = report["findings"].as_array().unwrap().iter().map(|finding| &finding["kind"]).collect();
    assert_eq!(kinds, ["url", "url"]);
}
