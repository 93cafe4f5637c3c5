//! Keys that are split, and that nobody uses: all but the last few are packed, and go on where they were when they are called again.

use std::time::{Duration, Instant};

use crate::shared::{
    BURST, Cluster, Layout, SPLIT, client_of, eventually, left, on_master, race, sums, take, take_all,
};
use shardlimit::{Builder, DecidedBy, FailurePolicy, Handle, NamedLimit, Plan, Shards};
use tokio::task::JoinSet;

/// Far more than stay whole.
const OTHERS: usize = 1_000;

fn client(cluster: &Cluster) -> Builder {
    client_of(cluster, 0).max_keys(4 * OTHERS)
}

/// One whose keys are split, and beside which others are.
async fn define(builder: Builder, text: &str) -> NamedLimit {
    let limiter = builder.prefix(text.replace([' ', '/'], "-")).build().unwrap();
    let limit = limiter.define_revision("api", text.parse().unwrap(), 1).unwrap();
    for_others(&limit, async |limit, key| drop(limit.plan(key).await.unwrap())).await;
    limit
}

async fn for_others<F: Future<Output = ()> + Send>(
    limit: &NamedLimit,
    call: impl FnOnce(NamedLimit, String) -> F + Copy + Send + 'static,
) {
    let mut tasks = JoinSet::new();
    for caller in 0..50 {
        let limit = limit.clone();
        tasks.spawn(async move {
            for number in (caller..OTHERS).step_by(50) {
                call(limit.clone(), format!("other {number}")).await;
            }
        });
    }
    tasks.join_all().await;
}

/// Calls others, who need the room of those that nobody calls. Of 64 places that a key may lie in, the emptiest sees a few of them each time.
async fn call_others(limit: &NamedLimit) {
    for _ in 0..3 {
        for_others(limit, async |limit, key| drop(limit.acquire(key).await.unwrap())).await;
    }
}

/// A key that was packed by now, and is in use again: its plan is known, and nothing was counted or asked since. None if a task still
/// had it, as one has that looks after its plan.
fn unpacked(limit: &NamedLimit, key: &str) -> Option<Handle> {
    let handle = limit.handle(key).unwrap();
    assert_eq!(handle.counts().len(), 3, "{limit:?}: its plan was forgotten");
    Some(handle).filter(|handle| runs(handle) == 0)
}

/// Has a key packed. It was unpacked since; nobody was asked for anything.
async fn pack(limit: &NamedLimit, key: &str) {
    eventually("it is packed", async || {
        call_others(limit).await;
        unpacked(limit, key).is_some()
    })
    .await;
}

fn runs(handle: &Handle) -> u64 {
    handle.counts().iter().map(|shard| shard.runs).sum()
}

