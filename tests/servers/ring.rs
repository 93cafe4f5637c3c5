//! Limits on independent servers: one ring for all clients, whatever their lists say, and nothing lost when nodes come and go.

use std::collections::HashSet;
use std::time::Duration;

use crate::shared::{BURST, SPLIT, Server, WHOLE, candid, eventually, left, race, sums, take_all, url};
use shardlimit::counter::CounterSettings;
use shardlimit::{Builder, ErrorKind, FailurePolicy, Limiter, NamedLimit, PlannedShard, Ring, Shards};

fn client(servers: &[&Server]) -> Builder {
    candid(Limiter::builder().ring(servers.iter().map(|server| url(server))).timeout(Duration::from_secs(10)))
}

fn define(limiter: &Limiter, text: &str) -> NamedLimit {
    limiter.define("api", text.parse().unwrap()).unwrap()
}

fn ring(limiter: &Limiter) -> Ring {
    limiter.ring().unwrap().unwrap()
}

fn name(server: &Server) -> String {
    format!("127.0.0.1:{}", server.port)
}

/// The name of the node that a shard is on.
fn node_of(shard: &PlannedShard) -> Option<&str> {
    shard.master.as_ref().map(|master| &*master.id)
}

/// How many keys of ours a server has, marks of what has left not counted.
fn keys(server: &Server) -> usize {
    let mut connection = server.connection();
    let keys: Vec<String> = redis::cmd("KEYS").arg("shardlimit:{*").query(&mut connection).unwrap();
    let is_mark = |key: &String| {
        let first: Vec<u8> = redis::cmd("GETRANGE").arg(key).arg(0).arg(0).query(&mut server.connection()).unwrap();
        first == [77]
    };
    keys.iter().filter(|key| !is_mark(key)).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_has_its_shards_on_distinct_servers() {
    let servers = Server::start_many(3, &[]);
    let [a, b, c] = &servers[..] else { unreachable!() };
    let limiters = [client(&[a, b, c]).build().unwrap(), client(&[c, a, b]).build().unwrap()];
    for text in SPLIT {
        let limits =
            limiters.each_ref().map(|limiter| limiter.define(&text.replace(' ', ""), text.parse().unwrap()).unwrap());
        let plan = limits[0].plan("hot").await.unwrap();
        assert_eq!((plan.shards.len(), sums(&plan)), (3, (BURST, BURST)), "{text}");
        let masters: HashSet<&str> = plan.shards.iter().filter_map(node_of).collect();
        assert_eq!(masters.len(), 3, "{text}: {plan:?}");
        assert_eq!(race(&limits, "hot", 2).await, BURST, "{text}");
        let other = limits[1].plan("hot").await.unwrap();
        assert!(other.shards.iter().zip(&plan.shards).all(|(one, same)| one.sub_key == same.sub_key), "{text}");
    }
    for text in WHOLE {
        let limits =
            limiters.each_ref().map(|limiter| limiter.define(&text.replace(' ', ""), text.parse().unwrap()).unwrap());
        assert_eq!(race(&limits, "hot", 2).await, BURST, "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_with_different_lists_use_one_ring() {
    let servers = Server::start_many(4, &[]);
    let [a, b, c, d] = &servers[..] else { unreachable!() };
    let first = client(&[a, b, c]).build().unwrap();
    let one = define(&first, SPLIT[0]);
    assert!(one.acquire("key0").await.unwrap().is_allowed());
    assert!(!ring(&first).differs() && ring(&first).is_settled());
    // One with a node more, one with a node less, one with other weights.
    let others =
        [client(&[a, b, c, d]), client(&[b, c]), Limiter::builder().ring([format!("{}*3", url(a)), url(b), url(c)])];
    let others = others.map(|builder| candid(builder).build().unwrap());
    let mut limits: Vec<NamedLimit> = others.iter().map(|limiter| define(limiter, SPLIT[0])).collect();
    limits.push(one);
    for key in 0..20 {
        let spent = u64::from(key == 0);
        assert_eq!(race(&limits, &format!("key{key}"), 1).await, BURST - spent, "key{key}");
    }
    for limiter in &others {
        assert!(ring(limiter).differs());
        assert_eq!(ring(limiter).nodes(), ring(&first).nodes());
    }
    assert_eq!((ring(&first).nodes().len(), keys(d)), (3, 0));
}

/// Takes permits of many keys from two clients while something is done to the ring; of each key there are just as many as ever.
async fn spend_while(limits: [NamedLimit; 2], keys: usize, change: impl Future<Output = ()>) {
    let spend = async |limit: NamedLimit, count: usize| {
        let mut taken = vec![0; keys];
        for _ in 0..count {
            for (key, taken) in taken.iter_mut().enumerate() {
                *taken += u64::from(limit.acquire(format!("key{key}")).await.unwrap().is_allowed());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        taken
    };
    let [one, other] = limits.clone();
    let (mine, theirs, ()) = tokio::join!(spend(one, 80), spend(other, 80), change);
    for (key, (mine, theirs)) in mine.into_iter().zip(theirs).enumerate() {
        let rest = take_all(&limits[0], format!("key{key}")).await;
        assert_eq!(mine + theirs + rest, BURST, "key{key}: {mine} and {theirs}, then {rest}");
        assert_eq!(take_all(&limits[1], format!("key{key}")).await, 0, "key{key}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_keys_have_comes_along_when_a_node_is_added() {
    let servers = Server::start_many(4, &[]);
    let [a, b, c, d] = &servers[..] else { unreachable!() };
    let limiters = [client(&[a, b, c]).build().unwrap(), client(&[a, b, c]).build().unwrap()];
    let limits = limiters.each_ref().map(|limiter| define(limiter, SPLIT[0]));
    spend_while(limits.clone(), 20, async { ring(&limiters[0]).add(&url(d)).await.unwrap() }).await;
    assert!(keys(d) > 5, "{} keys", keys(d));
    eventually("the other one knows", async || {
        ring(&limiters[1]).nodes().len() == 4 && ring(&limiters[1]).is_settled()
    })
    .await;
    assert!(ring(&limiters[1]).differs());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_leaves_hands_over_what_it_has() {
    let servers = Server::start_many(3, &[]);
    let [a, b, c] = &servers[..] else { unreachable!() };
    let limiters = [client(&[a, b, c]).build().unwrap(), client(&[a, b, c]).build().unwrap()];
    let limits = limiters.each_ref().map(|limiter| define(limiter, SPLIT[3]));
    spend_while(limits, 20, async { ring(&limiters[1]).remove(&name(b)).await.unwrap() }).await;
    assert_eq!(keys(b), 0);
    assert!(keys(a) > 10 && keys(c) > 10);
}

/// One that is down keeps its share until it is said to be lost; then that is lent again, with nothing in it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_node_that_is_said_to_be_lost_loses_its_share() {
    let mut servers = Server::start_many(3, &[]);
    let (limiter, watching) = {
        let all: Vec<&Server> = servers.iter().collect();
        let closed = client(&all).on_failure(FailurePolicy::Closed).timeout(Duration::from_millis(500));
        (closed.clone().build().unwrap(), closed.build().unwrap())
    };
    let limit = define(&limiter, SPLIT[0]);
    // A key with its home elsewhere.
    let (mut key, mut plan) = (0, limit.plan("key0").await.unwrap());
    while node_of(&plan.shards[0]) == Some(&*name(&servers[2])) {
        key += 1;
        plan = limit.plan(format!("key{key}")).await.unwrap();
    }
    let key = format!("key{key}");
    let share = plan.shards.iter().find(|shard| node_of(shard) == Some(&*name(&servers[2]))).unwrap().burst;
    servers[2].kill();
    let taken = take_all(&limit, &key).await;
    assert_eq!(taken, BURST - share, "what the node has is not to be had");
    let again = limit.plan(&key).await.unwrap();
    assert_eq!(sums(&again), (BURST, BURST), "nor is it lent twice");
    ring(&limiter).remove_lost(&name(&servers[2])).await.unwrap();
    eventually("the share is on a node that is there", async || {
        let _ = limit.acquire(&key).await;
        let plan = limit.plan(&key).await.unwrap();
        plan.shards.iter().all(|shard| node_of(shard) != Some(&*name(&servers[2])))
    })
    .await;
    assert_eq!(sums(&limit.plan(&key).await.unwrap()), (BURST, BURST));
    assert_eq!(take_all(&limit, &key).await, 0, "with nothing in it");
    assert_eq!(take_all(&define(&watching, SPLIT[0]), &key).await, 0);
    assert_eq!(ring(&watching).nodes().len(), 2);
    // It comes back with what it had, and nobody asks it.
    servers[2].restart();
    assert_eq!(take_all(&limit, &key).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_was_left_half_done_is_finished_by_another() {
    let servers = Server::start_many(3, &[]);
    let [a, b, c] = &servers[..] else { unreachable!() };
    let first = client(&[a, b]).shards(Shards::Off).build().unwrap();
    let limit = define(&first, SPLIT[0]);
    for key in 0..50 {
        assert!(limit.acquire_n(format!("key{key}"), 100).await.unwrap().is_allowed());
    }
    let leaves = client(&[a, b]).build().unwrap();
    let changing = ring(&leaves);
    let new = url(c);
    let change = tokio::spawn(async move { changing.add(&new).await });
    eventually("the change is in force", async || !ring(&first).is_settled()).await;
    leaves.shutdown(Duration::ZERO).await.unwrap_or(());
    assert_eq!(change.await.unwrap().unwrap_err().kind(), ErrorKind::Unknown);
    let refused = ring(&first).remove(&name(a)).await.unwrap_err();
    assert!(refused.to_string().contains("settle it first"), "{refused}");
    ring(&first).settle().await.unwrap();
    assert!(ring(&first).is_settled() && keys(c) > 5);
    for key in 0..50 {
        assert_eq!(left(&limit, &format!("key{key}")).await, BURST - 100, "key{key}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_makes_no_ring_is_an_error() {
    let bad = |nodes: &[&str]| Limiter::builder().ring(nodes.iter().copied()).build().unwrap_err();
    for nodes in [&[][..], &["http://h"], &["redis://h:1", "h:1*2"], &["sentinel://h:1"], &["h:1*0"]] {
        assert_eq!(bad(nodes).kind(), ErrorKind::InvalidSetting, "{nodes:?}");
    }
    let both = Limiter::builder().ring(["h:1"]).redis(["h:2"]).build().unwrap_err();
    assert_eq!((both.kind(), both.field()), (ErrorKind::InvalidSetting, "ring"));
}

/// What a change left behind is in nobody's way when the key is back where it was, and has come to its end meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_came_to_their_end_elsewhere_begin_anew() {
    let servers = Server::start_many(3, &[]);
    let [a, b, c] = &servers[..] else { unreachable!() };
    let limiter = client(&[a, b]).shards(Shards::Off).build().unwrap();
    let limit = define(&limiter, "token-bucket 100/s burst 20");
    let ask_all = async || {
        for key in 0..30 {
            assert!(limit.acquire(format!("key{key}")).await.unwrap().is_allowed(), "key{key}");
        }
    };
    ask_all().await;
    ring(&limiter).add(&url(c)).await.unwrap();
    assert_eq!(keys(a) + keys(b) + keys(c), 0, "a bucket is as new after a second, and has left while it was there");
    ring(&limiter).remove(&name(c)).await.unwrap();
    ask_all().await;
}

/// Counters of every kind: what a change left behind, of keys that were there and of keys that were not, is in nobody's way when they
/// have come to their end elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counters_that_came_to_their_end_elsewhere_begin_anew() {
    let servers = Server::start_many(3, &[]);
    let [a, b, c] = &servers[..] else { unreachable!() };
    let limiter = client(&[a, b]).build().unwrap();
    let (second, hour) = (Duration::from_secs(1), Duration::from_secs(3_600));
    let clicks = limiter.counters("clicks", CounterSettings::new(second)).unwrap();
    let logins = limiter.sliding_counters("logins", [second]).unwrap();
    let visitors = limiter.distinct_counters("visitors", second, 1).unwrap();
    let about = limiter.approximate_counters("about", hour).unwrap();
    let all = (0..12).map(|key| format!("key{key}"));
    let ask_all = async || {
        for key in all.clone() {
            assert_eq!((clicks.get(&key).await.unwrap(), logins.get(&key).await.unwrap()), (0, vec![0]), "{key}");
            assert_eq!((visitors.get(&key).await.unwrap(), about.get(&key).await.unwrap()), (0, 0), "{key}");
        }
    };
    for key in all.clone() {
        assert!(visitors.add(&key, "alice").await.unwrap(), "{key}");
        clicks.add(&key, 1).await.unwrap();
        logins.add(&key, 1).await.unwrap();
    }
    let asks = async {
        eventually("the change is in force", async || !ring(&limiter).is_settled()).await;
        tokio::time::sleep(second).await;
        ask_all().await;
    };
    let (added, ()) = tokio::join!(async { ring(&limiter).add(&url(c)).await }, asks);
    added.unwrap();
    ring(&limiter).remove(&name(c)).await.unwrap();
    ask_all().await;
    for key in all.clone() {
        assert!(visitors.add(&key, "alice").await.unwrap(), "{key}");
        about.add(&key, "alice").await.unwrap();
        clicks.add(&key, 1).await.unwrap();
        assert_eq!(clicks.get(&key).await.unwrap(), 1, "{key}");
        assert_eq!(logins.add(&key, 1).await.unwrap(), [1], "{key}");
        assert_eq!(about.get(&key).await.unwrap(), 1, "{key}");
        about.clear(&key).await.unwrap();
        visitors.clear(&key).await.unwrap();
        assert_eq!((visitors.get(&key).await.unwrap(), about.get(&key).await.unwrap()), (0, 0), "{key}");
    }
}

/// Whatever script finds it: what a key leaves behind is known for what it is, also if the key was not there.
#[test]
fn every_script_knows_what_has_left() {
    let server = Server::start(&[]);
    let connection = &mut server.connection();
    let eval =
        |connection: &mut redis::Connection, script: &str, arguments: &[&str]| -> redis::RedisResult<redis::Value> {
            redis::cmd("EVAL").arg(script).arg(1).arg("key").arg(arguments).query(connection)
        };
    eval(connection, include_str!("../../lua/move_out.lua"), &["7", "8", "60000", "record", "7"]).unwrap();
    for script in [
        include_str!("../../lua/bucket.lua"),
        include_str!("../../lua/fixed_window.lua"),
        include_str!("../../lua/sliding_window.lua"),
        include_str!("../../lua/home_bucket.lua"),
        include_str!("../../lua/home_fixed_window.lua"),
        include_str!("../../lua/home_sliding_window.lua"),
        include_str!("../../lua/install.lua"),
        include_str!("../../lua/close.lua"),
        include_str!("../../lua/tally.lua"),
        include_str!("../../lua/composite.lua"),
        include_str!("../../lua/home_composite.lua"),
    ] {
        let refused = eval(connection, script, &["0000000000000000"; 16]).unwrap_err().to_string();
        assert!(refused.contains("SHARDLIMIT") && refused.contains("of version 77,"), "{refused}\n{script}");
    }
    for script in [
        include_str!("../../lua/counter.lua"),
        include_str!("../../lua/sliding_counter.lua"),
        include_str!("../../lua/distinct.lua"),
        include_str!("../../lua/approximate.lua"),
    ] {
        // To look, to clear, to add: none does anything before it has seen what is there.
        for mode in ["0", "1", "2"] {
            // A part of a window so long that it is the present one.
            let mut arguments = ["1"; 12];
            arguments[..3].copy_from_slice(&[mode, "0", "100000000000000000"]);
            let refused = eval(connection, script, &arguments).unwrap_err().to_string();
            assert!(refused.contains("SHARDLIMIT") && refused.contains("of version 77,"), "{refused}\n{script}");
            let life: i64 = redis::cmd("PTTL").arg("key").query(connection).unwrap();
            assert!(life > 30_000, "{life} ms\n{script}");
        }
    }
    // One who has not heard of a later record moves nothing.
    redis::cmd("SET").arg("record").arg("shardlimit ring 1\nnumber 9 1\n").exec(connection).unwrap();
    for (script, arguments) in [
        (include_str!("../../lua/move_out.lua"), &["7", "8", "60000", "record", "8"][..]),
        (include_str!("../../lua/move_in.lua"), &["8", "record", "8", "0", "0", ""]),
    ] {
        let refused = eval(connection, script, arguments).unwrap_err().to_string();
        assert!(refused.contains("SHARDLIMITRING"), "{refused}");
    }
    eval(connection, include_str!("../../lua/move_in.lua"), &["9", "record", "9", "0", "0", ""]).unwrap();
    assert!(!redis::cmd("EXISTS").arg("key").query::<bool>(connection).unwrap());
}

/// A node that never came, or went in the middle of a change, must not keep the ring as it is for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_can_be_lost_while_it_leaves() {
    let mut servers = Server::start_many(3, &[]);
    let all: Vec<String> = servers.iter().map(url).collect();
    let limiter = candid(Limiter::builder().ring(all).shards(Shards::Off).timeout(Duration::from_millis(500)));
    let limiter = limiter.on_failure(FailurePolicy::Closed).build().unwrap();
    let limit = define(&limiter, SPLIT[0]);
    assert!(limit.acquire("key").await.unwrap().is_allowed());
    let refused = ring(&limiter).add("redis://127.0.0.1:1").await.unwrap_err();
    assert!(refused.kind() == ErrorKind::Refused && ring(&limiter).is_settled(), "{refused}");
    let (gone, leaving) = (name(&servers[2]), ring(&limiter));
    servers[2].kill();
    let unsettled = leaving.remove(&gone).await.unwrap_err();
    assert!(unsettled.to_string().contains("remove it as lost"), "{unsettled}");
    leaving.remove_lost(&gone).await.unwrap();
    assert!(leaving.is_settled() && leaving.nodes().len() == 2);
    for key in 0..20 {
        assert!(limit.acquire(format!("key{key}")).await.unwrap().is_allowed());
    }
}

/// The rule of docs/ring.md, word by word.
fn rule() -> Vec<&'static str> {
    let text = include_str!("../../docs/ring.md");
    let rule = text.split("```text\nACL SETUSER gateway on >secret ").nth(1).and_then(|rest| rest.split("```").next());
    rule.unwrap().split_whitespace().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_rights_are_enough_also_for_a_change() {
    let servers = Server::start_many(3, &[]);
    for server in &servers {
        let mut user = redis::cmd("ACL");
        user.arg("SETUSER").arg("gateway").arg("on").arg(">secret").arg(rule());
        user.exec(&mut server.connection()).unwrap();
    }
    let urls: Vec<String> =
        servers.iter().map(|server| format!("redis://gateway:secret@127.0.0.1:{}", server.port)).collect();
    let limiter = candid(Limiter::builder().ring(urls[..2].to_vec())).build().unwrap();
    let limit = define(&limiter, SPLIT[0]);
    for key in 0..20 {
        assert!(limit.acquire_n(format!("key{key}"), 100).await.unwrap().is_allowed());
    }
    let hour = Duration::from_secs(3_600);
    let clicks = limiter.counters("clicks", CounterSettings::new(hour)).unwrap();
    let logins = limiter.sliding_counters("logins", [hour]).unwrap();
    let visitors = limiter.distinct_counters("visitors", hour, 2).unwrap();
    let about = limiter.approximate_counters("about", hour).unwrap();
    for key in 0..20 {
        let key = format!("key{key}");
        clicks.add(&key, 1).await.unwrap();
        logins.add(&key, 1).await.unwrap();
        assert!(visitors.add(&key, "alice").await.unwrap());
        about.add_many(&key, ["alice"]).await.unwrap();
    }
    ring(&limiter).add(&urls[2]).await.unwrap();
    for key in 0..20 {
        assert_eq!(left(&limit, &format!("key{key}")).await, BURST - 100);
        assert_eq!(visitors.get(format!("key{key}")).await.unwrap(), 1);
    }
    for server in &servers {
        let denied: Vec<redis::Value> = redis::cmd("ACL").arg("LOG").query(&mut server.connection()).unwrap();
        assert!(denied.is_empty(), "{denied:?}");
    }
}
