//! A limiter from a file, and another file while it is in use.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::connections::connections;
use crate::ring_records::Toll;
use crate::shared::{Server, eventually, left, take, url};
use shardlimit::{Config, FailurePolicy, Limiter};

/// A file of which some values are of no account here.
fn file(server: &Server, more: &str) -> Config {
    let text = format!(
        "redis = [{:?}]\nprefix = \"by-file\"\nconnections = 2\ndeadline = \"10s\"\ntimeout = \"5s\"\n{more}",
        url(server)
    );
    Config::from_toml(&text).unwrap()
}

const FIRST: &str = r#"
    on_failure = "error"
    [limits.api]
    limit = "token-bucket 300/day burst 300"
    [limits.strict]
    limit = "token-bucket 90000/day burst 90000"
    leases = { ttl = "100ms", within_burst = true }
    [limits.old]
    limit = "5/day"
"#;
const SECOND: &str = r#"
    on_failure = "closed"
    gateways = 3
    [limits.api]
    limit = "token-bucket 600/day burst 600"
    on_failure = "open"
    [limits.strict]
    limit = "token-bucket 180000/day burst 90000"
    leases = { ttl = "100ms", within_burst = true }
    shadow = true
    [limits.new]
    limit = "7/day"
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_and_policies_change_with_the_file() {
    let mut server = Server::start(&["--appendonly", "yes"]);
    let mut config = file(&server, FIRST);
    let limiter = config.builder().build().unwrap();
    let limits = config.define(&limiter).unwrap();
    limiter.ready(Duration::from_secs(30)).await.unwrap();
    assert_eq!(connections(&server).len(), 2);
    let api = &limits["api"];
    drop(take(api, "alice", 10).await);
    assert_eq!((left(api, "alice").await, limits["strict"].limit().burst()), (290, 90_000));

    let other = file(&server, FIRST);
    let other = other.define(&other.builder().build().unwrap()).unwrap();
    assert_eq!(left(&other["api"], "alice").await, 290);

    let changes = config.apply(file(&server, SECOND), &limiter).await.unwrap();
    let applied = [
        "on_failure",
        "limits.api.on_failure",
        "limits.strict.shadow",
        "limits.new",
        "limits.api.limit",
        "limits.strict.limit",
    ];
    assert_eq!(changes.applied, applied);
    assert_eq!(changes.restart, ["gateways", "limits.old"]);
    let text = api.limit_of("bob").await.unwrap().to_string();
    assert_eq!(text, "token-bucket 600/day burst 600");
    assert_eq!(limits["strict"].limit_of("bob").await.unwrap().burst(), 90_000);
    eventually("the other process goes by it", async || {
        let _ = other["api"].acquire("alice").await;
        other["api"].limit().permits() == 600
    })
    .await;
    let all = config.define(&limiter).unwrap();
    assert_eq!(all.keys().collect::<Vec<_>>(), ["api", "new", "old", "strict"]);
    let again = config.apply(file(&server, SECOND), &limiter).await.unwrap();
    assert_eq!((again.applied.len(), again.restart), (0, changes.restart));

    // The policies of the second file: open for one, closed for the others.
    server.kill();
    for (name, allowed) in [("api", true), ("new", false)] {
        eventually("its policy decides", async || {
            let decision = all[name].deadline(Duration::from_millis(50)).acquire("carol").await.unwrap();
            decision.is_allowed() == allowed
        })
        .await;
    }
    assert!(all["strict"].acquire("carol").await.unwrap().is_allowed(), "shadow mode");
    // What is local is in force, what is not is tried again with the next file.
    let back = file(&server, &FIRST.replace("\"error\"", "\"open\""));
    let error = config.apply(back.clone(), &limiter).await.unwrap_err();
    assert_eq!(error.kind(), shardlimit::ErrorKind::NotSent, "{error}");
    let decision = all["new"].deadline(Duration::from_millis(50)).acquire("dave").await.unwrap();
    assert!(decision.is_allowed(), "open by now");
    server.restart();
    let mut applied = Vec::new();
    eventually("the rest is applied", async || match config.apply(back.clone(), &limiter).await {
        Ok(changes) => {
            applied = changes.applied;
            true
        }
        Err(_) => false,
    })
    .await;
    assert_eq!(applied.last().map(String::as_str), Some("limits.strict.limit"), "in the order of names");
    eventually("the older limit is in force", async || {
        api.limit_of("bob").await.is_ok_and(|limit| limit.to_string() == "token-bucket 300/day burst 300")
    })
    .await;
}

