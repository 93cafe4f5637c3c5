//! How many instructions does a call take that is decided in process?
//!
//! `cargo bench -p shardlimit-peers --bench instructions [-- --save | --embedded]`
//!
//! `--save` makes these counts the baseline, and without it a case that has none there fails; `--embedded` leaves out what needs a
//! Redis server: two seconds.
//! The bench runs itself under callgrind, once a case. Instructions do not depend on how busy the machine is, so a loss of
//! a few percent shows where nanoseconds would hide it.

mod baseline;
mod cases;
use std::process::{Command, ExitCode};

use baseline::Baseline;
use cases::{CASES, Case, NOTHING, Place};
use shardlimit_peers::cluster::{Server, url};

/// The argument that makes this program the one that is counted; then the case, its calls and a server's URL.
const CHILD: &str = "--counted";

/// More than counts differ from run to run (tables are seeded at random: under 1 %), less than a lock or an allocation.
const TOLERANCE: f64 = 0.05;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [child, case, calls, url] = &arguments[..]
        && child == CHILD
    {
        let calls = calls.parse().expect("a number of calls");
        return if cases::run(case, calls, url) { ExitCode::SUCCESS } else { ExitCode::from(cases::UNDECIDED) };
    }
    let save = arguments.iter().any(|argument| argument == "--save");
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("instructions: valgrind is not installed here; nothing was counted");
        return ExitCode::SUCCESS;
    }
    let before = Baseline::load();
    let counted = count_all(arguments.iter().any(|argument| argument == "--embedded"));
    println!("{}", rustc());
    println!("{:<40} {:>12} {:>10} {:>9}", "| case", "instructions", "before", "change |");
    let (mut grown, mut new) = (Vec::new(), Vec::new());
    for (name, count) in &counted {
        let old = before.of(name);
        if old.is_none() {
            new.push(*name);
        }
        match (count, old) {
            (Some(count), Some(old)) => {
                let change = count / old - 1.0;
                println!("| {name:<38} {count:>12.1} {old:>10.1} {:>+7.1} % |", change * 100.0);
                if change > TOLERANCE {
                    grown.push(*name);
                }
            }
            (Some(count), None) => println!("| {name:<38} {count:>12.1} {:>10} {:>9} |", "-", "new"),
            (None, Some(old)) => {
                println!("| {name:<38} {:>12} {old:>10.1} {:>9} |", "-", "the store decides");
                grown.push(*name);
            }
            (None, None) => println!("| {name:<38} {:>12} {:>10} {:>9} |", "-", "-", "the store decides"),
        }
    }
    if save {
        before.save(&rustc(), &counted);
        return ExitCode::SUCCESS;
    }
    if !grown.is_empty() {
        println!("\ngrew by more than {} %: {}", TOLERANCE * 100.0, grown.join("; "));
    }
    // They could grow without end, and nobody would see it.
    if !new.is_empty() {
        println!("\nnot in the baseline, which --save writes: {}", new.join("; "));
    }
    if grown.is_empty() && new.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Instructions a call of each case, less those of the loop itself. None: not decided in process.
fn count_all(only_embedded: bool) -> Vec<(&'static str, Option<f64>)> {
    let server = (!only_embedded).then(|| Server::start(&[]));
    let url = server.as_ref().map_or_else(String::new, url);
    let empty = count(&NOTHING, &url).expect("nothing is decided at once");
    let cases = CASES.iter().filter(|case| !only_embedded || matches!(case.place, Place::Embedded(_)));
    cases.map(|case| (case.name, count(case, &url).map(|count| count - empty))).collect()
}

/// Runs one case under callgrind, which counts only inside [`cases::measured`].
fn count(case: &Case, url: &str) -> Option<f64> {
    let calls = match case.place {
        Place::Embedded(_) => 10_000_u32,
        // The clock stands still meanwhile, and what was lent lasts for so many.
        Place::Server(_) => 1_000,
    };
    let program = std::env::current_exe().expect("a path to this program");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=*cases*measured*"])
        .arg(program)
        .args([CHILD, case.name, &calls.to_string(), url])
        .output()
        .expect("valgrind runs");
    if output.status.code() == Some(i32::from(cases::UNDECIDED)) {
        return None;
    }
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {}\n{text}", case.name, output.status);
    let collected = text.lines().find_map(|line| line.split_once("Collected :")).map(|(_, count)| count.trim());
    let collected: f64 = collected.and_then(|count| count.parse().ok()).expect("callgrind's count");
    Some(collected / f64::from(calls))
}

/// Another compiler counts differently: the baseline says whose it is.
fn rustc() -> String {
    let output = Command::new("rustc").arg("--version").output();
    output.map_or_else(|_| "rustc, unknown".into(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
