//! One server that is no cluster: everything works with one shard. And servers that want to know who is there.
#![cfg(feature = "redis")]

#[path = "support/shared.rs"]
mod shared;

use std::time::Duration;

use redis::cmd;
use shardlimit::{Error, ErrorKind, Limiter, NamedLimit};
use shared::{BURST, Cluster, Layout, Server, candid, client, define, exactly, left, race, take, take_all};

/// The least that a user needs. With `+script|load` besides, the first run of a script on a server is as fast as any.
const RULE: &str = "~shardlimit:* +eval +evalsha +cluster|slots +cluster|info +asking +time +get +set +pttl";

const LONG: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_no_cluster_holds_whole_limits() {
    let server = Server::start(&[]);
    for text in shared::SPLIT.into_iter().chain(shared::WHOLE) {
        // One resets what the other was denied: each call is to see the store.
        let blunt = || client(&server).ceiling(Duration::ZERO);
        let clients = [define(blunt(), text), define(blunt(), text)];
        assert_eq!(race(&clients, text, 3).await, BURST, "{text}");
        let plan = clients[0].plan(text).await.unwrap();
        assert_eq!(plan.shards.len(), 1);
        assert_eq!(plan.shards[0].master.as_ref().unwrap().port, server.port);
        clients[0].reset(text).await.unwrap();
        let receipt = take(&clients[1], text, 200).await.into_receipt();
        assert_eq!(left(&clients[0], text).await, 100);
        clients[1].refund(text, receipt).await.unwrap();
        let peek = clients[0].peek(text).await.unwrap();
        assert_eq!((peek.remaining().permits, peek.remaining().exact), (BURST, true), "{text}");
    }
}

/// Where one asks for more shards than there are masters, one server holds them all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_no_cluster_holds_several_shards_if_it_has_to() {
    let server = Server::start(&[]);
    let limit = define(client(&server).shards(exactly(4)), shared::SPLIT[0]);
    assert_eq!(limit.plan("hot").await.unwrap().shards.len(), 4);
    assert_eq!(race(std::slice::from_ref(&limit), "hot", 4).await, BURST);
}

fn set_user(connection: &mut redis::Connection, rule: &str) {
    let mut user = cmd("ACL");
    user.arg("SETUSER").arg("gateway").arg("on").arg(">pa:ss@word").arg("resetchannels");
    for word in rule.split_ascii_whitespace() {
        user.arg(word);
    }
    user.query::<()>(connection).unwrap();
}

fn with_user(port: u16, text: &str, timeout: Duration) -> NamedLimit {
    let url = format!("redis://gateway:pa%3Ass%40word@127.0.0.1:{port}");
    define(candid(Limiter::builder().redis([url]).timeout(timeout)), text)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_or_a_user_with_few_rights_is_enough() {
    let server = Server::start(&[]);
    set_user(&mut server.connection(), RULE);
    cmd("CONFIG").arg("SET").arg("requirepass").arg("secret").query::<()>(&mut server.connection()).unwrap();
    let url = format!("redis://:secret@127.0.0.1:{}", server.port);
    let by_password = define(candid(Limiter::builder().redis([url]).timeout(LONG)), shared::SPLIT[0]);
    let by_user = with_user(server.port, shared::SPLIT[0], LONG);
    assert_eq!(race(&[by_password, by_user], "hot", 2).await, BURST);
}

/// The same user on a cluster, where it also splits, and follows a slot that moves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_with_few_rights_can_do_everything_on_a_cluster() {
    let cluster = Cluster::start(2, 0, Layout::Contiguous, &[]);
    for node in &cluster.nodes {
        set_user(&mut node.connection(), RULE);
    }
    let limits = shared::SPLIT.map(|text| with_user(cluster.nodes[0].server.port, text, LONG));
    for (limit, key) in limits.iter().zip(shared::SPLIT) {
        let plan = limit.plan(key).await.unwrap();
        assert_eq!(plan.shards.len(), 2);
        let slot = plan.shards[1].slot.number();
        let migration = cluster.begin_migration(slot, 1 - cluster.owner_of(slot));
        cluster.move_keys(&migration);
        let receipt = take(limit, key, 200).await.into_receipt();
        limit.refund(key, receipt).await.unwrap();
        cluster.finish_migration(migration);
        assert_eq!(take_all(limit, key).await, BURST, "{key}");
        limit.reset(key).await.unwrap();
    }
}

/// A key is planned and used, its home moves, and a client that does not know the plan charges it.
async fn all_goes_well(cluster: &Cluster, key: &str) -> Result<(), Error> {
    let port = cluster.nodes[0].server.port;
    let limit = with_user(port, shared::SPLIT[0], Duration::from_secs(1));
    let plan = limit.plan(key).await?;
    let slot = plan.shards[0].slot.number();
    let migration = cluster.begin_migration(slot, 1 - cluster.owner_of(slot));
    cluster.move_keys(&migration);
    let told = limit.acquire_n(key, 200).await;
    cluster.finish_migration(migration);
    cluster.wait_until_ok();
    assert_eq!((plan.shards.len(), told?.is_allowed()), (2, true));
    let stranger = with_user(port, shared::SPLIT[0], Duration::from_secs(1));
    assert!(stranger.acquire(key).await?.is_allowed());
    Ok(())
}

/// Every word of the rule is needed: without it something fails, so none is there out of habit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_right_is_asked_for_in_vain() {
    let cluster = Cluster::start(2, 0, Layout::Contiguous, &[]);
    let with_rule = |rule: &str| {
        for node in &cluster.nodes {
            node.ask::<()>(cmd("ACL").arg("DELUSER").arg("gateway"));
            node.ask::<()>(cmd("SCRIPT").arg("FLUSH"));
            set_user(&mut node.connection(), rule);
        }
    };
    with_rule(RULE);
    all_goes_well(&cluster, "all").await.unwrap();
    for word in RULE.split_ascii_whitespace() {
        let rest: Vec<&str> = RULE.split_ascii_whitespace().filter(|other| *other != word).collect();
        with_rule(&rest.join(" "));
        let error = all_goes_well(&cluster, word).await.expect_err(word);
        assert!(matches!(error.kind(), ErrorKind::NotSent | ErrorKind::Refused), "{word}: {error:?}");
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
        let limit = limiter.define("api", shared::SPLIT[0].parse().unwrap()).unwrap();
        for error in [limit.acquire("hot").await.unwrap_err(), limit.plan("hot").await.unwrap_err()] {
            assert!(matches!(error.kind(), ErrorKind::NotSent | ErrorKind::Refused), "{error:?}");
            let text = format!("{error} {error:?} {limiter:?} {limit:?}");
            assert!(text.contains(&format!("127.0.0.1:{port}")), "{text}");
            assert!(text.contains("check user and password"), "{text}");
            assert!(!text.contains("hunter2"), "{text}");
        }
    }
}
