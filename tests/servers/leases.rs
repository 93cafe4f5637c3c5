//! Permits taken ahead: none is lost and none is gained, whoever holds them when the calls stop.

use std::time::{Duration, Instant};

use crate::shared::{BURST, Cluster, Layout, Server, client, client_of, eventually, left, take};
use shardlimit::{Builder, Carry, DecidedBy, Decision, ErrorKind, Handle, Leases, Limiter, NamedLimit, Shards};
use tokio::task::JoinSet;

const MOMENT: Duration = Duration::from_millis(1);

/// Held for so long that in a test nothing comes back by itself.
fn long() -> Leases {
    Leases::new().horizon(Duration::from_secs(5)).ttl(Duration::from_secs(10))
}

fn leased(builder: Builder, text: &str, leases: Leases) -> (Limiter, NamedLimit) {
    let limiter = builder.build().unwrap();
    let limit = limiter.define_leased("api", text.parse().unwrap(), leases).unwrap();
    (limiter, limit)
}

/// So many calls of a client, some at once. What was admitted, and how much of it by leases.
async fn call(limit: &NamedLimit, key: &str, callers: usize, calls: usize) -> (u64, u64) {
    let mut tasks = JoinSet::new();
    for _ in 0..callers {
        let hot = limit.handle(key).unwrap();
        tasks.spawn(async move {
            let mut admitted = (0, 0);
            for _ in 0..calls {
                let decision = hot.acquire().await.unwrap();
                admitted.0 += u64::from(decision.is_allowed());
                admitted.1 += u64::from(decision.decided_by() == DecidedBy::Lease);
                tokio::task::yield_now().await;
            }
            admitted
        });
    }
    tasks.join_all().await.into_iter().fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
}

/// Takes what is left. Who is denied while permits are on their way into the purse, or back to the store, is not denied for
/// good.
async fn spend_all(hot: &Handle) -> u64 {
    let (mut admitted, mut last) = (0, Instant::now());
    while last.elapsed() < Duration::from_millis(300) {
        let decision = match hot.try_acquire(1).unwrap() {
            Some(decision) => decision,
            None => hot.acquire().await.unwrap(),
        };
        if decision.is_allowed() {
            (admitted, last) = (admitted + 1, Instant::now());
        } else {
            tokio::time::sleep(MOMENT).await;
        }
    }
    admitted
}

/// What a process holds is bounded by the keys that it tracks: of more than those, the store decides.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_keys_that_are_tracked_have_leases() {
    let server = Server::start(&[]);
    // Rounded up to one in each of 64 segments.
    let (_limiter, limit) = leased(client(&server).max_keys(1), "token-bucket 1000/s burst 1000", long());
    let handles: Vec<Handle> = (0..500).map(|number| limit.handle(format!("key:{number}")).unwrap()).collect();
    let mut leased = vec![false; handles.len()];
    for _ in 0..10 {
        for (hot, leased) in handles.iter().zip(&mut leased) {
            *leased |= hot.acquire().await.unwrap().decided_by() == DecidedBy::Lease;
        }
        tokio::time::sleep(10 * MOMENT).await;
    }
    let leased = leased.into_iter().filter(|leased| *leased).count();
    assert!((1..=64).contains(&leased), "{leased}");
}

/// What two clients admitted and what the store has after both gave back is the limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_returned_and_what_was_admitted_is_the_limit() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    for text in crate::shared::SPLIT {
        let clients = [0, 1].map(|node| leased(client_of(&cluster, node), text, long()));
        for number in 0..5 {
            let key = format!("{text} {number}");
            clients[0].1.plan(&key).await.unwrap();
            let (one, other) = tokio::join!(call(&clients[0].1, &key, 3, 20), call(&clients[1].1, &key, 3, 20));
            let (admitted, by_leases) = (one.0 + other.0, one.1 + other.1);
            assert!(admitted <= BURST, "{key}: {admitted}");
            assert!(by_leases > 10, "{key}: {by_leases} of {admitted} by leases: this tests nothing");
            for (limiter, _) in &clients {
                limiter.return_leases(Duration::from_secs(10)).await.unwrap();
            }
            assert_eq!(left(&clients[0].1, &key).await, BURST - admitted, "{key}: returned");
        }
    }
}

