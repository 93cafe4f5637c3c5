//! Which shard a call asks first: exact turns, the emptiest, or a choice of the user's own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::shared::{BURST, Cluster, Layout, client_of, define, take, take_all};
use shardlimit::{Candidates, Handle, LeastLoaded, PowerOfTwo, RoundRobin, Selector};

fn allowed(hot: &Handle) -> Vec<u64> {
    hot.counts().iter().map(|shard| shard.allowed).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn round_robin_takes_exact_turns() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    for text in crate::shared::SPLIT {
        let limit = define(client_of(&cluster, 0).selector(RoundRobin), text);
        limit.plan(text).await.unwrap();
        let hot = limit.handle(text).unwrap();
        assert_eq!(allowed(&hot), [0, 0, 0]);
        for turn in 1..=50 {
            for _ in 0..3 {
                // Longer than calls share a turn.
                tokio::time::sleep(Duration::from_millis(3)).await;
                assert!(hot.acquire().await.unwrap().is_allowed());
            }
            assert_eq!(allowed(&hot), [turn; 3], "{text}");
        }
        assert_eq!(take_all(&limit, text).await, BURST - 150);
        assert_eq!(allowed(&hot), [100; 3], "{text}: all of every share");
    }
}

/// Calls that come together stay with one shard, but not beyond what it holds: a burst that all shards together can grant is granted,
/// also where nothing is known of them yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_finds_what_all_shards_have() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    for text in crate::shared::SPLIT {
        let limit = define(client_of(&cluster, 0), text);
        limit.plan(text).await.unwrap();
        let hot = limit.handle(text).unwrap();
        let decided = futures_util::future::join_all((0..BURST - 10).map(|_| hot.acquire())).await;
        let denied = decided.into_iter().filter(|decision| !decision.as_ref().unwrap().is_allowed()).count();
        assert_eq!(denied, 0, "{text}: {:?}", hot.counts());
    }
}

/// Two of three shards are empty: those who look before they ask go to the third, and never to the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn least_loaded_asks_where_permits_are() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    for text in crate::shared::SPLIT {
        let limit = define(client_of(&cluster, 0).selector(LeastLoaded), text);
        limit.plan(text).await.unwrap();
        let hot = limit.handle(text).unwrap();
        for _ in 0..150 {
            assert!(hot.acquire().await.unwrap().is_allowed());
        }
        let (most, least) = (*allowed(&hot).iter().max().unwrap(), *allowed(&hot).iter().min().unwrap());
        assert!(most - least <= 1, "{text}: it levels them out: {:?}", allowed(&hot));
        // A whole share at once makes one shard the emptiest.
        let receipt = take(&limit, text, 50).await.into_receipt();
        let emptied = receipt.shards().next().expect("a shard").0;
        let before = hot.counts();
        for _ in 0..99 {
            assert!(hot.acquire().await.unwrap().is_allowed());
        }
        for (was, now) in before.iter().zip(hot.counts()) {
            assert_eq!(now.denied, was.denied, "{text}: nobody was sent to an empty shard");
            assert!(now.slot != emptied || now.allowed == was.allowed, "{text}: {:?}", hot.counts());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn power_of_two_finds_what_is_there() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    for text in crate::shared::SPLIT {
        let limit = define(client_of(&cluster, 0).selector(PowerOfTwo), text);
        limit.plan(text).await.unwrap();
        let hot = limit.handle(text).unwrap();
        for _ in 0..150 {
            assert!(hot.acquire().await.unwrap().is_allowed());
        }
        assert!(allowed(&hot).iter().all(|allowed| (30..=70).contains(allowed)), "{text}: {:?}", allowed(&hot));
        assert_eq!(take_all(&limit, text).await, 150, "{text}");
        assert_eq!(allowed(&hot), [100; 3]);
    }
}

/// Counts its calls and answers nonsense.
struct Nonsense(Arc<AtomicU64>);

impl Selector for Nonsense {
    fn select(&self, candidates: &Candidates<'_>) -> usize {
        let call = self.0.fetch_add(1, Ordering::Relaxed);
        assert_eq!(candidates.len(), 3);
        // None of these is out of reach of a curious selector.
        assert!(candidates.ceiling(usize::MAX) <= candidates.burst(usize::MAX));
        assert_eq!(candidates.waiting(7), 0, "calls come one by one here");
        [usize::MAX, 3, 1_000_003, 0][call as usize % 4]
    }
}

/// Always the last one, as a user may want it.
struct Last;

impl Selector for Last {
    fn select(&self, candidates: &Candidates<'_>) -> usize {
        candidates.len() - 1
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_selector_of_ones_own_is_asked_and_does_no_harm() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    let asked = Arc::new(AtomicU64::new(0));
    let limit = define(client_of(&cluster, 0).selector(Nonsense(Arc::clone(&asked))), crate::shared::SPLIT[0]);
    limit.plan("nonsense").await.unwrap();
    assert_eq!(take_all(&limit, "nonsense").await, BURST);
    assert!(asked.load(Ordering::Relaxed) >= BURST - 5, "{asked:?}");

    let limit = define(client_of(&cluster, 0).selector(Last), crate::shared::SPLIT[0]);
    limit.plan("last").await.unwrap();
    let hot = limit.handle("last").unwrap();
    for _ in 0..60 {
        assert!(hot.acquire().await.unwrap().is_allowed());
    }
    // Now and then home is asked all the same, so that it can tell of another plan.
    let counts = allowed(&hot);
    assert!(counts[1] == 0 && counts[2] >= 55, "{counts:?}");
    assert_eq!(take_all(&limit, "last").await, BURST - 60, "who is denied there hops to another one");
}
