//! One hot key, decided in process: permits that are held here, and denials that need no server.
//!
//! `cargo bench -p shardlimit-peers --bench in_process -- [--quick]`

mod charged;
mod entrant;
mod ours;
mod peers;

use shardlimit_peers::load::runtime;
use shardlimit_peers::{Defaults, Options, Rounds, Table, cluster, count, machine, number};

use entrant::Entrant;

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

fn main() {
    // Many short rounds, as in `local`: they are counted in calls, not in seconds.
    let options = Options::from_args(Defaults { rounds: 21, seconds: 1.0 });
    let runtime = runtime(2);
    let cluster = cluster::start(3);
    println!("{}; one key, {THREADS} threads", machine::describe());
    println!("{} interleaved rounds of {CALLS} calls a thread: median (min–max)\n", options.rounds);

    let head = ["one hot key", "", "ns a call", "decisions/s", "store runs a decision", "× governor"];
    let (mut table, mut left_out) = (Table::new(head), String::new());
    for case in [Case::Allowed, Case::Denied] {
        let server = cluster::Server::start(&[]);
        let mut entrants = peers::entrants(case, &runtime, &server);
        entrants.extend(ours::entrants(case, &runtime, &cluster));
        let mut rounds = Rounds::new(options.rounds);
        for entrant in &entrants {
            entrant.warm_up();
            rounds.contestant(entrant.name, move || entrant.turn(case));
        }
        let results = rounds.run();
        let word = format!("{case:?}").to_lowercase();
        for name in results.names() {
            let nanos = results.sound(name, "ns").map_or_else(|| "–".into(), |nanos| number(nanos.median));
            let rate = results.sound(name, "rate").map_or_else(|| "–".into(), |rate| rate.show(count));
            // Of all rounds: here it shows why some are left out.
            let runs = results.spread(name, "runs").map_or_else(|| "–".into(), |runs| format!("{:.6}", runs.median));
            let ratio = results.ratio(name, BASELINE, "rate").map_or_else(|| "–".into(), |ratio| ratio.to_string());
            table.row([word.clone(), name.to_owned(), nanos, rate, runs, ratio]);
        }
        left_out += &results.left_out().replace("left out: ", &format!("left out: {word}, "));
    }
    print!("\n{table}\n{left_out}");
    charged::check(&runtime, &cluster);
}