/// Nobody says that it is over: they come back by themselves, and are all there for somebody else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_held_comes_back_when_a_key_falls_quiet() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    let leases = Leases::new().horizon(Duration::from_millis(100)).ttl(Duration::from_millis(100));
    for text in crate::shared::SPLIT {
        // What the one gives back the other sees in time.
        let builder = |node| client_of(&cluster, node).ceiling(Duration::from_millis(50));
        let clients = [0, 1].map(|node| leased(builder(node), text, leases));
        clients[0].1.plan(text).await.unwrap();
        let (one, other) = tokio::join!(call(&clients[0].1, text, 3, 20), call(&clients[1].1, text, 3, 20));
        let admitted = one.0 + other.0;
        assert!(one.1 + other.1 > 10, "{text}: this tests nothing");
        let what = format!("{text}: all but {admitted} are back");
        eventually(&what, async || left(&clients[0].1, text).await == BURST - admitted).await;
        let rest = spend_all(&clients[1].1.handle(text).unwrap()).await;
        assert_eq!(rest + admitted, BURST, "{text}: and can be spent");
    }
}

/// A server that was gone took what it was given: nobody was told that it was lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_gives_back_to_a_server_that_is_gone_learns_it() {
    let mut server = Server::start(&[]);
    let (limiter, limit) = leased(client(&server), crate::shared::SPLIT[0], long());
    let (_, by_leases) = call(&limit, "hot", 3, 20).await;
    assert!(by_leases > 10, "{by_leases}: this tests nothing");
    server.kill();
    let within = Duration::from_secs(2);
    assert_eq!(limiter.return_leases(within).await.unwrap_err().kind(), ErrorKind::Unknown);
    assert_eq!(limiter.shutdown(within).await.unwrap_err().kind(), ErrorKind::Unknown);
}

/// Handles, the limit and the limiter go away while permits are held; other keys take the place of theirs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_held_comes_back_when_its_owners_are_gone() {
    let server = Server::start(&[]);
    let text = crate::shared::SPLIT[0];
    let watcher = crate::shared::define(client(&server), text);
    let leases = Leases::new().horizon(Duration::from_millis(300)).ttl(Duration::from_millis(300));
    let held_by = |admitted: u64| {
        let watcher = &watcher;
        async move |key: &str| BURST - admitted - left(watcher, key).await
    };

    // With room for one key a segment, each of the others sweeps.
    let (limiter, limit) = leased(client(&server).max_keys(64), text, leases);
    let (admitted, _) = call(&limit, "crowded", 2, 20).await;
    assert!(held_by(admitted)("crowded").await > 0, "nothing is held: this tests nothing");
    let mut others = JoinSet::new();
    for number in 0..500 {
        let limit = limit.clone();
        others.spawn(async move { take(&limit, &format!("other {number}"), 1).await });
    }
    others.join_all().await;
    eventually("a key that had to go has given back", async || held_by(admitted)("crowded").await == 0).await;

    let (admitted, _) = call(&limit, "dropped", 2, 20).await;
    assert!(held_by(admitted)("dropped").await > 0, "nothing is held: this tests nothing");
    drop((limiter, limit));
    eventually("a limit that is gone has given back", async || held_by(admitted)("dropped").await == 0).await;
    eventually("and all others", async || {
        let mut all = true;
        for number in 0..500 {
            all &= left(&watcher, &format!("other {number}")).await == BURST - 1;
        }
        all
    })
    .await;
}

/// What one thread took ahead is there for another before it is denied.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_thread_spends_what_another_has_taken() {
    let server = Server::start(&[]);
    for (number, text) in crate::shared::SPLIT.into_iter().chain([crate::shared::WHOLE[0]]).enumerate() {
        let (_limiter, limit) = leased(client(&server).prefix(format!("test-{number}")), text, long());
        let hot = limit.handle("hot").unwrap();
        let runtime = tokio::runtime::Handle::current();
        let (first, later) = (hot.clone(), runtime.clone());
        let warm_up = move || {
            let mut admitted = 0;
            // So that a slice of a lease lies in the stripe of this thread.
            while admitted < 100 {
                admitted += u64::from(later.block_on(first.acquire()).unwrap().is_allowed());
            }
            admitted
        };
        let warm = std::thread::spawn(warm_up).join().unwrap();
        let rest = std::thread::spawn(move || runtime.block_on(spend_all(&hot))).join().unwrap();
        assert_eq!(warm + rest, BURST, "{text}");
    }
}

/// What a lease paid for goes back like anything else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permit_of_a_lease_can_be_refunded() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    for text in crate::shared::SPLIT {
        let (limiter, limit) = leased(client_of(&cluster, 0), text, long());
        limit.plan(text).await.unwrap();
        let hot = limit.handle(text).unwrap();
        let (mut spent, mut refunded) = (0, 0);
        while refunded < 20 {
            let Decision::Allowed(allowed) = hot.acquire().await.unwrap() else { panic!("{text}: denied") };
            if allowed.decided_by() == DecidedBy::Lease {
                assert_eq!(allowed.receipt().permits(), 1);
                hot.refund(allowed.into_receipt()).await.unwrap();
                refunded += 1;
            } else {
                spent += 1;
                tokio::time::sleep(MOMENT).await;
            }
        }
        limiter.return_leases(Duration::from_secs(10)).await.unwrap();
        assert_eq!(left(&limit, text).await, BURST - spent, "{text}");
    }
}

