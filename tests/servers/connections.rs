//! How many connections a limiter has, and what becomes of calls when one of them is lost.

use std::collections::HashSet;
use std::io::Read;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::shared::{Cluster, Layout, Server, candid, client, client_of, eventually, url};
use redis::cmd;
use shardlimit::{BreakerSettings, Error, ErrorKind, Limiter, NamedLimit};
use tokio::task::JoinSet;

const LIMIT: &str = "token-bucket 90000/day burst 90000";
const PATIENCE: Duration = Duration::from_secs(30);

/// The limiter's connections as a server sees them, by id, with the last command on each. The harness speaks RESP2.
pub(crate) fn connections(server: &Server) -> Vec<(u64, String)> {
    let list: String = cmd("CLIENT").arg("LIST").query(&mut server.connection()).unwrap();
    let field = |line: &str, name: &str| {
        line.split(' ').find_map(|field| field.strip_prefix(name).map(str::to_owned)).unwrap_or_default()
    };
    let ours = list.lines().filter(|line| field(line, "resp=") == "3");
    ours.map(|line| (field(line, "id=").parse().unwrap(), field(line, "cmd="))).collect()
}

fn ids(server: &Server) -> HashSet<u64> {
    connections(server).into_iter().map(|(id, _)| id).collect()
}

/// One call each on so many keys, each with a lane of its own.
async fn call(limit: &NamedLimit, keys: usize) {
    for key in 0..keys {
        assert!(limit.acquire(format!("key{key}")).await.unwrap().is_allowed());
    }
}