/// What another process set later, while this one was still at it, was told as applied; and this one did not set its own any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_that_another_process_sets_later_is_overruled() {
    const FIRST: &str = "token-bucket 300/day burst 300";
    const OURS: &str = "token-bucket 600/day burst 600";
    const THEIRS: &str = "token-bucket 900/day burst 900";
    let (server, toll) = (Server::start(&[]), Toll::default());
    let (way, direct) = (toll.before(&server), url(&server));
    let read = |way: &str, limit: &str| {
        let text = format!("redis = [{way:?}]\ndeadline = \"20s\"\ntimeout = \"20s\"\n[limits.api]\nlimit = {limit:?}");
        Config::from_toml(&text).unwrap()
    };
    let (mut ours, mut theirs) = (read(&way, FIRST), read(&direct, FIRST));
    let limiters = [&ours, &theirs].map(|config| config.builder().build().unwrap());
    let api = ours.define(&limiters[0]).unwrap().remove("api").unwrap();
    theirs.define(&limiters[1]).unwrap();

    // Its revision is drawn by then.
    toll.word.set(OURS.into()).unwrap();
    let meanwhile = async {
        eventually("it is on its way", async || toll.held.load(Ordering::SeqCst) > 0).await;
        let changes = theirs.apply(read(&direct, THEIRS), &limiters[1]).await.unwrap();
        assert_eq!(changes.applied, ["limits.api.limit"]);
        assert!(changes.overruled.is_empty(), "{changes:?}");
        toll.open.store(true, Ordering::SeqCst);
    };
    let (changes, ()) = tokio::join!(ours.apply(read(&way, OURS), &limiters[0]), meanwhile);
    let changes = changes.unwrap();
    assert_eq!(changes.overruled, ["limits.api.limit"]);
    assert!(changes.applied.is_empty() && changes.restart.is_empty(), "{changes:?}");
    assert_eq!(api.limit_of("bob").await.unwrap().to_string(), THEIRS);
    assert_eq!(ours.limits().next().unwrap().1.to_string(), FIRST);
    assert!(ours.define(&limiters[0]).is_ok(), "the name stands for what it did");

    let again = ours.apply(read(&way, OURS), &limiters[0]).await.unwrap();
    assert_eq!(again.applied, ["limits.api.limit"]);
    assert!(again.overruled.is_empty(), "{again:?}");
    assert_eq!(api.limit_of("bob").await.unwrap().to_string(), OURS);
}

/// A file that was read again, and whose limits were defined once more, switched off what an operator had switched on.
#[tokio::test]
async fn to_define_again_undoes_no_switch() {
    let read = |more: &str| {
        let text = format!("redis = [\"127.0.0.1:1\"]\non_failure = \"closed\"\nlimits.a.limit = \"5/day\"\n{more}");
        Config::from_toml(&text).unwrap()
    };
    let b = "limits.b.limit = \"5/day\"\nlimits.b.on_failure = \"closed\"";
    let mut config = read(b);
    let limiter = config.builder().build().unwrap();
    let limits = config.define(&limiter).unwrap();
    assert!(!limits["a"].acquire("k").await.unwrap().is_allowed(), "closed");
    limits["a"].set_shadow(true);
    limits["b"].set_failure_policy(Some(FailurePolicy::Open)).unwrap();
    let is_switched = async || {
        let [a, b] = [limits["a"].acquire("k").await, limits["b"].acquire("k").await];
        a.unwrap().is_allowed() && b.unwrap().is_allowed()
    };
    config.define(&limiter).unwrap();
    read(b).define(&limiter).unwrap();
    assert!(is_switched().await);
    // Also of one that is gone from the file.
    assert_eq!(config.apply(read(""), &limiter).await.unwrap().restart, ["limits.b"]);
    assert_eq!(config.define(&limiter).unwrap().len(), 2);
    assert!(is_switched().await);
}

#[tokio::test]
async fn a_limit_of_the_program_goes_by_the_file_once_it_comes_there() {
    let mut config = Config::from_toml("").unwrap();
    let limiter = config.builder().build().unwrap();
    let own = limiter.define("own", "1/day".parse().unwrap()).unwrap();
    let newer = Config::from_toml("limits.own.limit = \"1/day\"\nlimits.own.shadow = true").unwrap();
    assert_eq!(config.apply(newer, &limiter).await.unwrap().applied, ["limits.own"]);
    assert!((0..3).all(|_| own.try_acquire("k", 1).unwrap().unwrap().is_allowed()), "shadow mode");
}

/// One name that is taken is enough: of the others none is defined.
#[test]
fn all_limits_are_defined_or_none() {
    let config = Config::from_toml("limits.a.limit = \"1/s\"\nlimits.b.limit = \"2/s\"").unwrap();
    let limiter = Limiter::local();
    limiter.define("b", "3/s".parse().unwrap()).unwrap();
    let error = config.define(&limiter).unwrap_err();
    assert_eq!(error.kind(), shardlimit::ErrorKind::NameTaken, "{error}");
    assert!(limiter.define("a", "9/s".parse().unwrap()).is_ok(), "nobody has it");
}

/// The embedded store keeps its limits; what else can be changed is.
#[tokio::test]
async fn the_embedded_store_tells_what_it_can_not_change() {
    let read = |text: &str| Config::from_toml(text).unwrap();
    let mut config = read("limits.a.limit = \"1/day\"\nlimits.b.limit = \"1/day\"\nlimits.b.shadow = false");
    let limiter = config.builder().build().unwrap();
    let limits = config.define(&limiter).unwrap();
    let newer =
        "shadow = true\nmax_keys = 5\nlimits.a.limit = \"2/day\"\nlimits.b.limit = \"1/day\"\nlimits.b.shadow = false";
    let changes = config.apply(read(newer), &limiter).await.unwrap();
    assert_eq!(changes.applied, ["shadow", "limits.a.shadow"]);
    assert_eq!(changes.restart, ["max_keys", "limits.a.limit"]);
    let passes = |name: &str| (0..3).all(|_| limits[name].try_acquire("k", 1).unwrap().unwrap().is_allowed());
    assert_eq!((passes("a"), passes("b")), (true, false));
    assert_eq!(config.define(&limiter).unwrap()["a"].limit().permits(), 1);
}

