//! A call whose future is dropped, at whatever moment, costs nothing in the end.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::shared::{
    BURST, Cluster, Layout, Server, client, client_of, define, eventually, left, random, take, take_all,
};
use shardlimit::{Decision, NamedLimit};
use tokio::task::JoinSet;

/// Lets others run so many times. Polled before the call, so that an answer that has just come is dropped unseen.
async fn moments(count: u64) {
    for _ in 0..count {
        tokio::task::yield_now().await;
    }
}

/// Asks again and again and gives up at random moments. What it was handed in the end.
async fn impatient(limit: NamedLimit, key: &'static str, calls: usize) -> u64 {
    let mut handed = 0;
    for _ in 0..calls {
        let permits = [1, 1, 2, 120][random(4) as usize];
        let patience = random(60);
        tokio::select! {
            biased;
            () = moments(patience) => {}
            decision = limit.acquire_n(key, permits) => match decision.unwrap() {
                // The rest goes back, so that there is always something to be had.
                Decision::Allowed(allowed) if random(10) > 0 => limit.refund(key, allowed.into_receipt()).await.unwrap(),
                Decision::Allowed(_) => handed += permits,
                Decision::Denied(_) => {}
            },
        }
    }
    handed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_are_given_up_lose_no_permits() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    for text in crate::shared::SPLIT {
        let clients = [0, 1].map(|node| define(client_of(&cluster, node), text));
        let key = text;
        // Split first: what is charged before and refunded after fits only in part, and that is another matter.
        clients[0].plan(key).await.unwrap();
        let mut tasks = JoinSet::new();
        for client in &clients {
            for _ in 0..8 {
                tasks.spawn(impatient(client.clone(), key, 60));
            }
        }
        let handed: u64 = tasks.join_all().await.into_iter().sum();
        assert!(handed <= BURST, "{text}: {handed}");
        let what = format!("{text}: all but the {handed} permits handed out are there again");
        eventually(&what, async || left(&clients[0], key).await == BURST - handed).await;
        // One whose ceilings do not date from before the others gave back.
        let fresh = define(client_of(&cluster, 1), text);
        assert_eq!(take_all(&fresh, key).await, BURST - handed, "{text}");
    }
}

/// The answer has come and lies ready, and then the caller goes away without a look at it. On one thread no answer can
/// come while the call is polled.
#[tokio::test]
async fn an_answer_that_nobody_looks_at_is_given_back() {
    let cluster = Cluster::start(2, 0, Layout::Contiguous, &[]);
    let builder = client_of(&cluster, 0).runtime(tokio::runtime::Handle::current());
    let limit = define(builder, crate::shared::SPLIT[0]);
    limit.plan("hot").await.unwrap();
    for permits in [1, 100, 200] {
        let mut call = Box::pin(limit.acquire_n("hot", permits));
        // One poll sends it; then nobody polls until the answer is there.
        tokio::select! { biased; _ = &mut call => panic!("at once?"), () = std::future::ready(()) => {} }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        drop(call);
        eventually("it is given back", async || left(&limit, "hot").await == BURST).await;
    }
}

/// A turn in a queue that somebody waits for: given up before it comes, it is the next one's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_that_is_given_up_is_free_again() {
    let cluster = Cluster::start(2, 0, Layout::Contiguous, &[]);
    let limit = define(client_of(&cluster, 0), crate::shared::WHOLE[1]);
    take(&limit, "mail", 1).await;
    let wait = limit.acquire_within("mail", 1, std::time::Duration::from_secs(86_400));
    assert!(tokio::time::timeout(std::time::Duration::from_millis(200), wait).await.is_err(), "it waits for its turn");
    eventually("the turn is free", async || left(&limit, "mail").await == BURST - 1).await;
}

/// A call that is alone with its shard sends by itself. Whatever becomes of it then, it holds nobody else up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_not_polled_any_more_holds_nobody_up() {
    let server = Server::start(&[]);
    // From a pacing queue only the last one in line can be given back.
    for text in crate::shared::SPLIT {
        let limit = define(client(&server), text);
        let others = |calls: u64| {
            let limit = limit.clone();
            // On a worker of the limiter's runtime, as it has to be for a call to send by itself.
            tokio::spawn(async move {
                for _ in 0..calls {
                    let call = tokio::time::timeout(Duration::from_secs(5), limit.acquire(text));
                    assert!(call.await.expect("nobody is held up").unwrap().is_allowed(), "{text}");
                }
            })
        };
        others(1).await.unwrap();
        let sent = Arc::new(tokio::sync::Notify::new());
        let seen = Arc::new(tokio::sync::Notify::new());
        let lone = tokio::spawn({
            let (limit, sent, seen) = (limit.clone(), Arc::clone(&sent), Arc::clone(&seen));
            async move {
                let mut kept = Box::pin(limit.acquire(text));
                assert!(poll_fn(|context| Poll::Ready(kept.as_mut().poll(context).is_pending())).await, "it is sent");
                sent.notify_one();
                seen.notified().await;
                assert!(kept.await.unwrap().is_allowed(), "{text}");
                let mut given_up = Box::pin(limit.acquire(text));
                assert!(poll_fn(|context| Poll::Ready(given_up.as_mut().poll(context).is_pending())).await);
            }
        });
        sent.notified().await;
        others(3).await.unwrap();
        seen.notify_one();
        lone.await.unwrap();
        others(2).await.unwrap();
        eventually("what was given up is there again", async || left(&limit, text).await == BURST - 7).await;
    }
}
