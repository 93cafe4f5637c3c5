//! What does splitting by itself cost a key that is never hot?
//!
//! `cargo bench -p shardlimit-peers --bench auto`
//!
//! One caller, one key, each call decided by a server: with `Shards::Off`, where the key has one shard whatever happens, and with
//! `Shards::Auto`, where each answer may make it hot. Callgrind counts the instructions of the calling thread, which sends and takes the
//! answer by itself, and those of the two functions that tell the ways apart: `feel`, which finds out whether the key is hot, and
//! `look_after`, which finds out whether there is anything to do for its plan. Nanoseconds are taken beside it, both ways in turn.
//! A difference of a few drowns in those of the network; so what instructions take is reckoned by a call that is decided in process.

use std::hint::black_box;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use shardlimit::{Limiter, Shards};
use shardlimit_peers::cluster::{Server, url};

/// The argument that makes this program the one that is measured; then the way, its calls and a server's URL.
const CHILD: &str = "--measured";
const ROUNDS: usize = 9;
const COUNTED: u32 = 2_000;
const TIMED: u32 = 20_000;
const PATIENCE: Duration = Duration::from_secs(60);
/// What was promised, in ns.
const MOST: f64 = 10.0;

/// What callgrind counts in: all of the caller's, and the two functions.
const CALLER: &str = "*auto*measured*";
const FEEL: &str = "*Entry*feel*";
const LOOK_AFTER: &str = "*escrow::look_after";

/// Calls before the measured ones.
const WARM: u32 = 100;

const OFF: &str = "off";
const AUTO: &str = "auto";
/// An embedded call, whose instructions and time are known well.
const EMBEDDED: &str = "embedded";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [child, way, calls, url] = &arguments[..]
        && child == CHILD
    {
        println!("{}", run(way, calls.parse().expect("a number of calls"), url));
        return ExitCode::SUCCESS;
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("auto: valgrind is not installed here; nothing was counted");
        return ExitCode::SUCCESS;
    }
    let server = Server::start(&[]);
    let url = url(&server);
    let (mut counts, mut times) = ([const { Vec::new() }; 3], [const { Vec::new() }; 3]);
    for _ in 0..ROUNDS {
        for (index, way) in [OFF, AUTO, EMBEDDED].into_iter().enumerate() {
            counts[index].push(count(CALLER, way, &url));
            times[index].push(time(way, &url));
        }
    }
    let ([off, auto, embedded], [off_ns, auto_ns, embedded_ns]) = (counts.map(median), times.map(median));
    let row = |what: &str, off: f64, auto: f64| {
        println!("| {what} | {off:.0} | {auto:.0} | {:+.0} | {:.3} |", auto - off, auto / off);
        auto - off
    };
    println!(
        "| a decision, medians of {ROUNDS} in turn | one shard | splitting by itself | more | ratio |\n|---|---|---|---|---|"
    );
    let feels = row("instructions of `feel`", count(FEEL, OFF, &url), count(FEEL, AUTO, &url));
    row("instructions of `look_after`", count(LOOK_AFTER, OFF, &url), count(LOOK_AFTER, AUTO, &url));
    row("instructions of the caller", off, auto);
    row("ns, with the network", off_ns, auto_ns);
    // What is saved elsewhere is not set off against it.
    let (pace, cost) = (embedded_ns / embedded, feels * embedded_ns / embedded);
    println!(
        "a call decided in process: {embedded:.0} instructions in {embedded_ns:.1} ns, {pace:.3} ns each. So to feel whether a key is \
         hot takes {cost:.1} ns; at most {MOST} were promised"
    );
    if cost <= MOST { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// Nanoseconds a call of this way.
fn run(way: &str, calls: u32, url: &str) -> f64 {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    // Under callgrind everything takes long.
    let on_server = || Limiter::builder().redis([url]).timeout(PATIENCE).deadline(PATIENCE);
    let builder = match way {
        EMBEDDED => Limiter::builder(),
        AUTO => on_server().shards(Shards::Auto).hot(1_000_000_000),
        _ => on_server().shards(Shards::Off),
    };
    let limit = "token-bucket 1000000/s burst 1000000".parse().expect("a limit");
    let limit = builder.build().expect("valid settings").define(way, limit).expect("a name");
    let handle = limit.handle("user:42").expect("a key");
    runtime.block_on(async {
        let call = || async { handle.acquire().await.expect("it is decided").is_allowed() };
        for _ in 0..WARM {
            assert!(call().await);
        }
    });
    let begin = Instant::now();
    let allowed = measured(calls, || runtime.block_on(handle.acquire()).is_ok_and(|decision| decision.is_allowed()));
    assert!(allowed, "all are allowed");
    begin.elapsed().as_nanos() as f64 / f64::from(calls)
}

/// Callgrind collects between the entry of this function and its return, in this thread.
#[inline(never)]
fn measured(calls: u32, call: impl Fn() -> bool) -> bool {
    (0..calls).all(|_| black_box(call()))
}

/// Nanoseconds a call.
fn time(way: &str, url: &str) -> f64 {
    // No more than the burst.
    let calls = if way == EMBEDDED { 40 * TIMED } else { TIMED };
    let mut child = Command::new(std::env::current_exe().expect("a path to this program"));
    let output = child.args([CHILD, way, &calls.to_string(), url]).output().expect("it runs");
    String::from_utf8_lossy(&output.stdout).trim().parse().expect("nanoseconds")
}

/// Instructions a call in a function and what it calls.
fn count(within: &str, way: &str, url: &str) -> f64 {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", &format!("--toggle-collect={within}")])
        .arg(std::env::current_exe().expect("a path to this program"))
        .args([CHILD, way, &COUNTED.to_string(), url])
        .output()
        .expect("valgrind runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{way}: {}\n{text}", output.status);
    let collected = text.lines().find_map(|line| line.split_once("Collected :")).map(|(_, count)| count.trim());
    let collected: f64 = collected.and_then(|count| count.parse().ok()).expect("callgrind's count");
    assert!(collected > 0.0, "{within} was inlined, or has another name");
    collected / f64::from(if within == CALLER { COUNTED } else { COUNTED + WARM })
}
