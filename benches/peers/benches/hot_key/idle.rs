//! One caller on an idle cluster, against the very EVALSHA that the library sends, on bare connections.

use std::time::Instant;

use redis::Cmd;
use redis::aio::MultiplexedConnection;
use shardlimit::Handle;
use shardlimit_peers::load::{Caller, Outcome};
use shardlimit_peers::{Figures, Options, Rounds, Table, micros};

use crate::contestants::Contestants;
use crate::monitor::Monitor;

/// Slices so short that both sides of a ratio meet the same machine.
const CALLS: usize = 200;
const SLICES: usize = 200;
const QUICK_SLICES: usize = 20;
/// To the masters of the split key, one after another, as `exact` goes to them.
const IN_TURN: &str = "bare EVALSHA, masters in turn";
/// To the master of the key that is not split.
const ONE_MASTER: &str = "bare EVALSHA, one master";

pub(crate) fn run(options: &Options, contestants: &Contestants<'_>) {
    let slices = if options.quick { QUICK_SLICES } else { SLICES };
    println!("## idle: one caller, {slices} interleaved slices of {CALLS} calls\n");
    let runtime = contestants.runtime;
    let [exact, whole] = [&contestants.exact, &contestants.whole];
    let in_turn = runtime.block_on(Bare::seen_of(contestants, exact));
    let one_master = runtime.block_on(Bare::seen_of(contestants, whole));

    let mut rounds = Rounds::new(slices);
    // On a worker, as a gateway's tasks are, not on the thread that waits for the runtime.
    rounds.contestant("exact", || runtime.block_on(runtime.spawn(slice(exact.clone()))).expect("a caller"));
    rounds.contestant(IN_TURN, || runtime.block_on(runtime.spawn(slice(in_turn.clone()))).expect("a caller"));
    rounds.contestant("exact, not split", || runtime.block_on(runtime.spawn(slice(whole.clone()))).expect("a caller"));
    rounds.contestant(ONE_MASTER, || runtime.block_on(runtime.spawn(slice(one_master.clone()))).expect("a caller"));
    let results = rounds.run();

    let mut table = Table::new(["one caller", "p50", "p90", "p50, × bare, in turn", "p50, × bare, one master"]);
    for name in results.names() {
        let value = |figure| results.spread(name, figure).map_or_else(|| "–".into(), |value| micros(value.median));
        let ratio = |baseline| {
            let ratio = results.ratio(name, baseline, "p50");
            ratio.map_or_else(|| "–".into(), |ratio| ratio.to_string())
        };
        table.row([name.to_owned(), value("p50"), value("p90"), ratio(IN_TURN), ratio(ONE_MASTER)]);
    }
    println!("{table}");
}

/// The script runs of a handle's calls, one a shard, as the servers saw them, each with a connection to its server.
#[derive(Clone)]
struct Bare {
    runs: Vec<(Cmd, MultiplexedConnection)>,
    next: usize,
}

impl Bare {
    async fn seen_of(contestants: &Contestants<'_>, handle: &Handle) -> Self {
        let plan = handle.limit().plan(handle.key()).await.expect("a cluster that answers");
        let mut runs = Vec::new();
        for shard in &plan.shards {
            let node = &contestants.cluster.nodes[contestants.cluster.owner_of(shard.slot.number())];
            let mut monitor = Monitor::new(node.connection());
            // More than one a shard, each in a turn of its own.
            for _ in 0..10 * plan.shards.len() {
                tokio::time::sleep(std::time::Duration::from_millis(3)).await;
                let _ = handle.acquire().await.expect("a cluster that answers");
            }
            let connection = node.server.client().get_multiplexed_async_connection().await.expect("a server");
            runs.push((monitor.next_run(&shard.sub_key), connection));
        }
        Self { runs, next: 0 }
    }
}

impl Caller for Bare {
    async fn call(&mut self) -> Outcome {
        self.next = (self.next + 1) % self.runs.len();
        let (command, connection) = &mut self.runs[self.next];
        match command.query_async::<redis::Value>(connection).await {
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
