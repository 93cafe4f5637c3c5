//! Commands on a real cluster: one limit, whatever the number of processes that ask for it.

mod support;

#[path = "../../tests/support/cluster.rs"]
#[allow(dead_code, unreachable_pub)]
mod cluster;
#[path = "../../tests/support/server.rs"]
#[allow(dead_code, unreachable_pub)]
mod server;

use std::collections::HashSet;
use std::thread;

use cluster::{Cluster, Layout};
use serde_json::{Value, json};
use shardlimit::Slot;
use support::{assert_adds_up, assert_fields, int, number, run_json};

fn three_masters() -> (Cluster, String) {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    let urls: Vec<String> =
        cluster.nodes.iter().map(|node| format!("redis://127.0.0.1:{}", node.server.port)).collect();
    let urls = urls.join(",");
    (cluster, urls)
}

fn plan(urls: &str, shards: &str, revision: &str) -> Value {
    let limit = ["--limit", "token-bucket 1000/s burst 301", "--shards", shards, "--revision", revision];
    run_json(0, &[&["plan", "item:{1}\u{1b}", "--redis", urls], &limit[..]].concat())
}

/// Shards on three masters, whose shares add up; whoever asks later gets the same plan, unless his definition is a later one.
#[test]
fn a_plan_is_made_once() {
    let (cluster, urls) = three_masters();
    let first = plan(&urls, "per-master", "7");
    assert_eq!(first["key"], "item:{1}\\x1b");
    let shards = first["shards"].as_array().unwrap();
    let mut masters = HashSet::new();
    for (index, shard) in shards.iter().enumerate() {
        let texts = ["subkey", "master", "grant"].map(|field| (field, "text"));
        let numbers = ["shard", "slot", "rate", "burst"].map(|field| (field, "int"));
        assert_fields(shard, &[&texts[..], &numbers, &[("home", "bool")]].concat());
        assert_eq!((int(shard, "shard"), shard["home"] == true), (index as u64, index == 0));
        let subkey = shard["subkey"].as_str().unwrap();
        let slot = Slot::of(subkey.as_bytes()).number();
        assert_eq!(u64::from(slot), int(shard, "slot"), "its tag decides, so escaping changes nothing: {subkey}");
        let owner = cluster.nodes[cluster.owner_of(slot)].server.port;
        assert_eq!(shard["master"], format!("127.0.0.1:{owner}"));
        masters.insert(owner);
    }
    assert_eq!((shards.len(), masters.len()), (3, 3));
    let sum = |field| shards.iter().map(|shard| int(shard, field)).sum::<u64>();
    assert_eq!((sum("rate"), sum("burst")), (1_000, 301));
    assert_eq!(plan(&urls, "2", "6")["shards"], first["shards"]);
    assert_eq!(plan(&urls, "off", "6")["shards"], first["shards"]);
}

/// Each process begins with nothing; the limit does not.
#[test]
fn processes_share_a_limit() {
    let (_cluster, urls) = three_masters();
    let ask = |code| run_json(code, &["acquire", "alice", "--limit", "2/day", "--redis", &urls]);
    assert_eq!(ask(0)["remaining"], 1);
    assert_eq!(ask(0)["decided_by"], "store");
    let denied = ask(1);
    assert_eq!(denied["allowed"], false);
    assert!(number(&denied, "retry_after_ms") > 0.0);
}

fn bench(urls: &str, arguments: &[&str]) -> Value {
    let report = run_json(0, &[&["bench", "--key", "item:42", "--redis", urls, "--check"], arguments].concat());
    assert_eq!((&report["errors"], &report["store"]), (&json!(0), &json!("cluster")), "{report}");
    assert_adds_up(&report);
    report
}

