//! Several asks at once on real servers: sent together, charged together or not at all.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use crate::shared::{
    Cluster, Layout, SPLIT, Server, candid, client, client_of, eventually, exactly, left, take, take_all,
};
use crate::support::Manual;
use redis::cmd;
use shardlimit::{AllDecision, Ask, ErrorKind, FailurePolicy, Limiter, NamedLimit, Shards};

const NAMES: [&str; 3] = ["item", "user", "address"];

/// One limit of each kind, under names of their own.
fn define(limiter: &Limiter) -> [NamedLimit; 3] {
    let mut texts = SPLIT.iter();
    NAMES.map(|name| limiter.define(name, texts.next().unwrap().parse().unwrap()).unwrap())
}

fn asks(limits: &[NamedLimit], permits: u64) -> Vec<Ask> {
    limits.iter().map(|limit| limit.ask("k", permits)).collect()
}

/// Splits the key now: what goes back to a share that became smaller since may find no room.
async fn plan(limits: &[NamedLimit]) {
    for limit in limits {
        limit.plan("k").await.unwrap();
    }
}

async fn all_left(limits: &[NamedLimit]) -> Vec<u64> {
    let mut all = Vec::new();
    for limit in limits {
        all.push(left(limit, "k").await);
    }
    all
}

/// What stands in each ask that is counted: a part of its sub-key.
const ASKED: &[u8] = b":api:k";

/// Between a client and its server. Holds back every answer until so many asks were sent.
struct Gate {
    port: u16,
    asks: Arc<AtomicUsize>,
    reads: Arc<AtomicUsize>,
    wanted: Arc<AtomicUsize>,
}

impl Gate {
    fn before(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let [asks, reads, wanted] = [(); 3].map(|()| Arc::<AtomicUsize>::default());
        let gate = Self { port, asks: Arc::clone(&asks), reads: Arc::clone(&reads), wanted: Arc::clone(&wanted) };
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                let upstream = TcpStream::connect(("127.0.0.1", server)).unwrap();
                for stream in [&client, &upstream] {
                    stream.set_nodelay(true).unwrap();
                }
                let (from, to) = (client.try_clone().unwrap(), upstream.try_clone().unwrap());
                let (counted, seen) = (Arc::clone(&asks), Arc::clone(&reads));
                std::thread::spawn(move || {
                    // A piece may end in the middle of a word.
                    let mut unread = Vec::new();
                    pass(from, to, |bytes| {
                        unread.extend_from_slice(bytes);
                        let found = unread.windows(ASKED.len()).filter(|word| *word == ASKED).count();
                        unread.drain(..unread.len().saturating_sub(ASKED.len() - 1));
                        seen.fetch_add(usize::from(found > 0), Ordering::SeqCst);
                        counted.fetch_add(found, Ordering::SeqCst);
                    });
                });
                let (asks, wanted) = (Arc::clone(&asks), Arc::clone(&wanted));
                std::thread::spawn(move || {
                    pass(upstream, client, |_| {
                        while asks.load(Ordering::SeqCst) < wanted.load(Ordering::SeqCst) {
                            std::thread::sleep(Duration::from_millis(1));
                        }
                    });
                });
            }
        });
        gate
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, mut sees: impl FnMut(&[u8])) {
    let mut buffer = vec![0; 1 << 20];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        sees(&buffer[..read]);
        if to.write_all(&buffer[..read]).is_err() {
            return;
        }
    }
}

/// No answer passes before all of them were sent: if one call waited for another's answer, none would ever end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_ask_waits_for_another() {
    const ASKS: usize = 200;
    let server = Server::start(&[]);
    let gate = Gate::before(server.port);
    let url = format!("redis://127.0.0.1:{}", gate.port);
    let limiter = candid(Limiter::builder().redis([url]).timeout(Duration::from_secs(20))).build().unwrap();
    let limit = limiter.define("api", SPLIT[0].parse().unwrap()).unwrap();
    assert!(limit.acquire("first").await.unwrap().is_allowed());
    // Whoever reads may be faster than whoever asks, where that one loses its core: of some tries the best.
    let mut pieces = Vec::new();
    for round in 1..=10 {
        gate.reads.store(0, Ordering::SeqCst);
        gate.wanted.store(round * ASKS, Ordering::SeqCst);
        let decisions = limiter.acquire_many((0..ASKS).map(|key| limit.ask(format!("k{round}:{key}"), 1))).await;
        assert!(decisions.into_iter().all(|decision| decision.unwrap().is_allowed()));
        assert_eq!(gate.asks.load(Ordering::SeqCst), round * ASKS);
        pieces.push(gate.reads.load(Ordering::SeqCst));
        if pieces[round - 1] <= ASKS / 4 {
            return;
        }
    }
    panic!("{ASKS} asks came in {pieces:?} pieces");
}

