//! Denials in process: what a shard's last answer says, and nothing that it does not say.

use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::shared::{BURST, Cluster, Layout, Server, client, client_of, define, take, take_all};
use shardlimit::{DecidedBy, Decision, Denied, Handle, Shards};
use tokio::task::JoinSet;

fn denied(decision: Decision) -> Denied {
    match decision {
        Decision::Denied(denied) => denied,
        Decision::Allowed(allowed) => panic!("allowed: {allowed:?}"),
    }
}

fn runs(hot: &Handle) -> u64 {
    hot.counts().iter().map(|shard| shard.runs).sum()
}

/// Uses up what a key has, with one caller, until the store says so.
async fn exhaust(hot: &Handle) {
    while hot.acquire().await.unwrap().is_allowed() {}
}

/// How long to wait, by the last of many denials in a row, and the runs before them.
async fn denied_in_process(hot: &Handle, text: &str) -> (Duration, u64) {
    // A window may end, or a permit come back, at any moment: then it begins again.
    'again: for _ in 0..20 {
        exhaust(hot).await;
        let (before, mut wait) = (runs(hot), Duration::ZERO);
        for _ in 0..50 {
            match hot.acquire().await.unwrap() {
                Decision::Denied(denied) if denied.decided_by() == DecidedBy::Ceiling => wait = denied.retry_after(),
                _ => continue 'again,
            }
            assert!(wait > Duration::ZERO, "{text}");
        }
        return (wait, before);
    }
    panic!("{text}: it asks the store again and again");
}

/// Once denied, calls cost no run, until the moment that they are told; then the next one is allowed. A ceiling counts from
/// when its request was sent, so it may say so too early, by no more than that request took; the store then says the rest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denied_call_says_when_the_next_one_is_allowed() {
    let server = Server::start(&[]);
    let limits =
        ["token-bucket 5/s burst 5", "leaky-bucket 5/s capacity 5", "fixed-window 5/300ms", "sliding-window 5/400ms"];
    for text in limits.into_iter().chain(["sliding-log 5/400ms"]) {
        let hot = define(client(&server), text).handle(text).unwrap();
        for _ in 0..3 {
            let (wait, before) = denied_in_process(&hot, text).await;
            assert_eq!(runs(&hot), before, "{text}: they cost nothing");
            tokio::time::sleep(wait).await;
            let mut decision = hot.acquire().await.unwrap();
            if let Decision::Denied(early) = &decision {
                assert_eq!(early.decided_by(), DecidedBy::Store, "{text}: told to wait {wait:?}, then {early:?}");
                assert!(
                    early.retry_after() < Duration::from_millis(50),
                    "{text}: told to wait {wait:?}, then {early:?}"
                );
                tokio::time::sleep(early.retry_after()).await;
                decision = hot.acquire().await.unwrap();
            }
            assert!(decision.is_allowed(), "{text}: told to wait {wait:?}, then {decision:?}");
        }
    }
}

/// A call is judged by its own permits, not by those of the call that was denied.
/// A ceiling counts for a second at the most, but what it tells is when a permit comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denial_in_process_tells_the_whole_wait() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    for (text, least, most) in [
        ("token-bucket 10/h burst 10", 300, 360),
        ("token-bucket 180/h burst 180", 15, 60),
        ("sliding-log 5/h", 3_500, 3_600),
    ] {
        let limit = define(client_of(&cluster, 0), text);
        let hot = limit.handle(text).unwrap();
        let (wait, _) = denied_in_process(&hot, text).await;
        assert!((least..=most).contains(&wait.as_secs()), "{text}: {wait:?}");
        drop(hot);
        // Also of a key that nobody uses, as one is that a gateway asks for by name: but for a second that is not kept.
        let by_key = denied(limit.acquire(text).await.unwrap());
        assert!((least - 1..=most).contains(&by_key.retry_after().as_secs()), "{text}: {by_key:?}");
        assert!(by_key.reset_after().as_secs() >= least, "{text}: {by_key:?}");
    }
}