/// What is in force without a store is known, so that an older file takes it back.
#[tokio::test]
async fn after_an_error_an_older_file_goes_back() {
    let read = |more: &str| Config::from_toml(&format!("redis = [\"127.0.0.1:1\"]\n{more}")).unwrap();
    let older = "on_failure = \"closed\"\nlimits.a.limit = \"5/day\"";
    let newer = "on_failure = \"closed\"\nshadow = true\nlimits.a.limit = \"7/day\"\nlimits.a.on_failure = \"open\"";
    let mut config = read(older);
    let limiter = config.builder().build().unwrap();
    let limits = config.define(&limiter).unwrap();
    let error = config.apply(read(newer), &limiter).await.unwrap_err();
    assert!(error.kind() == shardlimit::ErrorKind::NotSent && error.to_string().contains("limits.a.limit"), "{error}");
    assert!(limits["a"].acquire("k").await.unwrap().is_allowed(), "shadow mode and the policy are in force");
    let changes = config.apply(read(older), &limiter).await.unwrap();
    assert_eq!(changes.applied, ["shadow", "limits.a.shadow", "limits.a.on_failure"]);
    assert!(!limits["a"].acquire("k").await.unwrap().is_allowed(), "closed again");
}

/// Of a limit of which nobody knew whether it was set, the older file was taken for what is in force, and set nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_file_goes_back_from_what_may_have_been_set() {
    let server = Server::start(&[]);
    let read = |limit: &str| {
        let text = format!("redis = [\"{}\"]\ntimeout = \"200ms\"\nlimits.a.limit = \"{limit}\"", url(&server));
        Config::from_toml(&text).unwrap()
    };
    let mut config = read("5/day");
    let limiter = config.builder().build().unwrap();
    let limits = config.define(&limiter).unwrap();
    assert!(limits["a"].acquire("k").await.unwrap().is_allowed());
    server.pause();
    let error = config.apply(read("7/day"), &limiter).await.unwrap_err();
    assert_eq!(error.kind(), shardlimit::ErrorKind::Unknown, "{error}");
    // Whatever stands in the way now, it is still not known.
    let error = config.apply(read("5/day"), &limiter).await.unwrap_err();
    assert!(error.to_string().contains("limits.a.limit"), "{error}");
    server.resume();
    let mut applied = Vec::new();
    eventually("it answers", async || match config.apply(read("5/day"), &limiter).await {
        Ok(changes) => {
            applied.extend(changes.applied);
            true
        }
        Err(_) => false,
    })
    .await;
    assert_eq!(applied, ["limits.a.limit"]);
    eventually("the older limit is in force", async || {
        limits["a"].limit_of("k").await.is_ok_and(|limit| limit.to_string() == "token-bucket 5/day burst 5")
    })
    .await;
    assert_eq!(config.apply(read("5/day"), &limiter).await.unwrap().applied, Vec::<String>::new());
}

#[tokio::test]
async fn shadow_mode_of_all_limits_reaches_those_that_are_gone() {
    let read = |text: &str| Config::from_toml(text).unwrap();
    let mut config = read("limits.gone.limit = \"1/day\"\nlimits.own.limit = \"1/day\"\nlimits.own.shadow = false");
    let limiter = config.builder().build().unwrap();
    let limits = config.define(&limiter).unwrap();
    let changes = config.apply(read("shadow = true"), &limiter).await.unwrap();
    assert_eq!(changes.applied, ["shadow", "limits.gone.shadow"]);
    let passes = |name: &str| (0..3).all(|_| limits[name].try_acquire("k", 1).unwrap().unwrap().is_allowed());
    assert_eq!((passes("gone"), passes("own")), (true, false));
}

#[tokio::test]
async fn of_a_file_with_a_name_that_is_taken_nothing_is_applied() {
    let mut config = Config::from_toml("limits.a.limit = \"1/day\"").unwrap();
    let limiter = config.builder().build().unwrap();
    let limits = config.define(&limiter).unwrap();
    limiter.define("b", "3/s".parse().unwrap()).unwrap();
    let newer = "shadow = true\nlimits.a.limit = \"1/day\"\nlimits.b.limit = \"2/s\"";
    let error = config.apply(Config::from_toml(newer).unwrap(), &limiter).await.unwrap_err();
    assert_eq!(error.kind(), shardlimit::ErrorKind::NameTaken, "{error}");
    let passes = (0..3).all(|_| limits["a"].try_acquire("k", 1).unwrap().unwrap().is_allowed());
    assert!(!passes, "no shadow mode");
}