/// All algorithms that are split, twice their limit, three processes: never above the formula in any interval.
#[test]
fn a_run_is_judged_by_its_formula() {
    let (_cluster, urls) = three_masters();
    for limit in [
        "token-bucket 900/s burst 90",
        "leaky-bucket 900/s capacity 90",
        "fixed-window 900/s",
        "sliding-window 900/s",
        "sliding-log 300/s",
    ] {
        let more = ["--demand", "1800/s", "--duration", "1s", "--processes", "3", "--name"];
        let name = limit.split(' ').next().unwrap();
        let report = bench(&urls, &[&["--limit", limit][..], &more, &[name]].concat());
        assert!(number(&report, "overshoot") <= 0.0, "{report}");
        assert!(number(&report, "overshoot_s") >= 0.0, "{report}");
        let shards = report["shards"].as_array().unwrap();
        assert_eq!(shards.len(), if name == "sliding-log" { 1 } else { 3 }, "{report}");
        let allowed: u64 = shards.iter().map(|shard| int(shard, "allowed")).sum();
        assert_eq!(allowed, int(&report, "allowed"));
        let calls: u64 = shards.iter().map(|shard| int(shard, "calls")).sum();
        assert_eq!(calls, int(&report, "store_calls"));
    }
}

/// Permits are taken ahead, by three processes at twice the limit: the store is asked less often than there are decisions,
/// and no interval has more than leases may add.
#[test]
fn a_leased_run_stays_within_its_allowance() {
    let (_cluster, urls) = three_masters();
    for (limit, allowance) in [
        ("token-bucket 3000/s burst 300", 150.0),
        ("leaky-bucket 3000/s capacity 300", 150.0),
        ("fixed-window 3000/s", 0.0),
        ("sliding-window 3000/s", 3_000.0),
        ("pacing-queue 3000/s capacity 300", 0.0),
    ] {
        let more = ["--mode", "leased", "--demand", "6000/s", "--duration", "1s", "--processes", "3", "--name"];
        let name = limit.split(' ').next().unwrap();
        let report = bench(&urls, &[&["--limit", limit][..], &more, &[name]].concat());
        assert_eq!((&report["mode"], number(&report, "allowance")), (&json!("leased"), allowance), "{report}");
        assert!(number(&report, "overshoot") <= allowance, "{report}");
        let decided_by = |who| int(&report["decided_by"], who);
        assert_eq!(decided_by("lease") > 0, name != "pacing-queue", "{report}");
        assert_eq!(decided_by("local") + decided_by("fallback"), 0, "{report}");
        let decided: u64 = ["store", "lease", "ceiling"].map(decided_by).iter().sum();
        assert_eq!(decided, int(&report, "decisions"), "{report}");
        let sum = |field| report["shards"].as_array().unwrap().iter().map(|shard| int(shard, field)).sum::<u64>();
        assert_eq!(sum("calls"), int(&report, "store_calls"));
        // What was leased and came back was allowed by a shard, and by nobody else.
        assert!(sum("allowed") >= int(&report, "allowed"), "{report}");
    }
}

/// Scripts that all masters have run to the end, by their own count. One that a server did not know, or that it sent elsewhere, did not run.
fn runs(cluster: &Cluster) -> u64 {
    let of_field = |fields: &str, name: &str| {
        let value = fields.split(',').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
        value.map_or(0, |value| value.parse::<u64>().unwrap())
    };
    let of_node = |node: &cluster::Node| {
        let stats: String = node.ask(redis::cmd("INFO").arg("commandstats"));
        let scripts = ["cmdstat_evalsha:", "cmdstat_eval:"];
        let lines = stats.lines().filter_map(|line| scripts.iter().find_map(|script| line.strip_prefix(script)));
        lines.map(|fields| of_field(fields, "calls") - of_field(fields, "failed_calls")).sum::<u64>()
    };
    cluster.nodes.iter().map(of_node).sum()
}

/// What a run says that it has sent is what the servers have run; but for the plan, which is there before it, and for what was set for the
/// limit while it is in use, at which each limiter looks once a second.
#[test]
fn store_calls_are_what_the_servers_ran() {
    const PROCESSES: u64 = 2;
    let (cluster, urls) = three_masters();
    // A limiter for each thread. Of a run of a second, and what is before and after it.
    let most_looks = 3 * PROCESSES * thread::available_parallelism().unwrap().get() as u64;
    for (mode, demand) in [("exact", "2000/s"), ("exact", "20000/s"), ("leased", "20000/s")] {
        let name = format!("{mode}-{}", demand.trim_end_matches("/s"));
        let limit = ["--limit", "token-bucket 10000/s burst 3000", "--name", &name];
        run_json(0, &[&["plan", "item:42", "--redis", &urls][..], &limit].concat());
        let before = runs(&cluster);
        let processes = PROCESSES.to_string();
        let more = ["--mode", mode, "--demand", demand, "--duration", "1s", "--processes", &processes];
        let report = bench(&urls, &[&limit[..], &more].concat());
        let (ran, said) = (runs(&cluster) - before, int(&report, "store_calls"));
        println!("{name}: {ran} runs on the servers, {said} store calls");
        assert!(said > 20, "{said}: this tests nothing");
        assert!((said..=said + most_looks).contains(&ran), "{ran} runs on the servers, {said} store calls: {report}");
    }
}

