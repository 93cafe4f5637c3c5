//! Every call on counters ends by its deadline, whatever the server does and whatever runtime the caller is on.

use std::time::{Duration, Instant};

use crate::shared::{Cluster, Layout, PARTIAL, Server, client, client_of, eventually};
use pollster::block_on;
use shardlimit::counter::{
    Added, ApproximateCounters, CounterSettings, Counters, DistinctCounters, SlidingCounters, Unanswered,
};
use shardlimit::{BreakerForce, Builder, Error, ErrorKind, Limiter};

const DAY: Duration = Duration::from_secs(86_400);
const DEADLINE: Duration = Duration::from_millis(50);
/// Far more than a deadline on a busy machine, far less than a request may take.
const HANGS: Duration = Duration::from_secs(5);

/// One set of each kind.
struct All {
    totals: Counters,
    split: Counters,
    events: SlidingCounters,
    values: DistinctCounters,
    about: ApproximateCounters,
}

/// A call, in one word.
type Call = fn(&All) -> Result<(), Error>;

/// What each says of its own accord, on the thread of a caller who has no runtime.
const LOOKS: [(&str, Call); 6] = [
    ("get", |all| block_on(all.totals.get("k")).map(drop)),
    ("get_many", |all| block_on(all.totals.get_many(["k", "l"])).into_iter().try_for_each(|total| total.map(drop))),
    ("get of several shards", |all| block_on(all.split.get("k")).map(drop)),
    ("sliding get", |all| block_on(all.events.get("k")).map(drop)),
    ("distinct get", |all| block_on(all.values.get("k")).map(drop)),
    ("approximate get", |all| block_on(all.about.get("k")).map(drop)),
];
const CHANGES: [(&str, Call); 9] = [
    ("add_within", |all| block_on(all.totals.add_within("k", 1, 100)).map(drop)),
    ("reset", |all| block_on(all.totals.reset("k"))),
    ("reset of several shards", |all| block_on(all.split.reset("k"))),
    ("sliding add", |all| block_on(all.events.add("k", 1)).map(drop)),
    ("sliding clear", |all| block_on(all.events.clear("k"))),
    ("distinct add", |all| block_on(all.values.add_many("k", ["a", "b", "c"])).map(drop)),
    ("distinct clear", |all| block_on(all.values.clear("k"))),
    ("approximate add", |all| block_on(all.about.add("k", "a"))),
    ("approximate clear", |all| block_on(all.about.clear("k"))),
];

impl All {
    fn of(limiter: &Limiter) -> Self {
        let settings = CounterSettings::new(DAY);
        Self {
            totals: limiter.counters("totals", settings.clone()).unwrap(),
            split: limiter.counters("split", settings.shards(3)).unwrap(),
            events: limiter.sliding_counters("events", [DAY]).unwrap(),
            values: limiter.distinct_counters("values", DAY, 3).unwrap(),
            about: limiter.approximate_counters("about", DAY).unwrap(),
        }
    }

    fn late(&self) -> u64 {
        let Self { totals, split, events, values, about } = self;
        let all =
            [totals.unanswered(), split.unanswered(), events.unanswered(), values.unanswered(), about.unanswered()];
        all.iter().map(|Unanswered { late, .. }| late).sum()
    }
}

/// A request may take longer than any test.
fn hurried(builder: Builder) -> Limiter {
    builder.timeout(Duration::from_secs(60)).deadline(DEADLINE).build().unwrap()
}

/// A call has to end in an error, and soon.
fn fails(all: &All, (name, call): (&str, Call)) -> Error {
    let begun = Instant::now();
    let error = call(all).expect_err(name);
    assert!(begun.elapsed() < HANGS, "{name} took {:?}", begun.elapsed());
    error
}

/// What was sent and has no answer may have been done; callers learn that by their deadline.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_holds_nobody_up() {
    let server = Server::start(&[]);
    let limiter = hurried(client(&server));
    limiter.ready(HANGS).await.unwrap();
    // Otherwise its breaker would see to it that nothing is sent.
    limiter.force_breaker(&format!("127.0.0.1:{}", server.port), BreakerForce::Closed).unwrap();
    let all = All::of(&limiter);
    eventually("each has an answer", async || LOOKS.iter().chain(&CHANGES).all(|(_, call)| call(&all).is_ok())).await;
    let late = all.late();
    server.pause();
    tokio::task::block_in_place(|| {
        for call in LOOKS {
            let error = fails(&all, call);
            assert_eq!(error.kind(), ErrorKind::Unknown, "{}: {error}", call.0);
            assert!(call.0 == "get_many" || error.to_string().contains("nothing was changed"), "{}: {error}", call.0);
        }
        for call in CHANGES {
            let error = fails(&all, call);
            assert_eq!(error.kind(), ErrorKind::Unknown, "{}: {error}", call.0);
        }
    });
    // Of two keys at once each counts.
    assert_eq!(all.late() - late, LOOKS.len() as u64 + 1 + CHANGES.len() as u64);
    server.resume();
    eventually("each has an answer again", async || LOOKS.iter().chain(&CHANGES).all(|(_, call)| call(&all).is_ok()))
        .await;
}

