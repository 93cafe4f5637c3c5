//! One server that is no cluster: everything works with one shard.

use std::task::Poll;
use std::time::Duration;

use crate::shared::{BURST, Server, client, define, eventually, exactly, left, race, take};
use crate::support::Manual;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_no_cluster_holds_whole_limits() {
    let server = Server::start(&[]);
    for text in crate::shared::SPLIT.into_iter().chain(crate::shared::WHOLE) {
        // One resets what the other was denied: each call is to see the store.
        let blunt = || client(&server).ceiling(Duration::ZERO);
        let clients = [define(blunt(), text), define(blunt(), text)];
        assert_eq!(race(&clients, text, 3).await, BURST, "{text}");
        let plan = clients[0].plan(text).await.unwrap();
        assert_eq!(plan.shards.len(), 1);
        assert_eq!(plan.shards[0].master.as_ref().unwrap().port, server.port);
        clients[0].reset(text).await.unwrap();
        let receipt = take(&clients[1], text, 200).await.into_receipt();
        assert_eq!(left(&clients[0], text).await, 100);
        clients[1].refund(text, receipt).await.unwrap();
        let peek = clients[0].peek(text).await.unwrap();
        assert_eq!((peek.remaining().permits, peek.remaining().exact), (BURST, true), "{text}");
    }
}

/// Where one asks for more shards than there are masters, one server holds them all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_no_cluster_holds_several_shards_if_it_has_to() {
    let server = Server::start(&[]);
    let limit = define(client(&server).shards(exactly(4)), crate::shared::SPLIT[0]);
    assert_eq!(limit.plan("hot").await.unwrap().shards.len(), 4);
    assert_eq!(race(std::slice::from_ref(&limit), "hot", 4).await, BURST);
}

/// The first of those who come together finds nobody on his way. Once he has not come alone, he lets the others in.
#[tokio::test]
async fn those_who_come_together_go_together() {
    let server = Server::start(&[]);
    let limit = define(client(&server), "token-bucket 1000000/s");
    let hot = limit.handle("k").unwrap();
    assert!(hot.acquire().await.unwrap().is_allowed());
    let runs = || hot.counts().iter().map(|shard| shard.runs).sum::<u64>();
    // Each time one goes before the others if he does not wait, and also if this thread is held up between two of them.
    eventually("eight calls take one run, and not two", async || {
        let before = runs();
        for _ in 0..20 {
            // Until nobody sends for the lane any more.
            tokio::time::sleep(Duration::from_millis(2)).await;
            let mut calls: Vec<_> = (0..8).map(|_| Manual::new(hot.acquire())).collect();
            // One may have its answer at once, where this thread loses its core in the middle of a call.
            calls.retain_mut(|call| match call.poll() {
                Poll::Pending => true,
                Poll::Ready(decided) => !decided.unwrap().is_allowed(),
            });
            for call in calls {
                assert!(call.into_future().await.unwrap().is_allowed());
            }
        }
        (20..30).contains(&(runs() - before))
    })
    .await;
    // Alone, each is one.
    let before = runs();
    for _ in 0..20 {
        assert!(hot.acquire().await.unwrap().is_allowed());
    }
    assert!((20..=21).contains(&(runs() - before)), "{} runs for 20 calls", runs() - before);
}