/// Of a limit that does not refill meanwhile, a leased run leaves everything that it did not admit.
#[test]
fn nothing_stays_out_after_a_leased_run() {
    let (_cluster, urls) = three_masters();
    let limit = ["--limit", "token-bucket 3000/day burst 3000"];
    // Split first: what was charged before and comes back after it would in part be lost.
    run_json(0, &[&["plan", "item:42", "--redis", &urls][..], &limit].concat());
    let leased = ["--mode", "leased", "--demand", "20000/s", "--duration", "60ms", "--processes", "2"];
    let leased = bench(&urls, &[&limit[..], &leased].concat());
    assert!(int(&leased["decided_by"], "lease") > 0, "{leased}");
    let rest = bench(&urls, &[&limit[..], &["--demand", "6000/s", "--duration", "1s"]].concat());
    let allowed = int(&leased, "allowed") + int(&rest, "allowed");
    assert!((3_000..=3_001).contains(&allowed), "{allowed} of one burst: {leased} {rest}");
}

/// Two deploys that disagree about the number of shards, at once, from nothing.
#[test]
fn clients_that_want_different_plans_share_one_limit() {
    let (_cluster, urls) = three_masters();
    let limit = ["--limit", "token-bucket 3000/day burst 3000", "--demand", "4000/s", "--duration", "1s"];
    let allowed: u64 = thread::scope(|scope| {
        let runs = ["1", "3", "7"].map(|shards| {
            let (urls, limit) = (&urls, &limit);
            scope.spawn(move || int(&bench(urls, &[&limit[..], &["--shards", shards]].concat()), "allowed"))
        });
        runs.into_iter().map(|run| run.join().unwrap()).sum()
    });
    assert!((2_990..=3_001).contains(&allowed), "{allowed} of one burst and a second of 3000/day");
}

/// Every slot of the key goes to another master while the calls go on.
#[test]
fn slots_on_their_way_cost_no_error_and_admit_nobody_twice() {
    let (cluster, urls) = three_masters();
    let limit = "token-bucket 600/s burst 600";
    let plan = run_json(0, &["plan", "item:42", "--limit", limit, "--redis", &urls]);
    let slots = plan["shards"].as_array().unwrap().iter().map(|shard| int(shard, "slot") as u16);
    let slots: Vec<u16> = slots.collect();
    let report = thread::scope(|scope| {
        let run = scope
            .spawn(|| bench(&urls, &["--limit", limit, "--demand", "1500/s", "--duration", "3s", "--processes", "2"]));
        for _ in 0..3 {
            for slot in &slots {
                cluster.migrate(*slot, (cluster.owner_of(*slot) + 1) % 3);
                cluster.wait_until_ok();
            }
        }
        run.join().unwrap()
    });
    assert!(number(&report, "overshoot") <= 0.0, "{report}");
}

#[test]
fn what_can_not_be_is_refused_before_anything_is_asked() {
    for (arguments, kind, field) in [
        (&["acquire", "k", "--limit", "1/s", "--redis", "redis://127.0.0.1:1"][..], "not_sent", "redis"),
        (&["acquire", "k", "--limit", "1/s", "--redis", "http://x"], "usage", "redis"),
        (&["acquire", "k", "--limit", "1/s", "--redis", "h:1", "--shards", "0"], "invalid_setting", "shards"),
        (&["acquire", "k", "--limit", "1/s", "--redis", "h:1", "--selector", "best"], "usage", "selector"),
        (&["bench", "--key", "k", "--limit", "1/s", "--redis", "127.0.0.1:1"], "not_sent", "redis"),
        (&["plan", "k", "--limit", "1/s"], "usage", "redis"),
    ] {
        let report = run_json(2, arguments);
        let error = &report["error"];
        assert_eq!((&error["kind"], &error["field"]), (&json!(kind), &json!(field)), "{arguments:?}: {report}");
    }
}
