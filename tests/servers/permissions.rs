//! The rule that docs/operations.md gives for a user: the library does all it can with it, and needs every word of it.

use std::time::Duration;

use crate::shared::{
    BURST, Cluster, Layout, SPLIT, Server, WHOLE, candid, define, eventually, left, race, take, take_all,
};
use redis::{Value, cmd};
use shardlimit::counter::{CounterSettings, Within};
use shardlimit::{Carry, Error, ErrorKind, Leases, Limiter, NamedLimit};

const PASSWORD: &str = "pa:ss@word";
const LONG: Duration = Duration::from_secs(10);

/// As it is written down, from the keys on.
fn rule() -> Vec<&'static str> {
    let text = include_str!("../../docs/operations.md").split("```");
    let rule = text.into_iter().find_map(|block| block.strip_prefix("text\nACL SETUSER gateway on >secret"));
    let words: Vec<&str> = rule.expect("the rule").split_ascii_whitespace().collect();
    assert_eq!(words[..2], ["resetchannels", "~shardlimit:*"]);
    words
}

/// Nothing is known of a server's scripts afterwards, nor of what was denied before.
fn set_user(connection: &mut redis::Connection, rule: &[&str]) {
    cmd("ACL").arg("DELUSER").arg("gateway").exec(connection).unwrap();
    cmd("SCRIPT").arg("FLUSH").exec(connection).unwrap();
    cmd("ACL").arg("LOG").arg("RESET").exec(connection).unwrap();
    cmd("CONFIG").arg("RESETSTAT").exec(connection).unwrap();
    let password = format!(">{PASSWORD}");
    cmd("ACL").arg("SETUSER").arg("gateway").arg("on").arg(password).arg(rule).exec(connection).unwrap();
}

fn cluster_with(rule: &[&str]) -> Cluster {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    set_everywhere(&cluster, rule);
    cluster
}

fn set_everywhere(cluster: &Cluster, rule: &[&str]) {
    for node in &cluster.nodes {
        set_user(&mut node.connection(), rule);
    }
}

fn limiter(port: u16, timeout: Duration) -> Limiter {
    let url = format!("redis://gateway:pa%3Ass%40word@127.0.0.1:{port}");
    candid(Limiter::builder().redis([url]).timeout(timeout)).build().unwrap()
}

fn impatient(cluster: &Cluster) -> NamedLimit {
    let limiter = limiter(cluster.nodes[0].server.port, Duration::from_secs(1));
    limiter.define("api", SPLIT[0].parse().unwrap()).unwrap()
}