fn grants(plan: &Plan) -> Vec<String> {
    plan.shards.iter().map(|shard| shard.grant.clone()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_was_packed_goes_on_by_its_plan_and_asks_nobody_for_it() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    for text in SPLIT {
        let limit = define(client(&cluster), text).await;
        let before = limit.plan("hot").await.unwrap();
        let mut taken = 0;
        eventually("it is packed and called again within a second", async || {
            let begun = Instant::now();
            // Home is asked, and so is everybody else.
            assert_eq!(left(&limit, "hot").await, BURST - taken, "{text}");
            call_others(&limit).await;
            let Some(hot) = unpacked(&limit, "hot") else { return false };
            assert!(hot.acquire().await.unwrap().is_allowed());
            taken += 1;
            let is_quick = begun.elapsed() < Duration::from_millis(900);
            assert!(!is_quick || runs(&hot) == 1, "{text}: {:?} for one call", hot.counts());
            is_quick
        })
        .await;
        assert_eq!(grants(&limit.plan("hot").await.unwrap()), grants(&before), "{text}");
        assert_eq!(take_all(&limit, "hot").await, BURST - taken, "{text}");
    }
}

/// What it knows may be long past: it has to wait for home's word, wherever its call goes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_was_packed_for_three_seconds_hears_home_first() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    let limit = define(client(&cluster), SPLIT[0]).await;
    for _ in 0..3 {
        let home = limit.plan("hot").await.unwrap().shards[0].slot;
        pack(&limit, "hot").await;
        tokio::time::sleep(Duration::from_millis(3_100)).await;
        call_others(&limit).await;
        let Some(hot) = unpacked(&limit, "hot") else { panic!("nobody has used it") };
        assert!(hot.acquire().await.unwrap().is_allowed());
        let counts = hot.counts();
        let of_home = counts.iter().find(|shard| shard.slot == home).unwrap();
        assert_eq!((of_home.runs - of_home.allowed, runs(&hot)), (1, 2), "{counts:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exhausted_key_that_is_packed_is_denied_in_process() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    for text in SPLIT {
        let limit = define(client(&cluster), text).await;
        limit.plan("hot").await.unwrap();
        assert_eq!(take_all(&limit, "hot").await, BURST, "{text}");
        eventually("it is denied while it is packed", async || {
            // Every shard has said so, and home not long ago.
            assert_eq!(take_all(&limit, "hot").await, 0, "{text}");
            call_others(&limit).await;
            let denied = limit.try_acquire("hot", 1).unwrap();
            let decided = denied.map(|decision| (decision.is_allowed(), decision.decided_by()));
            unpacked(&limit, "hot").is_some() && decided == Some((false, DecidedBy::Ceiling))
        })
        .await;
    }
}

/// Each shard is out of reach: what it granted before the key was packed is what this process goes by.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_are_packed_go_on_at_what_they_had_lately() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    let policy = FailurePolicy::Local { ratio: 0.5 };
    // Measured over a minute, which no test lasts.
    let text = "token-bucket 60000/min burst 60000";
    let limit = define(client(&cluster).on_failure(policy), text).await;
    let keys = ["one", "two", "three"];
    for key in keys {
        limit.plan(key).await.unwrap();
        for _ in 0..6 {
            take(&limit, key, 1_000).await;
            // Calls that come closer together share a shard.
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    }
    for key in keys {
        pack(&limit, key).await;
    }
    call_others(&limit).await;
    let limit = limit.deadline(Duration::from_millis(50));
    cluster.nodes.iter().for_each(|node| node.server.pause());
    let mut allowed = [0; 3];
    eventually("every key is served without its shards", async || {
        for (key, allowed) in keys.iter().zip(&mut allowed) {
            let decision = limit.acquire(key).await.unwrap();
            *allowed += u64::from(decision.is_allowed() && decision.decided_by() == DecidedBy::Fallback);
        }
        allowed.iter().all(|allowed| *allowed >= 5)
    })
    .await;
    cluster.nodes.iter().for_each(|node| node.server.resume());
}

/// Nobody else knows of its shares.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_home_that_was_deleted_while_its_key_was_packed_is_told_again() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    for text in SPLIT {
        let limit = define(client(&cluster), text).await;
        let before = limit.plan("hot").await.unwrap();
        pack(&limit, "hot").await;
        call_others(&limit).await;
        assert_eq!(on_master::<u8>(&cluster, &before.shards[0], "DEL"), 1);
        let mut taken = 0;
        eventually("home is there again", async || {
            taken += u64::from(limit.acquire("hot").await.unwrap().is_allowed());
            on_master::<u8>(&cluster, &before.shards[0], "EXISTS") == 1
        })
        .await;
        let after = limit.plan("hot").await.unwrap();
        assert_eq!(grants(&after)[1..], grants(&before)[1..], "{text}: what was lent stays lent");
        assert_eq!(sums(&after), (BURST, BURST));
        // What home had of its own is lost, as it is when its client was not idle.
        assert_eq!(take_all(&limit, "hot").await, BURST - before.shards[0].burst - taken, "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_plan_is_learned_by_one_whose_key_was_packed() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    for text in SPLIT {
        let limit = define(client(&cluster), text).await;
        limit.plan("hot").await.unwrap();
        pack(&limit, "hot").await;
        call_others(&limit).await;
        let limiter = client(&cluster).prefix(text.replace([' ', '/'], "-")).shards(Shards::Off);
        let other = limiter.build().unwrap().define_revision("api", text.parse().unwrap(), 2).unwrap();
        let mut taken = 0;
        eventually("its shares came home", async || {
            taken += u64::from(other.acquire("hot").await.unwrap().is_allowed());
            other.plan("hot").await.unwrap().shards.len() == 1
        })
        .await;
        assert!(unpacked(&limit, "hot").is_some(), "{text}: nobody has used it here");
        taken += u64::from(limit.acquire("hot").await.unwrap().is_allowed());
        assert_eq!(taken + race(&[limit, other], "hot", 2).await, BURST, "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receipts_of_keys_that_were_packed_are_good() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    for text in SPLIT {
        let limit = define(client(&cluster), text).await;
        limit.plan("hot").await.unwrap();
        let mut receipts = Vec::new();
        for _ in 0..6 {
            receipts.push(take(&limit, "hot", 10).await.into_receipt());
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        pack(&limit, "hot").await;
        call_others(&limit).await;
        for receipt in receipts {
            limit.refund("hot", receipt).await.unwrap();
        }
        assert_eq!(left(&limit, "hot").await, BURST, "{text}");
    }
}

/// However many others need room: one that is held by a handle, and one that is called again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_in_use_stays_as_it_is() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    let limit = define(client(&cluster), SPLIT[0]).await;
    limit.plan("hot").await.unwrap();
    let hot = limit.handle("hot").unwrap();
    let before = runs(&hot);
    assert!(before > 0);
    call_others(&limit).await;
    assert_eq!(runs(&limit.handle("hot").unwrap()), before);
    drop(hot);
    // Whoever is looked for all the time is none of those that have not been for the longest time.
    for calls in 1..=20 {
        assert!(limit.acquire("hot").await.unwrap().is_allowed());
        for number in 0..16 {
            drop(limit.acquire(format!("other {}", (calls * 16 + number) % OTHERS as u64)).await);
        }
        assert!(runs(&limit.handle("hot").unwrap()) >= before + calls, "after {calls} calls");
    }
}