/// Turns of a queue are not taken ahead: they would be somebody's who does not stand in it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pacing_queue_is_not_leased() {
    let server = Server::start(&[]);
    let (_limiter, limit) = leased(client(&server), crate::shared::WHOLE[1], long());
    let (admitted, by_leases) = call(&limit, "mail", 3, 40).await;
    assert_eq!((admitted, by_leases), (120, 0));
    assert_eq!(left(&limit, "mail").await, BURST - 120);
    assert_eq!(spend_all(&limit.handle("mail").unwrap()).await, BURST - 120);
}

#[test]
fn settings_that_do_not_fit_are_errors() {
    let ms = Duration::from_millis;
    let limiter = Limiter::builder().redis(["127.0.0.1:1"]).build().unwrap();
    let bucket = "token-bucket 1000/s burst 100";
    let cases = [
        ("horizon", bucket, Leases::new().horizon(Duration::ZERO)),
        ("horizon", bucket, Leases::new().horizon(ms(51)).ttl(ms(50))),
        ("ttl", bucket, Leases::new().ttl(ms(10_001))),
        // Four times 20 ms of it, and the horizon, are its burst.
        ("ttl", bucket, Leases::new().ttl(ms(21)).within_burst()),
        ("ttl", bucket, Leases::new().ttl(ms(22)).horizon(ms(13)).within_burst()),
        ("ttl", "leaky-bucket 1000/s capacity 100", Leases::new().ttl(ms(21)).within_burst()),
        ("within_burst", "sliding-window 1000/s", Leases::new().within_burst()),
        ("within_burst", "sliding-log 1000/s", Leases::new().within_burst()),
    ];
    for (field, text, leases) in cases {
        let error = limiter.define_leased("api", text.parse().unwrap(), leases).unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidSetting, field), "{text}, {leases:?}: {error}");
    }
    let define = |leases| limiter.define_leased("api", bucket.parse().unwrap(), leases);
    let strict = define(Leases::new().ttl(ms(20)).within_burst()).unwrap();
    assert_eq!(strict.limit().burst(), 100, "none of the errors has taken the name");
    assert!(define(Leases::new().ttl(ms(20)).within_burst()).is_ok(), "the same again is the same limit");
    let shorter = Leases::new().ttl(ms(20)).horizon(ms(19)).within_burst();
    for other in [shorter, Leases::new().ttl(ms(20)), Leases::new()] {
        assert_eq!(define(other).unwrap_err().kind(), ErrorKind::NameTaken, "{other:?}");
    }
    assert_eq!(limiter.define("api", bucket.parse().unwrap()).unwrap_err().kind(), ErrorKind::NameTaken);
    assert!(
        limiter.define_leased("queue", crate::shared::WHOLE[1].parse().unwrap(), Leases::new().within_burst()).is_ok()
    );
}

/// A client that does not split the key takes ahead from home alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_that_is_not_split_is_leased_too() {
    let cluster = Cluster::start(2, 0, Layout::Contiguous, &[]);
    let builder = || client_of(&cluster, 0).shards(Shards::Off);
    let (limiter, limit) = leased(builder(), crate::shared::WHOLE[0], long());
    let (admitted, by_leases) = call(&limit, "hot", 3, 40).await;
    assert!(admitted == 120 && by_leases > 10, "{by_leases} of {admitted} by leases");
    limiter.return_leases(Duration::from_secs(10)).await.unwrap();
    assert_eq!(left(&limit, "hot").await, BURST - 120);
}

/// One caller after the other, by key: between two calls nobody holds on to it, and all the same it is leased.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_nobody_holds_on_to_is_leased_too() {
    let server = Server::start(&[]);
    let (_limiter, limit) = leased(client(&server), "fixed-window 100000000/s", Leases::new());
    let (mut calls, mut by_lease) = (0, 0);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(1) {
        let decision = limit.acquire("hot").await.unwrap();
        assert!(decision.is_allowed(), "{decision:?} after {calls} calls");
        (calls, by_lease) = (calls + 1, by_lease + u64::from(decision.decided_by() == DecidedBy::Lease));
    }
    println!("{by_lease} of {calls} by leases");
    assert!(by_lease > calls / 2, "only {by_lease} of {calls} by leases");
}

