//! One hot key, against limitador with its Redis stores.
//!
//! `cargo run --release --manifest-path benches/limitador/Cargo.toml -- [--quick]`
//!
//! limitador knows no cluster: it has one server to itself, we have three masters. All run on the same machine. Its plain
//! store runs a script for each call; its cached one decides from memory and tells the server in the background.

use std::sync::Arc;

use limitador::AsyncRateLimiter;
use limitador::limit::{Context, Limit, Namespace};
use limitador::storage::AsyncCounterStorage;
use limitador::storage::redis::{AsyncRedisStorage, CachedRedisStorage};
use shardlimit::{Handle, Leases, Limiter};
use shardlimit_peers::cluster::{Cluster, Server, cluster_runs, script_runs, start, url, urls};
use shardlimit_peers::load::{Caller, Load, Outcome, closed_loop, runtime};
use shardlimit_peers::{Defaults, Figures, Options, Rounds, Table, count, machine, micros, number};

/// So high that no call is denied.
const PERMITS: u64 = 100_000_000;
const CALLERS: [usize; 3] = [1, 64, 1_000];
const BASELINE: &str = "limitador, redis";

#[derive(Clone)]
struct Limitador {
    limiter: Arc<AsyncRateLimiter>,
    namespace: Namespace,
}

impl Limitador {
    fn new(storage: Box<dyn AsyncCounterStorage>, name: &str) -> Self {
        let limiter = AsyncRateLimiter::new_with_storage(storage);
        limiter.add_limit(Limit::new(name, PERMITS, 1, [], []));
        Self { limiter: Arc::new(limiter), namespace: name.into() }
    }
}

impl Caller for Limitador {
    async fn call(&mut self) -> Outcome {
        let context = Context::default();
        match self.limiter.check_rate_limited_and_update(&self.namespace, &context, 1).await {
            Ok(check) if check.limited => Outcome::Denied,
            Ok(_) => Outcome::Allowed,
            Err(_) => Outcome::Failed,
        }
    }
}

fn main() {
    let options = Options::from_args(Defaults { rounds: 5, seconds: 1.0 });
    let runtime = runtime(2);
    let (server, cluster) = (Server::start(&[]), start(3));
    println!("{}; limitador on one server, shardlimit on 3 masters", machine::describe());
    println!("{}\n", options.describe());
    let (plain, cached) = runtime.block_on(async {
        let plain = AsyncRedisStorage::new(&url(&server)).await.expect("a server that answers");
        let cached = CachedRedisStorage::new(&url(&server)).await.expect("a server that answers");
        (Limitador::new(Box::new(plain), "plain"), Limitador::new(Box::new(cached), "cached"))
    });
    let [exact, leased] = runtime.block_on(ours(&runtime, &cluster));

    let head =
        ["callers", "", "decisions/s", "p50", "p99", "script runs a decision", "CPU a decision", "× limitador, redis"];
    let mut table = Table::new(head);
    for callers in CALLERS {
        let mut rounds = Rounds::new(options.rounds);
        let (runtime, turn) = (&runtime, options.turn);
        for (name, handle) in [("exact", &exact), ("leased", &leased)] {
            let runs = || cluster_runs(&cluster);
            rounds.contestant(name, move || counting(runs, || closed_loop(runtime, callers, turn, |_| handle.clone())));
        }
        for (name, peer) in [(BASELINE, &plain), ("limitador, cached", &cached)] {
            let runs = || script_runs(&server);
            rounds.contestant(name, move || counting(runs, || closed_loop(runtime, callers, turn, |_| peer.clone())));
        }
        let results = rounds.run();
        for name in results.names() {
            let median = |figure, form: fn(f64) -> String| {
                results.spread(name, figure).map_or_else(|| "–".into(), |spread| form(spread.median))
            };
            let rate = results.spread(name, "rate").map_or_else(|| "–".into(), |rate| rate.show(count));
            let ratio = results.ratio(name, BASELINE, "rate").map_or_else(|| "–".into(), |ratio| ratio.to_string());
            let [p50, p99, cpu] = ["p50", "p99", "cpu"].map(|figure| median(figure, micros));
            table.row([count(callers as f64), name.to_owned(), rate, p50, p99, median("runs", number), cpu, ratio]);
            for figure in ["failed", "denied"] {
                if let Some(calls) = results.spread(name, figure).filter(|calls| calls.max > 0.0) {
                    println!("{name}, {callers} callers: {} calls a turn {figure}", calls.show(count));
                }
            }
        }
    }
    println!("{table}");
}

async fn ours(runtime: &tokio::runtime::Runtime, cluster: &Cluster) -> [Handle; 2] {
    let builder = Limiter::builder().redis(urls(cluster)).runtime(runtime.handle().clone());
    let limiter = builder.build().expect("valid settings");
    let limit = format!("fixed-window {PERMITS}/s").parse().expect("a valid limit");
    let exact = limiter.define("exact", limit).expect("a valid name");
    let leased = limiter.define_leased("leased", limit, Leases::default()).expect("a valid name");
    for limit in [&exact, &leased] {
        let _ = limit.acquire("hot").await.expect("a cluster that answers");
        limit.plan("hot").await.expect("a plan");
    }
    [exact, leased].map(|limit| limit.handle("hot").expect("a valid key"))
}

fn counting(runs: impl Fn() -> u64, load: impl FnOnce() -> Load) -> Figures {
    let before = runs();
    let load = load();
    let runs = runs() - before;
    load.figures().with("runs", runs as f64 / load.calls as f64)
}