/// Calls that are on their way and will be denied do not make others wait for longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_denied_behind_others_waits_for_himself() {
    let server = Server::start(&[]);
    let hot = define(client(&server), "token-bucket 100/h burst 100").handle("hot").unwrap();
    exhaust(&hot).await;
    // More than are there, and less than a ceiling shuts out: each goes to the store.
    let asks: Vec<_> = (0..50).map(|_| hot.acquire_n(2)).collect();
    for decision in futures_util::future::join_all(asks).await {
        let wait = denied(decision.unwrap()).retry_after();
        assert!(wait <= Duration::from_secs(73), "{wait:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_ask_that_is_denied_leaves_room_for_small_ones() {
    let server = Server::start(&[]);
    for (number, text) in crate::shared::SPLIT.into_iter().enumerate() {
        let limit = define(client(&server).prefix(format!("test-{number}")), text);
        let hot = limit.handle("hot").unwrap();
        take(&limit, "hot", BURST - 3).await;
        if !text.starts_with("sliding") {
            // The answer to the first call said so.
            assert_eq!(denied(hot.acquire_n(5).await.unwrap()).decided_by(), DecidedBy::Ceiling, "{text}");
        }
        denied(hot.acquire_n(5).await.unwrap());
        let before = runs(&hot);
        for permits in [5, 6, BURST] {
            let denied = denied(hot.acquire_n(permits).await.unwrap());
            assert_eq!((denied.decided_by(), runs(&hot)), (DecidedBy::Ceiling, before), "{text}: {permits}");
        }
        assert!(hot.acquire_n(2).await.unwrap().is_allowed(), "{text}: 2 of 3");
        denied(hot.acquire_n(2).await.unwrap());
        assert!(hot.acquire().await.unwrap().is_allowed(), "{text}: the last");
        denied(hot.acquire().await.unwrap());
        assert!(hot.acquire_n(BURST + 1).await.is_err(), "{text}: never is an error");
    }
}

/// Who gave something back can have it at once, on whatever shard it lies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_own_refund_opens_it_at_once() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    for text in crate::shared::SPLIT.into_iter().chain([crate::shared::WHOLE[0]]) {
        let limit = define(client_of(&cluster, 0), text);
        limit.plan(text).await.unwrap();
        let hot = limit.handle(text).unwrap();
        let receipt = take(&limit, text, 2).await.into_receipt();
        take_all(&limit, text).await;
        assert_eq!(denied(hot.acquire().await.unwrap()).decided_by(), DecidedBy::Ceiling, "{text}");
        hot.refund(receipt).await.unwrap();
        assert!(hot.acquire().await.unwrap().is_allowed(), "{text}: after a refund");
        take_all(&limit, text).await;
        hot.reset().await.unwrap();
        assert!(hot.acquire().await.unwrap().is_allowed(), "{text}: after a reset");
    }
}

