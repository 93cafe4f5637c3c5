//! One caller on an idle cluster, against the very EVALSHA that the library sends, on a bare connection.

use std::time::Instant;

use redis::Cmd;
use redis::aio::MultiplexedConnection;
use shardlimit_peers::load::{Caller, Outcome};
use shardlimit_peers::{Figures, Options, Rounds, Table, micros};

use crate::contestants::Contestants;
use crate::monitor::Monitor;

/// Slices so short that both sides of a ratio meet the same machine.
const CALLS: usize = 200;
const SLICES: usize = 200;
const QUICK_SLICES: usize = 20;
const BASELINE: &str = "bare EVALSHA";

pub(crate) fn run(options: &Options, contestants: &Contestants<'_>) {
    let slices = if options.quick { QUICK_SLICES } else { SLICES };
    println!("## idle: one caller, {slices} interleaved slices of {CALLS} calls\n");
    let runtime = contestants.runtime;
    let bare = runtime.block_on(bare(contestants));

    let mut rounds = Rounds::new(slices);
    // On a worker, as a gateway's tasks are, not on the thread that waits for the runtime.
    rounds.contestant("exact", || runtime.block_on(runtime.spawn(slice(contestants.exact.clone()))).expect("a caller"));
    rounds.contestant(BASELINE, || runtime.block_on(runtime.spawn(slice(bare.clone()))).expect("a caller"));
    let results = rounds.run();

    let mut table = Table::new(["one caller", "p50", "p90", "p50, × bare EVALSHA", "p90, × bare EVALSHA"]);
    for name in results.names() {
        let value = |figure| results.spread(name, figure).map_or_else(|| "–".into(), |value| micros(value.median));
        let ratio = |figure| {
            let ratio = results.ratio(name, BASELINE, figure);
            ratio.map_or_else(|| "–".into(), |ratio| ratio.to_string())
        };
        table.row([name.to_owned(), value("p50"), value("p90"), ratio("p50"), ratio("p90")]);
    }
    println!("{table}");
}

/// The script run of one call, as the server of the first shard saw it, and a connection to that server.
async fn bare(contestants: &Contestants<'_>) -> Bare {
    let plan = contestants.exact.limit().plan(contestants.exact.key()).await.expect("a cluster that answers");
    let node = &contestants.cluster.nodes[contestants.cluster.owner_of(plan.shards[1].slot.number())];
    let mut monitor = Monitor::new(node.connection());
    // More than one a shard, whatever the selector picks.
    for _ in 0..10 * plan.shards.len() {
        let _ = contestants.exact.acquire().await.expect("a cluster that answers");
    }
    let command = monitor.next_run();
    let connection = node.server.client().get_multiplexed_async_connection().await.expect("a server");
    Bare { command, connection }
}

#[derive(Clone)]
struct Bare {
    command: Cmd,
    connection: MultiplexedConnection,
}

impl Caller for Bare {
    async fn call(&mut self) -> Outcome {
        match self.command.query_async::<redis::Value>(&mut self.connection).await {
            Ok(_) => Outcome::Allowed,
            Err(_) => Outcome::Failed,
        }
    }
}

async fn slice(mut caller: impl Caller) -> Figures {
    let mut times = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        let begin = Instant::now();
        assert_eq!(caller.call().await, Outcome::Allowed);
        times.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    Figures::new().with("p50", times[CALLS / 2]).with("p90", times[CALLS * 9 / 10])
}
