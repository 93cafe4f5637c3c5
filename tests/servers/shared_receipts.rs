//! What was charged on a shared store can be given back, corrected and looked at, whether the key is split or not.

use crate::shared::{BURST, Cluster, Layout, client_of, define, left, lent, take, take_all};
use shardlimit::{DecidedBy, ErrorKind, NamedLimit, Shards};

async fn goes_back_and_forth(limit: &NamedLimit, key: &str) {
    let receipt = take(limit, key, 10).await.into_receipt();
    assert_eq!((receipt.permits(), left(limit, key).await), (10, BURST - 10));
    limit.refund(key, receipt).await.unwrap();
    assert_eq!(left(limit, key).await, BURST, "{limit:?}: refunded");

    let receipt = take(limit, key, 10).await.into_receipt();
    limit.settle(key, receipt, 3).await.unwrap();
    assert_eq!(left(limit, key).await, BURST - 3, "{limit:?}: it was cheaper");
    let receipt = take(limit, key, 5).await.into_receipt();
    limit.settle(key, receipt, 9).await.unwrap();
    assert_eq!(left(limit, key).await, BURST - 12, "{limit:?}: it was dearer");
    let receipt = take(limit, key, 5).await.into_receipt();
    limit.settle(key, receipt, 5).await.unwrap();
    assert_eq!(left(limit, key).await, BURST - 17, "{limit:?}: it was as thought");

    limit.reset(key).await.unwrap();
    assert_eq!(left(limit, key).await, BURST);
    assert_eq!(take_all(limit, key).await, BURST, "{limit:?}: as new after a reset");
    limit.reset(key).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn charges_are_refunded_settled_and_reset() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    for text in crate::shared::SPLIT {
        for shards in [Shards::PerMaster, Shards::Off] {
            let limit = define(client_of(&cluster, 0).prefix(shards.to_string()).shards(shards), text);
            let split = limit.plan(text).await.unwrap().shards.len() > 1;
            assert_eq!(split, shards == Shards::PerMaster);
            goes_back_and_forth(&limit, text).await;
            let peek = limit.peek(text).await.unwrap();
            assert_eq!((peek.remaining().exact, peek.decided_by()), (!split, DecidedBy::Store));
        }
    }
    let log = define(client_of(&cluster, 0), crate::shared::WHOLE[0]);
    goes_back_and_forth(&log, "log").await;
}

/// What one share can't pay the others do: otherwise a late correction lets more through than the limit has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settlement_above_one_share_is_charged_in_full() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    for text in crate::shared::SPLIT {
        let limit = define(client_of(&cluster, 0), text);
        assert_eq!(lent(&limit.plan(text).await.unwrap()).len(), 2);
        let receipt = take(&limit, text, 1).await.into_receipt();
        limit.settle(text, receipt, 250).await.unwrap();
        assert_eq!(left(&limit, text).await, BURST - 250, "{text}");
        assert_eq!(take_all(&limit, text).await, BURST - 250, "{text}");
    }
}

/// Only the tail can leave a queue: whoever stands behind keeps his turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tail_of_a_pacing_queue_can_leave() {
    let cluster = Cluster::start(2, 0, Layout::Contiguous, &[]);
    let limit = define(client_of(&cluster, 0), crate::shared::WHOLE[1]);
    let first = take(&limit, "mail", 1).await.into_receipt();
    let last = take(&limit, "mail", 1).await;
    assert!(!last.wait().is_zero());
    limit.refund("mail", first).await.unwrap();
    assert_eq!(left(&limit, "mail").await, BURST - 2, "somebody stands behind it");
    limit.refund("mail", last.into_receipt()).await.unwrap();
    assert_eq!(left(&limit, "mail").await, BURST - 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_receipts_change_nothing() {
    let cluster = Cluster::start(2, 0, Layout::Contiguous, &[]);
    let limiter = client_of(&cluster, 0).build().unwrap();
    let limit = limiter.define("api", crate::shared::SPLIT[0].parse().unwrap()).unwrap();
    let namesake = limiter.define("other", crate::shared::SPLIT[0].parse().unwrap()).unwrap();
    let local = shardlimit::Limiter::local().define("api", crate::shared::SPLIT[0].parse().unwrap()).unwrap();
    for key in ["mine", "yours"] {
        take(&limit, key, 50).await;
        take(&namesake, key, 50).await;
    }
    let foreign = [
        take(&limit, "yours", 5).await.into_receipt(),
        take(&namesake, "mine", 5).await.into_receipt(),
        take(&local, "mine", 5).await.into_receipt(),
    ];
    for receipt in foreign {
        assert_eq!(limit.refund("mine", receipt).await.unwrap_err().kind(), ErrorKind::ForeignReceipt);
    }
    let foreign = take(&namesake, "mine", 5).await.into_receipt();
    assert_eq!(limit.settle("mine", foreign, 50).await.unwrap_err().kind(), ErrorKind::ForeignReceipt);
    assert_eq!(left(&limit, "mine").await, BURST - 50);
    assert_eq!(left(&limit, "yours").await, BURST - 55);
    assert_eq!(left(&namesake, "mine").await, BURST - 60);
}

/// A receipt is good where the key was split after the charge: home is home under any plan. It has passed on two thirds
/// of the charge with its shares, so at least the third that is left fits back, and never more than was charged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receipts_outlive_the_split() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    for text in crate::shared::SPLIT {
        let off = define(client_of(&cluster, 0).shards(Shards::Off), text);
        let receipt = take(&off, text, 60).await.into_receipt();
        let split = define(client_of(&cluster, 1), text);
        assert_eq!(split.plan(text).await.unwrap().shards.len(), 3);
        assert_eq!(left(&split, text).await, BURST - 60);
        off.refund(text, receipt).await.unwrap();
        let now = left(&split, text).await;
        assert!((BURST - 40..=BURST).contains(&now), "{text}: {now}");
    }
}

/// The process forgot the key for the sake of others: its receipts are good all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receipts_outlive_what_the_process_remembers() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    let limit = define(client_of(&cluster, 0).max_keys(1), crate::shared::SPLIT[0]);
    limit.plan("hot").await.unwrap();
    let mut receipts = Vec::new();
    for _ in 0..9 {
        receipts.push(take(&limit, "hot", 1).await.into_receipt());
    }
    for receipt in receipts {
        for key in 0..300 {
            limit.peek(format!("other {key}")).await.unwrap();
        }
        limit.refund("hot", receipt).await.unwrap();
    }
    assert_eq!(left(&define(client_of(&cluster, 1), crate::shared::SPLIT[0]), "hot").await, BURST);
}
