//! However many callers there are, they get what the limit has: never a permit more, and not one less either.

use std::time::Duration;

use crate::shared::{BURST, Cluster, Layout, client_of, define, eventually, exactly, left, race, sums, take, take_all};
use shardlimit::{DecidedBy, NamedLimit, Shards};

/// Three clients that begin at different nodes and would each split in another way.
fn disagreeing(cluster: &Cluster, text: &str) -> Vec<NamedLimit> {
    let wanted = [Shards::PerMaster, exactly(2), exactly(5)];
    let define = |(node, shards)| {
        let limiter = client_of(cluster, node).shards(shards).build().unwrap();
        limiter.define_revision("api", text.parse().unwrap(), node as u64).unwrap()
    };
    wanted.into_iter().enumerate().map(define).collect()
}

/// The plan is made while callers of all clients are under way, by whoever is first, and replaced by that of whoever defined
/// the limit last. A share on its way has permits that nobody can have for a moment: but they are not lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_start_cold_share_one_burst() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    for text in crate::shared::SPLIT.into_iter().chain(crate::shared::WHOLE) {
        let clients = disagreeing(&cluster, text);
        for key in ["one", "two", "three"] {
            let key = format!("{key} {text}");
            let mut taken = race(&clients, &key, 4).await;
            assert!(taken <= BURST, "{key}: {taken}");
            eventually("the last definition is in force", async || {
                taken += race(&clients, &key, 1).await;
                let shards = clients[2].plan(&key).await.unwrap().shards.len();
                shards == if crate::shared::SPLIT.contains(&text) { 5 } else { 1 }
            })
            .await;
            taken += race(&clients, &key, 1).await;
            assert_eq!(taken, BURST, "{key}");
            assert_eq!(left(&clients[0], &key).await, 0);

            let plans = [clients[0].plan(&key).await.unwrap(), clients[2].plan(&key).await.unwrap()];
            assert_eq!(format!("{:?}", plans[0].shards), format!("{:?}", plans[1].shards), "one plan for all clients");
            assert_eq!(sums(&plans[0]).1, BURST);
            assert_eq!(plans[0].shards.len() > 1, crate::shared::SPLIT.contains(&text));
        }
    }
}

/// The shares of a key that is split in the middle of its use are whole permits: a third of one on each of three
/// shards would be of use to nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_permit_is_lost_to_fractions() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    for text in crate::shared::SPLIT {
        for taken in [1, 2, 50, 199, 298, 299] {
            let key = format!("{text} {taken}");
            let whole = define(client_of(&cluster, 0).shards(Shards::Off), text);
            take(&whole, &key, taken).await;
            let split = define(client_of(&cluster, 1), text);
            assert_eq!(split.plan(&key).await.unwrap().shards.len(), 3);
            assert_eq!(left(&split, &key).await, BURST - taken, "{key}");
            assert_eq!(take_all(&split, &key).await, BURST - taken, "{key}");
        }
    }
}

/// A client that is told not to split follows those that did.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_split_follows_the_plan() {
    let cluster = Cluster::start(3, 0, Layout::Striped, &[]);
    let off = define(client_of(&cluster, 0).shards(Shards::Off), crate::shared::SPLIT[0]);
    let hot = off.handle("hot").unwrap();
    assert!(hot.acquire().await.unwrap().is_allowed());
    assert_eq!(hot.counts().len(), 1);

    let split = define(client_of(&cluster, 1), crate::shared::SPLIT[0]);
    assert_eq!(split.plan("hot").await.unwrap().shards.len(), 3);
    assert_eq!(race(&[off, split], "hot", 2).await, BURST - 1);
    assert_eq!(hot.counts().len(), 3);
    assert!(hot.counts().iter().all(|shard| shard.runs > 0), "{:?}", hot.counts());
}

/// A call asks its shard and one other. A client that has not heard of the others yet may be denied while the last
/// permit lies on a third one, but each denial teaches it. What another client gave back it finds as soon as its ceilings
/// count no more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_permit_is_found_within_as_many_calls_as_there_are_shards() {
    const SHARDS: u16 = 5;
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    for text in crate::shared::SPLIT {
        // All want the same number: while shares move, what is refunded to one that is no more is void.
        let [one, knows_nothing, knows_better] =
            [0, 1, 2].map(|node| define(client_of(&cluster, node).shards(exactly(SHARDS)), text));
        let last = take(&one, text, 1).await.into_receipt();
        take_all(&one, text).await;
        take_all(&knows_better, text).await;
        one.refund(text, last).await.unwrap();
        assert!(one.acquire(text).await.unwrap().is_allowed(), "who gave it back knows where it is");

        for client in [knows_nothing, knows_better] {
            one.reset(text).await.unwrap();
            let last = take(&one, text, 1).await.into_receipt();
            take_all(&one, text).await;
            take_all(&client, text).await;
            one.refund(text, last).await.unwrap();
            let mut denied = 0;
            loop {
                let decision = client.acquire(text).await.unwrap();
                match decision.decided_by() {
                    _ if decision.is_allowed() => break,
                    DecidedBy::Ceiling => tokio::time::sleep(Duration::from_millis(5)).await,
                    _ => denied += 1,
                }
                // A ceiling counts for the half of its time at the least: one may be asked twice before another one is.
                assert!(denied < 2 * SHARDS, "{text}: it does not find what is there");
            }
        }
    }
}

/// Many keys at once, each used by callers of several clients from its first call on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_keys_at_once_are_exact() {
    let cluster = Cluster::start(2, 0, Layout::Contiguous, &[]);
    let text = "token-bucket 60/day burst 60";
    let clients = [define(client_of(&cluster, 0), text), define(client_of(&cluster, 1), text)];
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..24 {
        let clients = clients.clone();
        tasks.spawn(async move { race(&clients, &format!("key {number}"), 2).await });
    }
    assert!(tasks.join_all().await.iter().all(|taken| *taken == 60));
    eventually("all of them are split", async || {
        let mut split = 0;
        for number in 0..24 {
            split += clients[0].plan(format!("key {number}")).await.unwrap().shards.len() - 1;
        }
        split == 24
    })
    .await;
}
