//! One hot key, decided in process: permits that are held here, and denials that need no server.
//!
//! `cargo bench -p shardlimit-peers --bench in_process -- [--quick]`

mod ours;
mod peers;

use shardlimit_peers::cluster;
use shardlimit_peers::load::runtime;
use shardlimit_peers::{Contestant, Defaults, Options, Table, count, machine, number, race};

const THREADS: usize = 2;
const CALLS: u64 = 1_000_000;
const BASELINE: &str = "governor, keyed";

/// Whether there are permits for everybody or for nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    /// Every call is allowed.
    Allowed,
    /// Every call but the first is denied.
    Denied,
}

/// A loop of calls on one thread, and its name.
pub(crate) type Named<'a> = (&'static str, Box<dyn Fn(usize, u64) + Sync + 'a>);

fn main() {
    // Many short rounds, as in `local`: they are counted in calls, not in seconds.
    let options = Options::from_args(Defaults { rounds: 21, seconds: 1.0 });
    let runtime = runtime(2);
    let cluster = cluster::start(3);
    println!("{}; one key, {THREADS} threads", machine::describe());
    println!("{} interleaved rounds of {CALLS} calls a thread: median (min–max)\n", options.rounds);

    let mut table = Table::new(["one hot key", "", "ns a call", "decisions/s", "× governor"]);
    for case in [Case::Allowed, Case::Denied] {
        let server = cluster::Server::start(&[]);
        let mut loops = peers::loops(case, &runtime, &server);
        loops.extend(ours::loops(case, &runtime, &cluster));
        let contestants: Vec<Contestant<'_>> =
            loops.iter().map(|(name, work)| Contestant { name, work: &**work }).collect();
        let results = race(THREADS, CALLS, options.rounds, &contestants);
        for name in results.names() {
            let nanos = results.spread(name, "ns").map_or_else(|| "–".into(), |nanos| number(nanos.median));
            let rate = results.spread(name, "rate").map_or_else(|| "–".into(), |rate| rate.show(count));
            let ratio = results.ratio(name, BASELINE, "rate").map_or_else(|| "–".into(), |ratio| ratio.to_string());
            let case = format!("{case:?}").to_lowercase();
            table.row([case, name.to_owned(), nanos, rate, ratio]);
        }
    }
    println!("\n{table}");
}