/// What could not be sent by the deadline is not sent later, when its caller has been told that it was not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_too_late_to_be_sent_is_never_sent() {
    let server = Server::start(&[]);
    // It takes connections, and says nothing on them.
    server.pause();
    let all = All::of(&hurried(client(&server)));
    tokio::task::block_in_place(|| {
        for call in LOOKS.iter().chain(&CHANGES) {
            let error = fails(&all, *call);
            assert_eq!(error.kind(), ErrorKind::NotSent, "{}: {error}", call.0);
        }
    });
    server.resume();
    eventually("it answers", async || all.totals.get("k").await == Ok(0)).await;
    tokio::time::sleep(4 * DEADLINE).await;
    let keys: Vec<Vec<u8>> = redis::cmd("KEYS").arg("*{*").query(&mut server.connection()).unwrap();
    assert!(keys.is_empty(), "{} keys were made", keys.len());
}

/// Of many keys, those on masters that answer have their totals, at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_hangs_hides_only_what_it_has() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &PARTIAL);
    let limiter = hurried(client_of(&cluster, 0));
    limiter.ready(HANGS).await.unwrap();
    let settings = CounterSettings::new(DAY);
    let (totals, split) = (limiter.counters("a", settings.clone()), limiter.counters("b", settings.shards(48)));
    let (totals, split) = (totals.unwrap(), split.unwrap());
    let keys: Vec<String> = (0..60).map(|key| format!("key:{key}")).collect();
    for added in totals.add_many(keys.iter().map(|key| (key, 1))).await {
        let _ = added.unwrap();
    }
    totals.flush(HANGS).await.unwrap();
    let _ = split.add("k", 1).await.unwrap();
    split.flush(HANGS).await.unwrap();

    let victim = &cluster.nodes[1].server;
    victim.pause();
    let begun = Instant::now();
    let answers = totals.get_many(&keys).await;
    let error = split.get("k").await.unwrap_err();
    let took = begun.elapsed();
    victim.resume();
    assert!(took < HANGS, "{took:?}");
    let (known, unknown): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    assert!(known.len() >= 20 && unknown.len() >= 5, "{} and {}", known.len(), unknown.len());
    assert!(known.iter().all(|total| *total == Ok(1)));
    // A part of a sum is no answer.
    assert!(matches!(error.kind(), ErrorKind::Unknown | ErrorKind::NotSent), "{error}");
    eventually("all are known", async || totals.get_many(&keys).await.iter().all(|total| *total == Ok(1))).await;
    eventually("the sum is known", async || split.get("k").await == Ok(1)).await;
}

/// A clone has a deadline of its own, and whoever has less time than those before him does not wait for theirs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_may_have_a_deadline_of_its_own() {
    let server = Server::start(&[]);
    // A minute, unless told otherwise.
    let counters = client(&server).build().unwrap().counters("clicks", CounterSettings::new(DAY)).unwrap();
    assert_eq!(counters.add("k", 1).await.unwrap(), Added::Counted { total: Some(1) });
    server.pause();
    let patient = tokio::spawn({
        let counters = counters.clone();
        async move { [counters.add("k", 1).await, counters.add("k", 1).await] }
    });
    eventually("the first is out", async || counters.undelivered() == 1).await;
    let hurried = counters.deadline(DEADLINE);
    let begun = Instant::now();
    assert_eq!(hurried.add("k", 10).await.unwrap(), Added::Queued);
    assert_eq!(hurried.get("k").await.unwrap_err().kind(), ErrorKind::Unknown);
    assert!(begun.elapsed() < HANGS, "{:?}", begun.elapsed());
    assert!(!patient.is_finished());
    server.resume();
    assert!(patient.await.unwrap().iter().all(|added| matches!(added, Ok(Added::Counted { .. }))));
    counters.flush(HANGS).await.unwrap();
    assert_eq!(counters.get("k").await.unwrap(), 13);
}
