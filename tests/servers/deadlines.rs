//! Whatever is asked of a key ends by its deadline, also beside permits, on a server that hangs and on any runtime.

use std::time::Duration;

use crate::shared::{BURST, Server, client, eventually, left, take};
use shardlimit::{Error, ErrorKind, NamedLimit, Shards};

/// Far more than any deadline here, and far less than a request may take: what takes longer hangs.
const HANGS: Duration = Duration::from_secs(30);

fn define(server: &Server, deadline: Duration) -> NamedLimit {
    let builder = client(server).shards(Shards::Off).timeout(Duration::from_secs(600)).deadline(deadline);
    builder.build().unwrap().define("api", "token-bucket 300/day burst 300".parse().unwrap()).unwrap()
}

async fn late<T: std::fmt::Debug>(what: &str, asked: impl Future<Output = Result<T, Error>>) -> ErrorKind {
    let ended = tokio::time::timeout(HANGS, asked).await;
    let error = ended.unwrap_or_else(|_| panic!("{what} does not end by its deadline")).expect_err(what);
    assert_eq!(error.field(), "deadline", "{what}: {error}");
    error.kind()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_asked_of_a_key_ends_by_its_deadline() {
    let server = Server::start(&[]);
    let limit = define(&server, Duration::from_millis(100));
    let hot = limit.handle("hot").unwrap();
    let mut receipts: Vec<_> = Vec::new();
    for _ in 0..5 {
        receipts.push(take(&limit, "hot", 10).await.into_receipt());
    }
    let mut receipt = || receipts.pop().expect("five of them");
    server.pause();
    late("a look", limit.peek("hot")).await;
    late("a look by handle", hot.peek()).await;
    // Both go on: their permits come back as soon as the server does.
    assert_eq!(late("a refund", limit.refund("hot", receipt())).await, ErrorKind::Unknown);
    assert_eq!(late("a refund by handle", hot.refund(receipt())).await, ErrorKind::Unknown);
    assert_eq!(late("a settlement", limit.settle("hot", receipt(), 4)).await, ErrorKind::Unknown);
    assert_eq!(late("a settlement for more", hot.settle(receipt(), 13)).await, ErrorKind::Unknown);
    // A caller without a runtime has no timer, and needs none.
    let error = tokio::task::block_in_place(|| pollster::block_on(limit.refund("hot", receipt()))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
    server.resume();
    let other = define(&server, HANGS);
    eventually("all of it is settled", async || left(&other, "hot").await == BURST - 4 - 13).await;
}

/// One that is late before it was sent is not sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_ends_by_its_deadline() {
    let server = Server::start(&[]);
    let limit = define(&server, HANGS);
    drop(take(&limit, "hot", 10).await);
    server.pause();
    let brief = limit.deadline(Duration::from_millis(100));
    assert_eq!(late("a reset", brief.reset("hot")).await, ErrorKind::Unknown, "it was sent");
    assert_eq!(late("a reset behind another", brief.reset("hot")).await, ErrorKind::NotSent);
    assert_eq!(late("a reset by handle", brief.handle("hot").unwrap().reset()).await, ErrorKind::NotSent);
    server.resume();
    eventually("the first one is done", async || left(&limit, "hot").await == BURST).await;
}