/// What another client gives back is seen when the ceiling counts no more, and that is no later than the setting says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_give_back_is_seen_in_time() {
    const CEILING: Duration = Duration::from_millis(200);
    let server = Server::start(&[]);
    for text in crate::shared::SPLIT.into_iter().chain([crate::shared::WHOLE[0]]) {
        let limit = define(client(&server).ceiling(CEILING), text);
        let other = define(client(&server), text);
        let hot = limit.handle(text).unwrap();
        let mut receipt = Some(take(&other, text, 2).await.into_receipt());
        take_all(&limit, text).await;
        for what in ["refund", "reset"] {
            match receipt.take() {
                Some(receipt) => other.refund(text, receipt).await.unwrap(),
                None => other.reset(text).await.unwrap(),
            }
            // What was denied before has told it until then at the latest.
            let deadline = Instant::now() + CEILING;
            loop {
                let asked = Instant::now();
                if hot.acquire().await.unwrap().is_allowed() {
                    break;
                }
                assert!(asked < deadline, "{text}: a {what} of another client is not seen after the {CEILING:?}");
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            take_all(&limit, text).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_ceilings_the_store_decides_every_call() {
    let server = Server::start(&[]);
    for text in crate::shared::SPLIT {
        let limit = define(client(&server).ceiling(Duration::ZERO), text);
        let other = define(client(&server), text);
        let hot = limit.handle(text).unwrap();
        let receipt = take(&other, text, 1).await.into_receipt();
        exhaust(&hot).await;
        for _ in 0..20 {
            let before = runs(&hot);
            assert_eq!(denied(hot.acquire().await.unwrap()).decided_by(), DecidedBy::Store, "{text}");
            assert_eq!(runs(&hot), before + 1, "{text}");
        }
        assert!(hot.try_acquire(1).unwrap().is_none(), "{text}: only the store can tell");
        assert!(limit.try_acquire(text, 1).unwrap().is_none(), "{text}: by key as well");
        other.refund(text, receipt).await.unwrap();
        assert!(hot.acquire().await.unwrap().is_allowed(), "{text}: what others gave back is there at once");
    }
}

/// Before a denial only the store can tell; after it this process can, also by a key that nobody uses any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_synchronous_call_knows_after_a_denial() {
    let server = Server::start(&[]);
    for (number, text) in crate::shared::SPLIT.into_iter().chain([crate::shared::WHOLE[0]]).enumerate() {
        let limit = define(client(&server).prefix(format!("test-{number}")).ceiling(Duration::from_secs(60)), text);
        assert!(limit.try_acquire("idle", 1).unwrap().is_none(), "{text}: nothing is known of it");
        take_all(&limit, "idle").await;
        let by_key = || limit.try_acquire("idle", 1).unwrap().map(denied);
        assert_eq!(by_key().expect(text).decided_by(), DecidedBy::Ceiling, "{text}");
        assert!(by_key().expect(text).retry_after() > Duration::ZERO, "{text}");
        // The task that sent the last call lets go of the key as well.
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(by_key().expect(text).decided_by(), DecidedBy::Ceiling, "{text}: nobody uses it");
        let hot = limit.handle("idle").unwrap();
        let by_handle = hot.try_acquire(1).unwrap().map(denied).expect(text);
        assert_eq!(by_handle.decided_by(), DecidedBy::Ceiling, "{text}: a handle on it knows as well");
        assert_eq!(runs(&hot), 0, "{text}: it was idle, so its counts begin anew");

        let hot = limit.handle("in use").unwrap();
        assert!(hot.try_acquire(1).unwrap().is_none(), "{text}");
        exhaust(&hot).await;
        assert_eq!(hot.try_acquire(1).unwrap().map(denied).expect(text).decided_by(), DecidedBy::Ceiling, "{text}");
        assert_eq!(limit.try_acquire("in use", 1).unwrap().map(denied).expect(text).decided_by(), DecidedBy::Ceiling);
    }
}

/// Asks in this order, each before any answer is awaited.
async fn at_once(hot: &Handle, asks: &[u64]) -> Vec<Decision> {
    let calls = asks.iter().map(|permits| (Box::pin(hot.acquire_n(*permits)), None));
    let mut calls: Vec<_> = calls.collect();
    for (call, decided) in &mut calls {
        if let Poll::Ready(decision) = call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            *decided = Some(decision);
        }
    }
    let mut decisions = Vec::new();
    for (call, decided) in calls {
        let decision = match decided {
            Some(decision) => decision,
            None => call.await,
        };
        decisions.push(decision.unwrap());
    }
    decisions
}

/// Calls that come while others are on their way know that those take theirs first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_at_once_get_what_is_there_for_few_runs() {
    let server = Server::start(&[]);
    for (number, text) in crate::shared::SPLIT.into_iter().enumerate() {
        let limit = define(client(&server).prefix(format!("test-{number}")).ceiling(Duration::from_secs(60)), text);
        let hot = limit.handle("hot").unwrap();
        take(&limit, "hot", BURST - 10).await;
        let before = runs(&hot);
        let decisions = at_once(&hot, &[1; 50]).await;
        assert_eq!(decisions.iter().filter(|decision| decision.is_allowed()).count(), 10, "{text}");
        // One for each that is allowed, and one that is denied, if none of them had met.
        assert!(runs(&hot) - before <= 11, "{text}: {} runs", runs(&hot) - before);
        // Of a sliding window only a denial tells.
        if !text.starts_with("sliding") {
            let in_process = decisions.iter().filter(|decision| decision.decided_by() == DecidedBy::Ceiling).count();
            assert_eq!(in_process, 40, "{text}");
        }
    }
}