/// Calls until each of so many connections had a script as the last thing on it.
async fn until_all_are_used(limit: &NamedLimit, server: &Server, count: usize) {
    eventually("every connection has carried a call", async || {
        call(limit, 4 * count).await;
        let open = connections(server);
        assert!(open.len() <= count, "{open:?}");
        open.len() == count && open.iter().all(|(_, last)| last.starts_with("eval"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_master_has_as_many_connections_as_were_asked_for() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    let servers = || cluster.nodes.iter().map(|node| &node.server);
    for (count, shut_down) in [(1, false), (3, true), (3, false)] {
        let limiter = client_of(&cluster, 0).connections(count).build().unwrap();
        limiter.ready(PATIENCE).await.unwrap();
        assert!(servers().all(|server| connections(server).len() == count), "{count}");
        let limit = limiter.define("api", LIMIT.parse().unwrap()).unwrap();
        for server in servers() {
            until_all_are_used(&limit, server, count).await;
        }
        // A key that is split has shards on all of them, whatever the number.
        assert_eq!(limit.plan("hot").await.unwrap().shards.len(), 3);
        if shut_down {
            limiter.shutdown(PATIENCE).await.unwrap();
        }
        let kept = shut_down.then_some((limiter, limit));
        eventually("all are closed", async || servers().all(|server| connections(server).is_empty())).await;
        drop(kept);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_killed_takes_only_its_own_calls_along() {
    let server = Server::start(&[]);
    let mut breaker = BreakerSettings::default();
    breaker.least = u32::MAX;
    let limiter = client(&server).connections(3).breaker(breaker).build().unwrap();
    limiter.ready(PATIENCE).await.unwrap();
    let limit = limiter.define("api", LIMIT.parse().unwrap()).unwrap();
    let before = ids(&server);
    assert_eq!(before.len(), 3);

    cmd("CLIENT").arg("PAUSE").arg(60_000).arg("WRITE").exec(&mut server.connection()).unwrap();
    let mut calls = JoinSet::new();
    for key in 0..30 {
        let limit = limit.clone();
        calls.spawn(async move { limit.acquire(format!("held{key}")).await });
    }
    eventually("each of them holds calls", async || {
        connections(&server).iter().filter(|(_, last)| last.starts_with("eval")).count() == 3
    })
    .await;
    // Behind the one that the server has begun, others are on their way there.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let killed = *before.iter().next().unwrap();
    cmd("CLIENT").arg("KILL").arg("ID").arg(killed).exec(&mut server.connection()).unwrap();
    let mut ended = vec![calls.join_next().await.unwrap().unwrap()];
    assert_eq!(ended[0].as_ref().unwrap_err().kind(), ErrorKind::Unknown);
    cmd("CLIENT").arg("UNPAUSE").exec(&mut server.connection()).unwrap();
    ended.extend(calls.join_all().await);
    let (mut allowed, mut lost) = (0, 0);
    for call in ended {
        match call {
            Ok(decision) => allowed += u64::from(decision.is_allowed()),
            Err(error) if error.kind() == ErrorKind::Unknown => lost += 1,
            Err(error) => panic!("{error}"),
        }
    }
    // A third each; a request that the limiter makes by itself takes a turn too.
    assert!(allowed + lost == 30 && (5..=15).contains(&lost), "{allowed} and {lost}");
    until_all_are_used(&limit, &server, 3).await;
    let now = ids(&server);
    assert!(now.intersection(&before).count() == 2 && !now.contains(&killed), "{before:?} to {now:?}");
}

/// A lost one is not waited for: those that are open carry all calls until it is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_go_on_by_those_that_a_server_lets_in() {
    let server = Server::start(&[]);
    let limiter = client(&server).connections(4).build().unwrap();
    limiter.ready(PATIENCE).await.unwrap();
    let limit = limiter.define("api", LIMIT.parse().unwrap()).unwrap();
    call(&limit, 10).await;
    let mut ours = server.connection();
    let room = |ours: &mut redis::Connection, clients: usize| {
        cmd("CONFIG").arg("SET").arg("maxclients").arg(clients).exec(ours).unwrap();
    };
    // For this one and those that are open.
    let list = |ours: &mut redis::Connection| -> Vec<u64> {
        let list: String = cmd("CLIENT").arg("LIST").query(ours).unwrap();
        let lines = list.lines().filter(|line| line.contains("resp=3"));
        lines.map(|line| line.split([' ', '=']).nth(1).unwrap().parse().unwrap()).collect()
    };
    let before = list(&mut ours);
    room(&mut ours, 4);
    cmd("CLIENT").arg("KILL").arg("ID").arg(before[0]).exec(&mut ours).unwrap();
    // What was sent before the end was noticed may be lost with it.
    eventually("it is known that it is gone", async || limit.acquire("key0").await.is_ok()).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    call(&limit, 200).await;
    assert_eq!(list(&mut ours).len(), 3, "there is no room for another");
    room(&mut ours, 100);
    eventually("it is back", async || {
        call(&limit, 8).await;
        list(&mut ours).len() == 4
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_of_a_ring_have_as_many() {
    let servers = Server::start_many(2, &[]);
    let builder = Limiter::builder().ring(servers.iter().map(url)).timeout(Duration::from_secs(10)).connections(2);
    let limiter = candid(builder).build().unwrap();
    limiter.ready(PATIENCE).await.unwrap();
    let limit = limiter.define("api", LIMIT.parse().unwrap()).unwrap();
    for server in &servers {
        until_all_are_used(&limit, server, 2).await;
        let killed = *ids(server).iter().next().unwrap();
        cmd("CLIENT").arg("KILL").arg("ID").arg(killed).exec(&mut server.connection()).unwrap();
        eventually("it was opened again", async || {
            let now = ids(server);
            now.len() == 2 && !now.contains(&killed)
        })
        .await;
        until_all_are_used(&limit, server, 2).await;
    }
    limiter.shutdown(PATIENCE).await.unwrap();
    eventually("all are closed", async || servers.iter().all(|server| connections(server).is_empty())).await;
}

/// A server that takes connections and says nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opening_one_takes_no_longer_than_it_may() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let given_up = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&given_up);
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            // HELLO, and then the end.
            while client.read(&mut [0; 1_024]).is_ok_and(|bytes| bytes > 0) {}
            counter.fetch_add(1, Ordering::SeqCst);
        }
    });
    let builder = Limiter::builder().redis([format!("redis://127.0.0.1:{port}")]).timeout(Duration::from_secs(1));
    let limiter = candid(builder).connect_timeout(Duration::from_millis(123)).build().unwrap();
    let limit = limiter.define("api", LIMIT.parse().unwrap()).unwrap();
    let error = limit.acquire("key").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotSent);
    assert!(
        error.to_string().contains(&format!("127.0.0.1:{port} can't be reached (no connection within 123ms)")),
        "{error}"
    );
    eventually("attempts are given up one after the other", async || given_up.load(Ordering::SeqCst) > 2).await;
}

#[test]
fn settings_of_connections_have_bounds() {
    type Change = fn(shardlimit::Builder) -> shardlimit::Builder;
    let build =
        |change: Change| -> Result<Limiter, Error> { change(Limiter::builder().redis(["127.0.0.1:1"])).build() };
    let bad: [(&str, Change); 4] = [
        ("connections", |builder| builder.connections(0)),
        ("connections", |builder| builder.connections(17)),
        ("connect_timeout", |builder| builder.connect_timeout(Duration::ZERO)),
        ("connect_timeout", |builder| builder.connect_timeout(Duration::from_secs(3_601))),
    ];
    for (field, change) in bad {
        let error = build(change).unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidSetting, field), "{error}");
    }
    assert!(build(|builder| builder.connections(16).connect_timeout(Duration::from_secs(3_600))).is_ok());
}