/// A server counts how often it reads from a socket: a pipeline is few reads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn asks_go_in_one_pipeline_a_master() {
    const ASKS: usize = 300;
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    let limiter = client_of(&cluster, 0).shards(Shards::Off).build().unwrap();
    limiter.ready(Duration::from_secs(10)).await.unwrap();
    let limit = limiter.define("api", SPLIT[0].parse().unwrap()).unwrap();
    let reads = || -> Vec<u64> {
        let count = |master: &crate::shared::cluster::Node| {
            let info: String = master.ask(cmd("INFO").arg("stats"));
            let line = info.lines().find_map(|line| line.strip_prefix("total_reads_processed:"));
            line.expect("the server counts its reads").trim().parse().unwrap()
        };
        cluster.nodes.iter().map(count).collect()
    };
    let before = reads();
    let decisions = limiter.acquire_many((0..ASKS).map(|key| limit.ask(format!("k{key}"), 1))).await;
    let reads: Vec<u64> = reads().iter().zip(before).map(|(after, before)| after - before).collect();
    assert!(decisions.into_iter().all(|decision| decision.unwrap().is_allowed()));
    // About 100 asks a master. The bus of the cluster and the looks at these counts are reads, too.
    assert!(reads.iter().all(|reads| *reads <= 40), "reads of the masters: {reads:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_ask_has_its_own_answer() {
    let cluster = Cluster::start(2, 0, Layout::Contiguous, &[]);
    let limiter = client_of(&cluster, 0).build().unwrap();
    let limits = define(&limiter);
    take_all(&limits[1], "k").await;
    let mut several = asks(&limits, 2);
    several.push(limits[0].ask("k", 299));
    several.push(limits[0].ask("k", 301));
    let decisions = limiter.acquire_many(several).await;
    let allowed: Vec<_> = decisions[..3].iter().map(|decision| decision.as_ref().unwrap().is_allowed()).collect();
    assert_eq!(allowed, [true, false, true]);
    assert!(!decisions[3].as_ref().unwrap().is_allowed(), "two were gone, or are on their way");
    assert_eq!(decisions[4].as_ref().unwrap_err().kind(), ErrorKind::Never);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_the_third_denies_the_first_two_are_as_before() {
    let cluster = Cluster::start(2, 0, Layout::Contiguous, &[]);
    for shards in [exactly(2), Shards::Off] {
        let builder = || client_of(&cluster, 0).prefix(shards.to_string()).shards(shards);
        let [limiter, other] = [(); 2].map(|()| builder().build().unwrap());
        let (limits, of_another) = (define(&limiter), define(&other));
        plan(&limits).await;
        for limit in &limits {
            take(limit, "k", 10).await;
        }
        // Taken by another client: this one has to ask to know.
        take_all(&of_another[2], "k").await;
        let AllDecision::Denied(denied) = limiter.acquire_all(asks(&limits, 5)).await.unwrap() else {
            panic!("the third has nothing left");
        };
        assert_eq!(denied.denials().map(|(ask, _)| ask.limit().name()).collect::<Vec<_>>(), ["address"]);
        assert!(!denied.retry_after().is_zero());
        assert_eq!(all_left(&limits).await, [290, 290, 0]);
        eventually("the other client sees it", async || all_left(&of_another).await == [290, 290, 0]).await;
        // By now it is known here.
        let hot = limits[0].handle("k").unwrap();
        let runs = || hot.counts().iter().map(|shard| shard.runs).sum::<u64>();
        let before = runs();
        for _ in 0..5 {
            assert!(!limiter.acquire_all(asks(&limits, 5)).await.unwrap().is_allowed());
        }
        assert_eq!(runs(), before, "nobody was asked in vain");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_allowed_call_has_a_receipt_for_all() {
    let cluster = Cluster::start(2, 0, Layout::Contiguous, &[]);
    let limiter = client_of(&cluster, 0).build().unwrap();
    let limits = define(&limiter);
    plan(&limits).await;
    for (actual, then) in [(None, [300, 300, 300]), (Some([1, 9, 0]), [299, 291, 300])] {
        let AllDecision::Allowed(allowed) = limiter.acquire_all(asks(&limits, 5)).await.unwrap() else {
            panic!("all have enough");
        };
        assert_eq!(allowed.each().len(), 3);
        match actual {
            None => allowed.into_receipt().refund().await.unwrap(),
            Some(actual) => allowed.into_receipt().settle(&actual).await.unwrap(),
        }
        assert_eq!(all_left(&limits).await, then);
    }
}

/// Wherever its caller goes away, a call leaves nothing behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_call_costs_nothing() {
    let cluster = Cluster::start(2, 0, Layout::Contiguous, &[]);
    let limiter = client_of(&cluster, 0).build().unwrap();
    let limits = define(&limiter);
    plan(&limits).await;
    for limit in &limits {
        take(limit, "k", 100).await;
    }
    let mut kept = [0; 3];
    for round in 0..60 {
        let mut all = Manual::new(limiter.acquire_all(asks(&limits, 5)));
        let mut many = Manual::new(limiter.acquire_many(asks(&limits, 5)));
        // On a busy machine all answers may be there before the first poll ends: then it is charged.
        if let Poll::Ready(Ok(AllDecision::Allowed(_))) = all.poll() {
            kept = kept.map(|kept| kept + 5);
        }
        if let Poll::Ready(decisions) = many.poll() {
            let charged = decisions.into_iter().map(|decision| if decision.unwrap().is_allowed() { 5 } else { 0 });
            kept.iter_mut().zip(charged).for_each(|(kept, charged)| *kept += charged);
        }
        // Some go away while they are on their way, some when their answers lie ready.
        if round % 2 == 1 {
            tokio::time::sleep(Duration::from_micros(crate::shared::random(2_000))).await;
        }
    }
    eventually("all is back", async || all_left(&limits).await == kept.map(|kept| 200 - kept)).await;
}

/// A limit that can't be asked decides by its policy. If that is an error, the others are charged nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_of_one_gives_the_others_back() {
    let server = Server::start(&[]);
    let limiter = client(&server).build().unwrap();
    let limits = define(&limiter);
    let gone = Limiter::builder().redis(["redis://127.0.0.1:1"]).timeout(Duration::from_millis(200));
    let gone = candid(gone).build().unwrap().define("gone", SPLIT[0].parse().unwrap()).unwrap();
    let both = || [limits[0].ask("k", 5), gone.ask("k", 5)];
    let error = limiter.acquire_all(both()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotSent);
    assert!(error.to_string().contains("\"gone\""), "{error}");
    assert_eq!(left(&limits[0], "k").await, 300);
    gone.set_failure_policy(Some(FailurePolicy::Closed)).unwrap();
    assert!(!limiter.acquire_all(both()).await.unwrap().is_allowed());
    assert_eq!(left(&limits[0], "k").await, 300);
    gone.set_failure_policy(Some(FailurePolicy::Open)).unwrap();
    assert!(limiter.acquire_all(both()).await.unwrap().is_allowed());
    assert_eq!(left(&limits[0], "k").await, 295);
}

/// What the failure policy admitted is given back too: when the shard is back it is charged for nobody who was denied.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_policy_admitted_is_given_back() {
    let (mut server, other) = (Server::start(&[]), Server::start(&[]));
    // It is asked each time, and so is the other.
    let limiter = client(&other).ceiling(Duration::ZERO).build().unwrap();
    let denies = limiter.define("denies", "token-bucket 1/day burst 1".parse().unwrap()).unwrap();
    assert!(denies.acquire("k").await.unwrap().is_allowed());
    let builder = client(&server).on_failure(FailurePolicy::Open).timeout(Duration::from_millis(200));
    let item = builder.build().unwrap().define("item", SPLIT[0].parse().unwrap()).unwrap();
    assert_eq!(left(&item, "k").await, 300);
    // What is owed for a key that nobody holds on to, and that is not split, is forgotten with it.
    let hot = item.handle("k").unwrap();
    server.kill();
    // Of the first one it may not be known whether it was charged; then it is not charged again.
    assert!(hot.acquire().await.unwrap().is_allowed());
    for _ in 0..10 {
        assert!(!limiter.acquire_all([item.ask("k", 5), denies.ask("k", 1)]).await.unwrap().is_allowed());
    }
    take(&item, "k", 7).await;
    let refunded = take(&item, "k", 9).await;
    item.refund("k", refunded.into_receipt()).await.unwrap();
    server.restart();
    let remaining = async || item.peek("k").await.map_or(0, |peek| peek.remaining().permits);
    eventually("what was kept is charged", async || (1..300).contains(&remaining().await)).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let left = remaining().await;
    assert!((292..=293).contains(&left), "{left} left: who was denied, or gave back, is not charged");
}
