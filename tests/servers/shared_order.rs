//! Calls that wait on a shared store: served in the order of their arrival, never overtaken, gone without a trace.

use std::pin::Pin;
use std::time::Duration;

use crate::shared::{
    BURST, Cluster, Layout, SPLIT, Server, client, client_of, define, eventually, exactly, left, take,
};
use crate::support::Manual;
use shardlimit::{
    DecidedBy, Decision, Error, ErrorKind, FakeClock, Handle, Leases, Limiter, NamedLimit, Receipt, Shards,
};
use tokio::time::timeout;

/// Longer than any limit here takes to bring a permit by itself.
const AGES: Duration = Duration::from_secs(10 * 365 * 86_400);
/// As long as a busy machine may take.
const PATIENCE: Duration = Duration::from_secs(30);

type Call<'a> = Pin<Box<dyn Future<Output = Result<Decision, Error>> + Send + 'a>>;

/// A call that waits, polled once: it has arrived.
fn wait<'a>(limit: &'a NamedLimit, permits: u64, within: Duration) -> Manual<Call<'a>> {
    let mut call: Manual<Call<'a>> = Manual::new(Box::pin(limit.acquire_within("k", permits, within)));
    assert!(call.is_pending());
    call
}

/// What a call came to that has to end now.
async fn end(call: Manual<Call<'_>>) -> Result<Decision, Error> {
    timeout(PATIENCE, call.into_future()).await.expect("its turn has come")
}

async fn is_served(call: Manual<Call<'_>>) -> bool {
    end(call).await.unwrap().is_allowed()
}

/// All permits of the key, with a receipt for each.
async fn drain(limit: &NamedLimit) -> Vec<Receipt> {
    let mut receipts = Vec::new();
    for _ in 0..BURST {
        receipts.push(take(limit, "k", 1).await.into_receipt());
    }
    assert!(!limit.acquire("k").await.unwrap().is_allowed());
    receipts
}

