//! Asks above one share are gathered over shards: all or nothing.

use std::time::Duration;

use crate::shared::{BURST, Cluster, Layout, client_of, define, eventually, left, take, take_all};
use shardlimit::{Decision, ErrorKind, NamedLimit};
use tokio::task::JoinSet;

const DAY: Duration = Duration::from_secs(86_400);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ask_above_one_share_takes_parts_of_several() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    for text in crate::shared::SPLIT {
        let limit = define(client_of(&cluster, 0), text);
        assert_eq!(limit.plan(text).await.unwrap().shards.len(), 3);
        for permits in [101, 200, 250, 299, 300] {
            let receipt = take(&limit, text, permits).await.into_receipt();
            assert!(receipt.shards().count() > 1);
            assert_eq!(receipt.shards().map(|(_, permits, _)| permits).sum::<u64>(), permits);
            assert_eq!(left(&limit, text).await, BURST - permits, "{text}");
            limit.refund(text, receipt).await.unwrap();
            assert_eq!(left(&limit, text).await, BURST, "{text}: to the last permit");
        }
        let receipt = take(&limit, text, 250).await.into_receipt();
        limit.settle(text, receipt, 130).await.unwrap();
        assert_eq!(left(&limit, text).await, BURST - 130, "{text}: a part of it came back");
        limit.reset(text).await.unwrap();

        let never = limit.acquire_n(text, 301).await.unwrap_err();
        assert_eq!((never.kind(), never.field()), (ErrorKind::Never, "permits"));
        assert_eq!(limit.acquire_n(text, 0).await.unwrap_err().kind(), ErrorKind::InvalidPermits);
        assert_eq!(left(&limit, text).await, BURST);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gather_that_fails_leaves_everything_as_it_was() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    for text in crate::shared::SPLIT {
        let limit = define(client_of(&cluster, 0), text);
        limit.plan(text).await.unwrap();
        take(&limit, text, 80).await;
        for _ in 0..5 {
            let Decision::Denied(denied) = limit.acquire_n(text, 221).await.unwrap() else {
                panic!("{text}: too many")
            };
            assert!(!denied.retry_after().is_zero() && denied.retry_after() <= 366 * DAY, "{denied:?}");
        }
        assert_eq!(left(&limit, text).await, BURST - 80, "{text}");
        assert_eq!(take(&limit, text, 220).await.into_receipt().permits(), 220, "{text}: all that is left");
        assert_eq!(left(&limit, text).await, 0);
    }
}

/// Asks for `permits` until they were denied several times in a row; how often they were had.
async fn ask_often(limit: NamedLimit, key: String, permits: u64) -> u64 {
    let (mut had, mut denied) = (0, 0);
    while denied < 8 {
        match limit.acquire_n(&key, permits).await.unwrap() {
            Decision::Allowed(_) => (had, denied) = (had + 1, 0),
            Decision::Denied(refused) => {
                // A sliding window keeps a charge for up to one of its 128 parts longer.
                let longest = 366 * DAY + 366 * DAY / 128;
                assert!(refused.retry_after() <= longest, "{permits} can be had, but not so soon: {refused:?}");
                denied += 1;
            }
        }
    }
    had
}

/// Of clients that all want more than half, some get it while the key is split under them; what the others had taken
/// of it comes back. Without ceilings: those do not see for a while what another client has given back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_gather_at_once_get_whole_asks() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    for text in crate::shared::SPLIT {
        let clients = [0, 1, 2].map(|node| define(client_of(&cluster, node).ceiling(Duration::ZERO), text));
        for round in 0..4 {
            let key = format!("{round} {text}");
            let mut tasks = JoinSet::new();
            for client in &clients {
                for permits in [130, 130, 140] {
                    let (client, key) = (client.clone(), key.clone());
                    tasks.spawn(async move { (permits, ask_often(client, key, permits).await) });
                }
            }
            let had: Vec<(u64, u64)> = tasks.join_all().await;
            let handed_out: u64 = had.iter().map(|(permits, times)| permits * times).sum();
            assert!(handed_out <= BURST, "{key}: {had:?}");
            let what = format!("{key}: what was taken in vain is back, {handed_out} were handed out");
            eventually(&what, async || left(&clients[0], &key).await == BURST - handed_out).await;
            assert!(handed_out >= 260, "{key}: two would have fitted: {had:?}");
            assert_eq!(take_all(&clients[1], &key).await, BURST - handed_out, "{key}");
        }
    }
}