/// What servers refused anybody since they were told of the user.
fn denials(cluster: &Cluster) -> Vec<Value> {
    cluster.nodes.iter().flat_map(|node| node.ask::<Vec<Value>>(cmd("ACL").arg("LOG"))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_or_a_user_with_few_rights_is_enough() {
    let server = Server::start(&[]);
    set_user(&mut server.connection(), &rule());
    cmd("CONFIG").arg("SET").arg("requirepass").arg("secret").exec(&mut server.connection()).unwrap();
    let url = format!("redis://:secret@127.0.0.1:{}", server.port);
    let by_password = define(candid(Limiter::builder().redis([url]).timeout(LONG)), SPLIT[0]);
    let by_user = limiter(server.port, LONG).define("api", SPLIT[0].parse().unwrap()).unwrap();
    assert_eq!(race(&[by_password, by_user], "hot", 2).await, BURST);
}

/// Splitting, redirects, forgotten scripts, refunds, gathering, limits that are set for one key and for all, leases, resets:
/// no server ever has to refuse anything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rule_is_enough_for_everything() {
    let cluster = cluster_with(&rule());
    let client = || limiter(cluster.nodes[0].server.port, LONG);
    for (number, key) in SPLIT.into_iter().enumerate() {
        let define = || client().define(&format!("limit-{number}"), key.parse().unwrap()).unwrap();
        let limit = define();
        let plan = limit.plan(key).await.unwrap();
        assert_eq!(plan.shards.len(), 3);
        let slot = plan.shards[1].slot.number();
        let migration = cluster.begin_migration(slot, (cluster.owner_of(slot) + 1) % 3);
        cluster.move_keys(&migration);
        let receipt = take(&limit, key, 200).await.into_receipt();
        limit.refund(key, receipt).await.unwrap();
        cluster.finish_migration(migration);
        for node in &cluster.nodes {
            node.ask::<()>(cmd("SCRIPT").arg("FLUSH"));
        }
        assert_eq!(take_all(&limit, key).await, BURST, "{key}");
        limit.reset(key).await.unwrap();
        assert_eq!(left(&limit, key).await, BURST);

        let smaller = key.replace("300", "240").parse().unwrap();
        assert_eq!(limit.set_limit_of(key, smaller, Carry::Keep).await.unwrap(), smaller);
        assert_eq!(limit.set_limit(smaller, Carry::Reset).await.unwrap(), smaller);
        let late = define();
        assert_eq!(take_all(&late, key).await, 240, "{key}");
        assert_eq!(take_all(&late, "another").await, 240, "{key}");
    }
    for (number, key) in WHOLE.into_iter().enumerate() {
        let limit = client().define(&format!("whole-{number}"), key.parse().unwrap()).unwrap();
        assert_eq!(take_all(&limit, key).await, BURST, "{key}");
    }
    let lender = client();
    let leased = lender.define_leased("leased", "300/day burst 300".parse().unwrap(), Leases::default()).unwrap();
    // What is held when a lease ends goes back, and is not there meanwhile.
    assert!((1..=BURST).contains(&take_all(&leased, "hot").await));
    lender.return_leases(LONG).await.unwrap();
    all_is_counted(&client(), "hot").await.unwrap();
    is_watched(&cluster, "watched").await;
    assert_eq!(denials(&cluster), []);
}

/// A split key whose overshoot is watched, under a limit of its own.
async fn is_watched(cluster: &Cluster, name: &str) {
    let url = format!("redis://gateway:pa%3Ass%40word@127.0.0.1:{}", cluster.nodes[0].server.port);
    let limiter = candid(Limiter::builder().redis([url]).timeout(LONG)).watch_overshoot(1).build().unwrap();
    let limit = limiter.define(name, SPLIT[0].parse().unwrap()).unwrap();
    assert_eq!(limit.plan("hot").await.unwrap().shards.len(), 3);
    eventually("it is told or refused", async || {
        let _ = limit.acquire("hot").await.unwrap();
        limit.overshoot().is_some() || !denials(cluster).is_empty()
    })
    .await;
}

/// The keys of one limit, as the table below the rule has them: what its overshoot is watched by has a name of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_limit_that_is_watched_needs_two_patterns() {
    let text = include_str!("../../docs/operations.md");
    for pattern in ["~shardlimit:{*}:checkout:*", "~shardlimit:tally:{*}:checkout:*"] {
        assert!(text.contains(&format!("`{pattern}`")), "{pattern}");
    }
    let of_one = |keys: &[&'static str]| [&["resetchannels"], keys, &rule()[2..]].concat();
    let cluster = cluster_with(&of_one(&["~shardlimit:{*}:checkout:*"]));
    is_watched(&cluster, "checkout").await;
    assert_ne!(denials(&cluster), []);
    set_everywhere(&cluster, &of_one(&["~shardlimit:{*}:checkout:*", "~shardlimit:tally:{*}:checkout:*"]));
    is_watched(&cluster, "checkout").await;
    assert_eq!(denials(&cluster), []);
}

/// A key is planned, its home moves, scripts are forgotten, and a client that does not know the plan charges it.
async fn all_goes_well(cluster: &Cluster, key: &str) -> Result<(), Error> {
    let limit = impatient(cluster);
    let plan = limit.plan(key).await?;
    let slot = plan.shards[0].slot.number();
    let migration = cluster.begin_migration(slot, (cluster.owner_of(slot) + 1) % 3);
    cluster.move_keys(&migration);
    let told = limit.acquire_n(key, 200).await;
    cluster.finish_migration(migration);
    cluster.wait_until_ok();
    assert_eq!((plan.shards.len(), told?.is_allowed()), (3, true));
    let stranger = impatient(cluster);
    assert!(stranger.acquire(key).await?.is_allowed());
    for node in &cluster.nodes {
        node.ask::<()>(cmd("SCRIPT").arg("FLUSH"));
    }
    assert!(stranger.acquire(key).await?.is_allowed());
    all_is_counted(&limiter(cluster.nodes[0].server.port, Duration::from_secs(1)), key).await
}

/// A key is counted in every way.
async fn all_is_counted(limiter: &Limiter, key: &str) -> Result<(), Error> {
    let hour = Duration::from_secs(3_600);
    let clicks = limiter.counters("clicks", CounterSettings::new(hour))?;
    assert_eq!(clicks.add_within(key, 1, 1).await?, Within::Counted { total: 1 });
    clicks.reset(key).await?;
    assert_eq!(clicks.get(key).await?, 0);
    let logins = limiter.sliding_counters("logins", [hour])?;
    assert_eq!(logins.add(key, 2).await?, [2]);
    logins.clear(key).await?;
    let exact = limiter.distinct_counters("visitors", hour, 2)?;
    assert_eq!((exact.add_many(key, ["a", "b"]).await?, exact.get(key).await?), (2, 2));
    exact.clear(key).await?;
    let about = limiter.approximate_counters("visitors", hour)?;
    about.add(key, "a").await?;
    assert_eq!(about.get(key).await?, 1);
    about.clear(key).await
}

/// Every word of the rule is needed: without it something fails, so none is there out of habit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_right_is_asked_for_in_vain() {
    let cluster = cluster_with(&rule());
    all_goes_well(&cluster, "all").await.unwrap();
    assert_eq!(denials(&cluster), []);
    // This one revokes; the one after it saves a round trip, below.
    for word in rule().into_iter().filter(|word| !matches!(*word, "resetchannels" | "+script|load")) {
        let rest: Vec<&str> = rule().into_iter().filter(|other| *other != word).collect();
        set_everywhere(&cluster, &rest);
        let error = all_goes_well(&cluster, word).await.expect_err(word);
        assert!(matches!(error.kind(), ErrorKind::NotSent | ErrorKind::Refused), "{word}: {error:?}");
        assert_ne!(denials(&cluster), [], "{word}");
    }
}