/// A small ask behind a large one that is on its way: the large one may be denied, and then the small one has room.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_asks_are_not_denied_for_large_ones() {
    let server = Server::start(&[]);
    for (number, text) in crate::shared::SPLIT.into_iter().enumerate() {
        let define = || define(client(&server).prefix(format!("test-{number}")).ceiling(Duration::from_secs(60)), text);
        let (limit, other) = (define(), define());
        for asks in [[8, 2, 3], [2, 8, 3], [3, 2, 8], [7, 6, 5]] {
            let key = format!("{asks:?}");
            let hot = limit.handle(&key).unwrap();
            take(&limit, &key, BURST - 10).await;
            // This client's ceiling does not know of it.
            take(&other, &key, 5).await;
            for (permits, decision) in asks.into_iter().zip(at_once(&hot, &asks).await) {
                assert_eq!(decision.is_allowed(), permits <= 5, "{text}: {permits} of {key}: {decision:?}");
            }
        }
    }
}

/// Callers who ask as fast as they are answered: what is denied costs next to nothing, also on several shards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_overloaded_key_costs_no_more_runs_than_it_admits() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    for shards in [Shards::PerMaster, Shards::Off] {
        let builder = client_of(&cluster, 0).prefix(shards.to_string()).shards(shards);
        let limit = define(builder, "token-bucket 2000/s burst 200");
        limit.plan("hot").await.unwrap();
        let hot = limit.handle("hot").unwrap();
        let end = Instant::now() + Duration::from_secs(1);
        let mut tasks = JoinSet::new();
        for _ in 0..32 {
            let hot = hot.clone();
            tasks.spawn(async move {
                let (mut allowed, mut denied, mut in_process) = (0, 0, 0);
                while Instant::now() < end {
                    let decision = hot.acquire().await.unwrap();
                    if decision.is_allowed() {
                        allowed += 1;
                    } else {
                        denied += 1;
                        in_process += u64::from(decision.decided_by() == DecidedBy::Ceiling);
                        tokio::time::sleep(Duration::from_micros(100)).await;
                    }
                }
                (allowed, denied, in_process)
            });
        }
        let sum = |a: (u64, u64, u64), b: (u64, u64, u64)| (a.0 + b.0, a.1 + b.1, a.2 + b.2);
        let (allowed, denied, in_process) = tasks.join_all().await.into_iter().fold((0, 0, 0), sum);
        let runs = runs(&hot);
        println!("{shards}: {allowed} allowed, {denied} denied, {in_process} of them in process, {runs} runs");
        assert!(denied > allowed, "{shards}: {denied} denied: this tests nothing");
        assert!(in_process * 2 > denied, "{shards}: only {in_process} of {denied} denials in process");
        assert!(runs <= allowed, "{shards}: {runs} runs for {allowed} allowed and {denied} denied");
    }
}

/// Others are on their way behind a call that is denied, and will be denied too: they do not make it wait for longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denied_call_does_not_wait_for_those_behind_it() {
    let server = Server::start(&[]);
    let text = "token-bucket 100/h burst 100";
    let before = define(client(&server), text);
    assert!(before.acquire_n("hot", 100).await.unwrap().is_allowed());
    for builder in [client(&server), client(&server).ceiling(Duration::ZERO)] {
        // It knows of nothing yet, so its calls go to the store, the first one alone.
        let hot = define(builder, text).handle("hot").unwrap();
        // A task of its own: a worker has it look at the first answer while the second round is on its way.
        let calls = tokio::spawn(async move {
            let mut calls: Vec<_> = (0..90).map(|_| Box::pin(hot.acquire())).collect();
            let mut waits = Vec::new();
            std::future::poll_fn(|context| {
                calls.retain_mut(|call| match call.as_mut().poll(context) {
                    Poll::Ready(decision) => {
                        waits.push(denied(decision.unwrap()).retry_after());
                        false
                    }
                    Poll::Pending => true,
                });
                if calls.is_empty() { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            waits
        });
        let waits = calls.await.unwrap();
        // A permit comes back every 36 s; the spread is at most 2 ms.
        let longest = waits.iter().max().unwrap();
        assert!(*longest <= Duration::from_secs(37), "told to wait {longest:?}");
    }
}
