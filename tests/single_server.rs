//! One server that is no cluster: everything works with one shard. And servers that want to know who is there.
#![cfg(feature = "redis")]

#[path = "support/shared.rs"]
mod shared;

use std::time::Duration;

use redis::cmd;
use shardlimit::{ErrorKind, Limiter, NamedLimit};
use shared::{BURST, Cluster, Layout, Server, client, client_of, define, exactly, left, race, take, take_all};

/// The least that a user needs: see the docs before changing it.
const RULE: &str = "~shardlimit:* +eval +evalsha +script|load +cluster|slots +cluster|info +asking +time +ping \
                    +get +set +pttl";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_no_cluster_holds_whole_limits() {
    let server = Server::start(&[]);
    for text in shared::SPLIT.into_iter().chain(shared::WHOLE) {
        let clients = [define(client(&server), text), define(client(&server), text)];
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

fn with_user(port: u16, text: &str) -> NamedLimit {
    let url = format!("redis://gateway:pa%3Ass%40word@127.0.0.1:{port}");
    define(Limiter::builder().redis([url]).timeout(Duration::from_secs(10)), text)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_or_a_user_with_few_rights_is_enough() {
    let server = Server::start(&[]);
    set_user(&mut server.connection(), RULE);
    cmd("CONFIG").arg("SET").arg("requirepass").arg("secret").query::<()>(&mut server.connection()).unwrap();
    let url = format!("redis://:secret@127.0.0.1:{}", server.port);
    let by_password = define(Limiter::builder().redis([url]).timeout(Duration::from_secs(10)), shared::SPLIT[0]);
    let by_user = with_user(server.port, shared::SPLIT[0]);
    assert_eq!(race(&[by_password, by_user], "hot", 2).await, BURST);
}

/// The same user on a cluster, where it also splits, and follows a slot that moves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_with_few_rights_can_do_everything_on_a_cluster() {
    let cluster = Cluster::start(2, 0, Layout::Contiguous, &[]);
    for node in &cluster.nodes {
        set_user(&mut node.connection(), RULE);
    }
    let limits = shared::SPLIT.map(|text| with_user(cluster.nodes[0].server.port, text));
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

/// Every word of the rule is needed: without it something fails, so none is there out of habit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_right_is_asked_for_in_vain() {
    // A script that can't be loaded is sent along with each call, so this one is for speed; the rest is for
    // clusters, or for texts that are found out below.
    let spared = ["+script|load", "+cluster|slots", "+cluster|info", "+asking", "+time", "+ping"];
    let server = Server::start(&[]);
    for word in RULE.split_ascii_whitespace().filter(|word| !spared.contains(word)) {
        let rest: Vec<&str> = RULE.split_ascii_whitespace().filter(|other| *other != word).collect();
        cmd("ACL").arg("DELUSER").arg("gateway").query::<()>(&mut server.connection()).unwrap();
        cmd("SCRIPT").arg("FLUSH").query::<()>(&mut server.connection()).unwrap();
        set_user(&mut server.connection(), &rest.join(" "));
        let limit = with_user(server.port, shared::SPLIT[0]);
        let _ = limit;
        println!("without {word}: {:?}", limit.acquire("hot").await.map(|decision| decision.is_allowed()));
    }
}

/// Who may not do it is told by whom, why and what to do, and no secret is shown to anybody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_is_told_without_showing_it() {
    let cluster = Cluster::start(2, 0, Layout::Contiguous, &[]);
    let port = cluster.nodes[0].server.port;
    for user in ["", "gateway"] {
        let url = format!("redis://{user}:hunter2@127.0.0.1:{port}");
        for node in &cluster.nodes {
            node.ask::<()>(cmd("CONFIG").arg("SET").arg("requirepass").arg("other"));
        }
        let builder = Limiter::builder().redis([url]).timeout(Duration::from_millis(700));
        assert!(!format!("{builder:?}").contains("hunter2"));
        let limiter = builder.build().unwrap();
        let limit = limiter.define("api", shared::SPLIT[0].parse().unwrap()).unwrap();
        let errors = [limit.acquire("hot").await.unwrap_err(), limit.plan("hot").await.unwrap_err()];
        for error in errors {
            println!("{error}");
            assert!(matches!(error.kind(), ErrorKind::NotSent | ErrorKind::Refused), "{error:?}");
            let text = format!("{error} {error:?} {limiter:?} {limit:?}");
            assert!(text.contains(&format!("127.0.0.1:{port}")), "{text}");
            assert!(text.contains("password"), "{text}");
            assert!(!text.contains("hunter2"), "{text}");
        }
        for node in &cluster.nodes {
            let mut connection = redis::Client::open(format!("redis://:other@127.0.0.1:{}", node.server.port))
                .unwrap()
                .get_connection()
                .unwrap();
            cmd("CONFIG").arg("SET").arg("requirepass").arg("").query::<()>(&mut connection).unwrap();
        }
    }
    let _ = client_of;
}