/// With the right to load scripts, no call ever has to carry one; without it, each server gets each script by a call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_are_loaded_by_those_who_may() {
    let without: Vec<&str> = rule().into_iter().filter(|word| *word != "+script|load").collect();
    for (rule, by_call) in [(rule(), false), (without, true)] {
        let server = Server::start(&["--cluster-enabled", "no"]);
        set_user(&mut server.connection(), &rule);
        let limit = limiter(server.port, LONG).define("api", SPLIT[0].parse().unwrap()).unwrap();
        assert_eq!(take_all(&limit, "hot").await, BURST);
        let stats: String = cmd("INFO").arg("commandstats").query(&mut server.connection()).unwrap();
        assert_eq!(stats.contains("cmdstat_eval:"), by_call, "{stats}");
    }
}

/// A user of one limit reaches no other one's state, whatever the key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_of_one_limit_reaches_no_other() {
    let rule: Vec<&str> =
        rule().into_iter().map(|word| if word.starts_with('~') { "~shardlimit:{*}:api:*" } else { word }).collect();
    let cluster = cluster_with(&rule);
    let limiter = limiter(cluster.nodes[0].server.port, Duration::from_secs(1));
    let define = |name: &str| limiter.define(name, SPLIT[0].parse().unwrap()).unwrap();
    for key in ["plain", "a:{b}:other:c", "{}", "}{", "x}:other:{y", "\r\n", "*", "\0"] {
        assert!(define("api").acquire(key).await.unwrap().is_allowed(), "{key:?}");
        let error = define("other").acquire(key).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{key:?}: {error}");
    }
}

/// Who may not do it is told by whom, why and what to do, and no secret is shown to anybody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_is_told_without_showing_it() {
    let cluster = Cluster::start(2, 0, Layout::Contiguous, &[]);
    let port = cluster.nodes[0].server.port;
    for node in &cluster.nodes {
        node.ask::<()>(cmd("CONFIG").arg("SET").arg("requirepass").arg("other"));
    }
    for user in ["", "gateway"] {
        let url = format!("redis://{user}:hunter2@127.0.0.1:{port}");
        let builder = candid(Limiter::builder().redis([url]).timeout(Duration::from_millis(700)));
        assert!(!format!("{builder:?}").contains("hunter2"));
        let limiter = builder.build().unwrap();
        let limit = limiter.define("api", SPLIT[0].parse().unwrap()).unwrap();
        for error in [limit.acquire("hot").await.unwrap_err(), limit.plan("hot").await.unwrap_err()] {
            assert!(matches!(error.kind(), ErrorKind::NotSent | ErrorKind::Refused), "{error:?}");
            let text = format!("{error} {error:?} {limiter:?} {limit:?}");
            assert!(text.contains(&format!("127.0.0.1:{port}")), "{text}");
            assert!(text.contains("check user and password"), "{text}");
            assert!(!text.contains("hunter2"), "{text}");
        }
    }
}
