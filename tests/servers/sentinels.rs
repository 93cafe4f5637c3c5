//! Nodes of a ring that Sentinels watch over.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::shared::server::Port;
use crate::shared::{Server, candid, eventually, url};
use redis::cmd;
use shardlimit::{Limiter, NamedLimit};

/// A running Sentinel that watches over one master, and decides alone.
struct Sentinel {
    port: Port,
    process: Child,
    folder: PathBuf,
}

impl Sentinel {
    fn start(name: &str, master: &Server) -> Self {
        Self::start_at(name, master, 0)
    }

    /// One that has heard of so many failovers.
    fn start_at(name: &str, master: &Server, epoch: u64) -> Self {
        let port = Port::take();
        let folder = std::env::temp_dir().join(format!("shardlimit-sentinel-{}-{}", std::process::id(), port.number));
        std::fs::create_dir_all(&folder).unwrap();
        let settings = format!(
            "port {}\nbind 127.0.0.1\nsentinel monitor {name} 127.0.0.1 {} 1\n\
             sentinel down-after-milliseconds {name} 300\nsentinel failover-timeout {name} 3000\n\
             sentinel config-epoch {name} {epoch}\n",
            port.number, master.port
        );
        let file = folder.join("sentinel.conf");
        std::fs::write(&file, settings).unwrap();
        let program = std::env::var("SHARDLIMIT_SERVER").unwrap_or_else(|_| "redis-server".into());
        let process =
            Command::new(program).arg(file).arg("--sentinel").stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Self { port, process: process.unwrap(), folder }
    }

    /// How many replicas it knows of; none while it does not answer.
    fn replicas(&self, name: &str) -> usize {
        let client = redis::Client::open(("127.0.0.1", self.port.number)).unwrap();
        let Ok(mut connection) = client.get_connection() else { return 0 };
        let replicas = cmd("SENTINEL").arg("REPLICAS").arg(name).query::<Vec<redis::Value>>(&mut connection);
        replicas.map_or(0, |replicas| replicas.len())
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = (self.process.kill(), self.process.wait());
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

async fn charge(limit: &NamedLimit, key: &str, permits: u64) -> bool {
    limit.acquire_n(key, permits).await.is_ok_and(|decision| decision.is_allowed())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_is_found_by_its_name_and_followed_when_it_fails() {
    let mut master = Server::start(&["--repl-diskless-sync-delay", "0"]);
    let replica = Server::start(&["--replicaof", "127.0.0.1", &master.port.to_string()]);
    let single = Server::start(&[]);
    let sentinel = Sentinel::start("main", &master);
    eventually("the Sentinel knows the replica", async || sentinel.replicas("main") == 1).await;

    let nobody = "127.0.0.1:1";
    let watched = format!("sentinel://{nobody}+127.0.0.1:{}/main", sentinel.port.number);
    let limiter = Limiter::builder().ring([watched, url(&single)]).timeout(Duration::from_millis(500));
    let limiter = candid(limiter).build().unwrap();
    let limit = limiter.define("api", "token-bucket 1000/day burst 1000".parse().unwrap()).unwrap();
    let plan = limit.plan("hot").await.unwrap();
    assert_eq!(plan.shards.len(), 2);
    assert!(charge(&limit, "hot", 1).await);
    let nodes = limiter.ring().unwrap().unwrap().nodes();
    assert_eq!((nodes.len(), &*nodes[1].name, nodes[1].has_sentinels), (2, "main", true));
    assert_eq!(nodes[1].address.as_deref(), Some(&*format!("127.0.0.1:{}", master.port)));
    // What is charged must have reached the replica.
    for key in 0..20 {
        assert!(charge(&limit, &format!("key{key}"), 100).await);
    }
    let offset = |server: &Server| -> Option<String> {
        let info: String = cmd("INFO").arg("replication").query(&mut server.connection()).unwrap();
        let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned));
        field("slave_repl_offset:").or_else(|| field("master_repl_offset:"))
    };
    eventually("the replica has it all", async || offset(&master) == offset(&replica)).await;

    master.kill();
    let ring = limiter.ring().unwrap().unwrap();
    let promoted = format!("127.0.0.1:{}", replica.port);
    eventually("the replica has taken over", async || {
        let _ = limit.acquire("hot").await;
        ring.nodes()[1].address.as_deref() == Some(&*promoted)
    })
    .await;
    for key in 0..20 {
        let key = format!("key{key}");
        // A shard that did not answer is tried again by calls, of which each takes one.
        let mut taken = 0;
        eventually("both shards are there, with what they had", async || {
            taken += u64::from(charge(&limit, &key, 1).await);
            limit.peek(&key).await.is_ok_and(|peek| peek.remaining().permits == 900 - taken)
        })
        .await;
    }
    assert!(!ring.differs());
}

/// One that was cut off, or just started, names a master of the past for a while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sentinel_that_has_heard_of_the_latest_failover_is_believed() {
    let servers = Server::start_many(2, &[]);
    let [past, present] = &servers[..] else { unreachable!() };
    let sentinels = [Sentinel::start_at("main", past, 3), Sentinel::start_at("main", present, 7)];
    let [stale, fresh] = sentinels.each_ref().map(|sentinel| format!("127.0.0.1:{}", sentinel.port.number));
    for sentinel in &sentinels {
        let client = redis::Client::open(("127.0.0.1", sentinel.port.number)).unwrap();
        eventually("it answers", async || client.get_connection().is_ok()).await;
    }
    let present = format!("127.0.0.1:{}", present.port);
    for watched in [format!("sentinel://{stale}+{fresh}/main"), format!("sentinel://{fresh}+{stale}/main")] {
        let limiter = candid(Limiter::builder().ring([watched])).build().unwrap();
        let limit = limiter.define("api", "token-bucket 1000/day burst 1000".parse().unwrap()).unwrap();
        for _ in 0..30 {
            assert!(charge(&limit, "key", 1).await);
            assert_eq!(limiter.ring().unwrap().unwrap().nodes()[0].address.as_deref(), Some(&*present));
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}