async fn give_back(limit: &NamedLimit, receipts: impl IntoIterator<Item = Receipt>) {
    for receipt in receipts {
        limit.refund("k", receipt).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_calls_are_served_in_the_order_of_their_arrival() {
    let cluster = Cluster::start(2, 0, Layout::Contiguous, &[]);
    for text in SPLIT {
        for shards in [exactly(2), Shards::Off] {
            let prefix = format!("{}{shards}", &text[..6]);
            let limit = define(client_of(&cluster, 0).prefix(prefix).shards(shards), text);
            limit.plan("k").await.unwrap();
            let mut receipts = drain(&limit).await;
            let calls: Vec<_> = (0..50).map(|_| wait(&limit, 1, AGES)).collect();
            for (place, call) in calls.into_iter().enumerate() {
                give_back(&limit, receipts.pop()).await;
                assert!(is_served(call).await, "{text} {shards}: {place}");
            }
            assert_eq!(left(&limit, "k").await, 0, "{text} {shards}");
        }
    }
}

/// What came back for many at once is asked for at once, and each has its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_want_as_much_are_asked_for_together() {
    let server = Server::start(&[]);
    let limit = define(client(&server), SPLIT[0]);
    let all = take(&limit, "k", BURST).await.into_receipt();
    let hot = limit.handle("k").unwrap();
    let runs = || hot.counts().iter().map(|shard| shard.runs).sum::<u64>();
    let calls: Vec<_> = (0..100).map(|_| wait(&limit, 2, AGES)).collect();
    // Whoever arrived first has asked: the others stand in line, or joined its round.
    eventually("nobody is on his way", async || !limit.acquire("k").await.unwrap().is_allowed()).await;
    let before = runs();
    give_back(&limit, [all]).await;
    for call in calls {
        assert!(is_served(call).await);
    }
    // The refund, the head, and those behind it; a first ask or two may still have been out.
    assert!(runs() - before <= 8, "{} runs for 100 calls", runs() - before);
    assert_eq!(left(&limit, "k").await, BURST - 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_overtakes_a_waiting_call() {
    let cluster = Cluster::start(2, 0, Layout::Contiguous, &[]);
    for shards in [exactly(2), Shards::Off] {
        let limit = define(client_of(&cluster, 0).prefix(shards.to_string()).shards(shards), SPLIT[0]);
        limit.plan("k").await.unwrap();
        // Those of one shard: what it has is what a call finds.
        let mut receipts = drain(&limit).await;
        let slot = |receipt: &Receipt| receipt.shards().next().map(|(slot, ..)| slot.number());
        let first = slot(&receipts[0]);
        receipts.retain(|receipt| slot(receipt) == first);
        let large = wait(&limit, 5, AGES);
        let small = wait(&limit, 1, AGES);
        let hot = limit.handle("k").unwrap();
        for _ in 0..4 {
            give_back(&limit, receipts.pop()).await;
            for decision in [
                limit.try_acquire("k", 1).unwrap().expect("it is known here"),
                hot.try_acquire(1).unwrap().expect("it is known here"),
                limit.acquire("k").await.unwrap(),
                hot.acquire_within(1, Duration::ZERO).await.unwrap(),
            ] {
                assert_eq!(decision.decided_by(), DecidedBy::Line, "{decision:?}");
                let Decision::Denied(denied) = decision else { panic!("overtaken") };
                assert!(!denied.retry_after().is_zero());
            }
        }
        assert!(limit.acquire("another key").await.unwrap().is_allowed());
        give_back(&limit, receipts.pop()).await;
        assert!(is_served(large).await);
        give_back(&limit, receipts.pop()).await;
        assert!(is_served(small).await);
        give_back(&limit, receipts.pop()).await;
        assert!(limit.acquire("k").await.unwrap().is_allowed(), "there is no line any more");
    }
}

/// Permits that are held in process are no more to be had for those who come later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_overtakes_by_a_lease() {
    let server = Server::start(&[]);
    let limiter = client(&server).build().unwrap();
    let leases = Leases::new().horizon(Duration::from_secs(5)).ttl(Duration::from_secs(10));
    let limit = limiter.define_leased("api", SPLIT[0].parse().unwrap(), leases).unwrap();
    let mut receipts = Vec::new();
    while let Decision::Allowed(allowed) = limit.acquire("k").await.unwrap() {
        receipts.push(allowed.into_receipt());
    }
    let large = wait(&limit, 40, AGES);
    give_back(&limit, receipts.drain(..20)).await;
    for _ in 0..50 {
        assert!(!limit.try_acquire("k", 1).unwrap().expect("there is a line").is_allowed());
    }
    give_back(&limit, receipts).await;
    assert!(is_served(large).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_leaves_costs_nothing() {
    let server = Server::start(&[]);
    for text in SPLIT {
        let limit = define(client(&server).prefix(&text[..6]), text);
        let mut receipts = drain(&limit).await;
        let first = wait(&limit, 1, AGES);
        let second = wait(&limit, 1, AGES);
        let third = wait(&limit, 1, AGES);
        drop(first);
        give_back(&limit, receipts.pop()).await;
        assert!(is_served(second).await, "{text}: it is at the head now");
        // Served, and dropped before it knew.
        give_back(&limit, receipts.pop()).await;
        eventually("it is served", async || third.woken.times() > 0).await;
        drop(third);
        eventually("its permit is back", async || left(&limit, "k").await == 1).await;
        assert!(limit.acquire("k").await.unwrap().is_allowed(), "{text}: there is no line any more");
    }
}

/// A large ask at the head holds up those behind it until it leaves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_next_is_served_when_the_head_leaves() {
    let server = Server::start(&[]);
    let limit = define(client(&server), SPLIT[0]);
    let mut receipts = drain(&limit).await;
    let large = wait(&limit, 100, AGES);
    let mut small = wait(&limit, 1, AGES);
    give_back(&limit, receipts.drain(..2)).await;
    assert!(small.is_pending());
    drop(large);
    assert!(is_served(small).await);
    eventually("the line is gone", async || limit.acquire("k").await.unwrap().is_allowed()).await;
}

/// Time is the limiter's: it passes when the test says so, and the server's does not count.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_leaves_at_its_deadline() {
    let server = Server::start(&[]);
    let time = FakeClock::new();
    let limit = define(client(&server).clock(&time), SPLIT[0]);
    let mut receipts = drain(&limit).await;
    let mut large = wait(&limit, 2, AGES);
    let mut behind = wait(&limit, 1, Duration::from_secs(300));
    time.advance(Duration::from_secs(299));
    assert!(behind.is_pending());
    time.advance(Duration::from_secs(1));
    let Decision::Denied(denied) = end(behind).await.unwrap() else { panic!("past its deadline") };
    assert!(!denied.retry_after().is_zero());
    assert!(large.is_pending());
    give_back(&limit, receipts.drain(..2)).await;
    assert!(is_served(large).await);
    // No permit comes for 288 s: at the head that is said at once.
    let late = limit.acquire_within("k", 1, Duration::from_millis(100)).await.unwrap();
    assert!(!late.is_allowed());
}

/// With a slow limit and many who wait, the store is asked about once for each permit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permit_takes_about_one_run() {
    let server = Server::start(&[]);
    let limit = define(client(&server), "token-bucket 100/s burst 1");
    let hot = limit.handle("k").unwrap();
    assert!(hot.acquire().await.unwrap().is_allowed());
    let calls: Vec<_> = (0..60).map(|_| wait(&limit, 1, AGES)).collect();
    for call in calls {
        assert!(is_served(call).await);
    }
    let runs: u64 = hot.counts().iter().map(|shard| shard.runs).sum();
    assert!((61..=80).contains(&runs), "{runs} runs for 61 permits");
}

/// Clients do not see each other's lines. They do not all ask for the same permit at once either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_clients_share_what_comes() {
    let server = Server::start(&[]);
    let limits = [0, 1].map(|_| define(client(&server), "token-bucket 100/s burst 1"));
    let calls: Vec<_> = (0..60).map(|place| Manual::new(limits[place % 2].acquire_within("k", 1, AGES))).collect();
    let hot = limits.each_ref().map(|limit| limit.handle("k").unwrap());
    let mut tasks = Vec::new();
    for mut call in calls {
        let _ = call.is_pending();
        tasks.push(call.into_future());
    }
    for task in tasks {
        assert!(timeout(PATIENCE, task).await.expect("its turn has come").unwrap().is_allowed());
    }
    let runs: u64 = hot.iter().flat_map(Handle::counts).map(|shard| shard.runs).sum();
    assert!(runs <= 200, "{runs} runs for 60 permits");
}

/// Nobody is left in a line that nobody serves any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_wait_learn_of_the_end() {
    let server = Server::start(&[]);
    let limiter = client(&server).build().unwrap();
    let limit = limiter.define("api", SPLIT[0].parse().unwrap()).unwrap();
    drop(drain(&limit).await);
    let calls = [wait(&limit, 1, AGES), wait(&limit, 2, AGES)];
    limiter.shutdown(Duration::from_millis(1)).await.unwrap();
    for call in calls {
        assert_eq!(end(call).await.unwrap_err().kind(), ErrorKind::NotSent);
    }
}

/// While the store can't be asked nobody knows whether there are permits: those who wait do so until their deadline, and learn why.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_wait_for_a_store_learn_why() {
    let nowhere = Limiter::builder().redis(["redis://127.0.0.1:1"]).timeout(Duration::from_millis(50));
    let limit = define(crate::shared::candid(nowhere), SPLIT[0]);
    let calls = [1, 1, 2].map(|permits| limit.acquire_within("k", permits, Duration::from_millis(500)));
    for call in calls {
        let error = timeout(PATIENCE, call).await.expect("its deadline has passed").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotSent, "{error}");
    }
}