/// What leases need of a limit they need of one that is set too; and one that has become a queue is leased no more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_that_is_set_has_to_fit_its_leases() {
    let server = Server::start(&[]);
    let leases = Leases::new().horizon(Duration::from_millis(10)).ttl(Duration::from_millis(20)).within_burst();
    let (_limiter, limit) = leased(client(&server), "token-bucket 10000/s burst 1000", leases);
    let (admitted, by_leases) = call(&limit, "hot", 2, 200).await;
    assert!(admitted == 400 && by_leases > 10, "{by_leases} of {admitted} by leases");
    let set = async |text: &str| limit.set_limit_of("hot", text.parse().unwrap(), Carry::Keep).await;
    let error = set("token-bucket 10000/s burst 899").await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidSetting, "ttl"), "{error}");
    set("pacing-queue 1000/s capacity 1000").await.unwrap();
    // What was taken ahead before that has expired by then.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let (_, by_leases) = call(&limit, "hot", 2, 20).await;
    assert_eq!(by_leases, 0, "nobody takes turns ahead");
}

/// Leases given back were turned away where more requests were under way than may be, and nobody heard of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_of_many_keys_go_back_however_few_requests_may_be_under_way() {
    const KEYS: usize = 60;
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    let (limiter, limit) = leased(client_of(&cluster, 0).max_in_flight(12), crate::shared::SPLIT[0], long());
    let (mut admitted, mut by_leases) = (Vec::new(), 0);
    for number in 0..KEYS {
        let key = format!("key:{number}");
        limit.plan(&key).await.unwrap();
        let (all, of_them) = call(&limit, &key, 1, 40).await;
        admitted.push((key, all));
        by_leases += of_them;
    }
    assert!(by_leases > 10 * KEYS as u64, "{by_leases}: this tests nothing");
    limiter.shutdown(Duration::from_secs(60)).await.unwrap();
    assert_eq!(limit.failures().unreturned, 0);
    let other = crate::shared::define(client_of(&cluster, 1), crate::shared::SPLIT[0]);
    for (key, admitted) in admitted {
        assert_eq!(left(&other, &key).await, BURST - admitted, "{key}");
    }
}

/// What is leased while shards are reset one after the other was charged to one that was as new already, and then forgotten.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_takes_nothing_of_what_comes_after_it() {
    const LIMIT: u64 = 300_000;
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    let text = format!("fixed-window {LIMIT}/365days");
    let (limiter, limit) = leased(client_of(&cluster, 0), &text, long());
    limit.plan("hot").await.unwrap();
    let hot = limit.handle("hot").unwrap();
    for round in 0..30 {
        let slow = &cluster.nodes[round % 3].server;
        slow.pause();
        let reset = tokio::spawn({
            let hot = hot.clone();
            async move { hot.reset().await }
        });
        tokio::time::sleep(5 * MOMENT).await;
        // Those who find nothing have the purse filled.
        for _ in 0..5 {
            let _ = hot.try_acquire(200).unwrap();
            tokio::time::sleep(2 * MOMENT).await;
        }
        slow.resume();
        reset.await.unwrap().unwrap();
        limiter.return_leases(Duration::from_secs(60)).await.unwrap();
        assert_eq!(left(&limit, "hot").await, LIMIT, "round {round}");
    }
}

/// Of a limit that is set by somebody who does not lease, nobody asked whether leases have room: most of its rate was lost, or they were
/// taken without any.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_that_others_set_is_leased_if_it_has_room() {
    let server = Server::start(&[]);
    let leases = Leases::new().horizon(Duration::from_millis(10)).ttl(Duration::from_millis(20)).within_burst();
    let (_limiter, limit) = leased(client(&server), "token-bucket 10000/s burst 1000", leases);
    let others = crate::shared::define(client(&server), "token-bucket 10000/s burst 1000");
    for (text, is_leased) in [
        ("token-bucket 10000/s burst 500", false),
        ("sliding-window 10000/s", false),
        ("token-bucket 10000/s burst 2000", true),
    ] {
        others.set_limit_of("hot", text.parse().unwrap(), Carry::Keep).await.unwrap();
        // It is known, and what was taken ahead before that has expired.
        eventually("it is known", async || {
            let _ = limit.acquire("hot").await.unwrap();
            limit.limit_of("hot").await.unwrap().to_string() == text
        })
        .await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        let (admitted, by_leases) = call(&limit, "hot", 2, 150).await;
        assert_eq!(by_leases > 10, is_leased, "{text}: {by_leases} of {admitted} by leases");
        assert!(is_leased || by_leases == 0, "{text}: {by_leases} by leases");
    }
}
