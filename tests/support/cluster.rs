//! Real Redis Clusters on loopback, gone when the test is, also when it panics.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use redis::{Cmd, Connection, FromRedisValue, RedisResult, cmd};

use super::server::Server;

pub const SLOTS: u16 = 16_384;

/// Which slots each of `masters` gets when the cluster is made.
#[derive(Clone, Copy)]
pub enum Layout {
    /// Each a run of slots, as `redis-cli --cluster create` deals them.
    Contiguous,
    /// Slot by slot in turn: neighbours lie on different masters.
    Striped,
    /// As contiguous, but the last master gets none.
    LastEmpty,
}

/// Whether tests run on a ring of servers instead of a cluster. Those that move slots, or fail masters over, can't.
pub fn is_ring() -> bool {
    std::env::var("SHARDLIMIT_TESTS").is_ok_and(|store| store == "ring")
}

/// Who has which slot of a ring: set by those who have a client to ask.
pub static OWNERS_BY_RING: OnceLock<fn(&Cluster) -> Vec<usize>> = OnceLock::new();

pub struct Cluster {
    pub nodes: Vec<Node>,
    options: Vec<String>,
}

pub struct Node {
    pub server: Server,
    pub id: String,
}

/// A slot that is on its way: the source answers ASK for keys that it no longer has.
#[must_use = "a migration that is not finished leaves the slot open"]
pub struct Migration {
    slot: u16,
    from: usize,
    to: usize,
}

impl Cluster {
    /// `masters` first, then their replicas, `replicas` for each.
    ///
    /// A node of another test's cluster may still be looking for one that had the same port, and take ours for it: then
    /// this one is begun again, on other ports.
    pub fn start(masters: usize, replicas: usize, layout: Layout, options: &[&str]) -> Self {
        if is_ring() {
            assert_eq!(replicas, 0, "a ring has none");
            let node = |server: Server| Node { id: format!("127.0.0.1:{}", server.port), server };
            let nodes = Server::start_many(masters, options).into_iter().map(node).collect();
            return Self { nodes, options: options.iter().map(ToString::to_string).collect() };
        }
        let mut tries = 0;
        loop {
            match Self::try_start(masters, replicas, layout, options) {
                Ok(cluster) => return cluster,
                Err(error) => {
                    tries += 1;
                    assert!(tries < 3, "no cluster in {tries} tries, the last time for: {error}");
                    eprintln!("the cluster is begun again: {error}");
                }
            }
        }
    }

    fn try_start(masters: usize, replicas: usize, layout: Layout, options: &[&str]) -> RedisResult<Self> {
        let mut all = vec!["--cluster-enabled", "yes", "--cluster-node-timeout", "1000"];
        // A master that gives its last slot away would turn into a replica by itself.
        all.extend(["--cluster-allow-replica-migration", "no"]);
        all.extend(options);
        let servers = Server::start_many(masters * (1 + replicas), &all);
        let nodes = servers.into_iter().map(Node::new).collect();
        let cluster = Self { nodes, options: all.iter().map(ToString::to_string).collect() };
        for (index, node) in cluster.nodes.iter().enumerate() {
            node.try_ask::<()>(cmd("CLUSTER").arg("SET-CONFIG-EPOCH").arg(index + 1))?;
        }
        cluster.deal(masters, layout)?;
        for node in &cluster.nodes[1..] {
            cluster.nodes[0].try_ask::<()>(cmd("CLUSTER").arg("MEET").arg("127.0.0.1").arg(node.server.port))?;
        }
        cluster.wait_until("all nodes know each other", |cluster| {
            cluster.nodes.iter().all(|node| node.info("known_nodes") == cluster.nodes.len().to_string())
        });
        for (index, replica) in cluster.nodes[masters..].iter().enumerate() {
            replica.try_ask::<()>(cmd("CLUSTER").arg("REPLICATE").arg(&cluster.nodes[index % masters].id))?;
        }
        cluster.wait_until_ok();
        // Who replicates whom is gossip too.
        cluster.wait_until("all nodes know the replicas", |cluster| {
            let known = |node: &Node| {
                let nodes: String = node.try_ask(cmd("CLUSTER").arg("NODES")).unwrap_or_default();
                nodes.matches("slave ").count()
            };
            cluster.nodes.iter().all(|node| known(node) == masters * replicas)
        });
        cluster.wait_until("replicas are in step", |cluster| {
            cluster.nodes[masters..].iter().all(|replica| replica.replication().contains("master_link_status:up"))
        });
        Ok(cluster)
    }

    fn deal(&self, masters: usize, layout: Layout) -> RedisResult<()> {
        let owners = match layout {
            Layout::Contiguous | Layout::Striped => masters,
            Layout::LastEmpty => masters - 1,
        };
        for (index, node) in self.nodes[..owners].iter().enumerate() {
            let mine: Vec<u16> = match layout {
                Layout::Striped => (0..SLOTS).filter(|slot| usize::from(*slot) % owners == index).collect(),
                Layout::Contiguous | Layout::LastEmpty => {
                    let edge = |part: usize| (usize::from(SLOTS) * part / owners) as u16;
                    (edge(index)..edge(index + 1)).collect()
                }
            };
            node.try_ask::<()>(cmd("CLUSTER").arg("ADDSLOTS").arg(mine))?;
        }
        Ok(())
    }

    /// Every running node says that the cluster is up, and all name the same owners.
    pub fn wait_until_ok(&self) {
        if is_ring() {
            return;
        }
        self.wait_until("the cluster is up and all agree", |cluster| {
            let running: Vec<&Node> = cluster.nodes.iter().filter(|node| node.server.is_running()).collect();
            let views: Vec<Vec<usize>> = running.iter().map(|node| cluster.owners_as_seen_by(node)).collect();
            running.iter().all(|node| node.info("state") == "ok") && views.windows(2).all(|pair| pair[0] == pair[1])
        });
    }

    pub fn wait_until(&self, what: &str, done: impl Fn(&Self) -> bool) {
        let patience = Instant::now();
        while !done(self) {
            assert!(patience.elapsed() < Duration::from_secs(30), "waited 30 s until {what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// For each slot the index of the node that owns it; `usize::MAX` where nobody does.
    pub fn owners_as_seen_by(&self, node: &Node) -> Vec<usize> {
        type Range = (u16, u16, Vec<redis::Value>);
        let mut owners = vec![usize::MAX; usize::from(SLOTS)];
        let Ok(ranges) = node.try_ask::<Vec<Vec<redis::Value>>>(cmd("CLUSTER").arg("SLOTS")) else { return owners };
        for range in ranges {
            let number = |at: usize| redis::from_redis_value_ref::<u16>(&range[at]).unwrap();
            let (from, to, master): Range = (number(0), number(1), redis::from_redis_value_ref(&range[2]).unwrap());
            let port: u16 = redis::from_redis_value_ref(&master[1]).unwrap();
            let index = self.nodes.iter().position(|node| node.server.port == port).unwrap_or(usize::MAX);
            owners[usize::from(from)..=usize::from(to)].fill(index);
        }
        owners
    }

    pub fn owner_of(&self, slot: u16) -> usize {
        self.owners()[usize::from(slot)]
    }

    /// The node that owns each slot.
    pub fn owners(&self) -> Vec<usize> {
        if is_ring() {
            return OWNERS_BY_RING.get().expect("a client was made before")(self);
        }
        let witness = self.nodes.iter().find(|node| node.server.is_running()).expect("a running node");
        self.owners_as_seen_by(witness)
    }

    /// Opens the slot at both ends. Until it is finished, keys that have left are answered with ASK.
    pub fn begin_migration(&self, slot: u16, to: usize) -> Migration {
        let from = self.owner_of(slot);
        assert_ne!(from, to, "slot {slot} is there already");
        let set = |node: usize, state: &str, other: usize| {
            self.nodes[node].ask::<()>(cmd("CLUSTER").arg("SETSLOT").arg(slot).arg(state).arg(&self.nodes[other].id));
        };
        set(to, "IMPORTING", from);
        set(from, "MIGRATING", to);
        Migration { slot, from, to }
    }

    /// Moves every key of the slot with a real MIGRATE; says how many.
    pub fn move_keys(&self, migration: &Migration) -> usize {
        let Migration { slot, from, to } = *migration;
        let mut moved = 0;
        loop {
            let keys: Vec<Vec<u8>> = self.nodes[from].ask(cmd("CLUSTER").arg("GETKEYSINSLOT").arg(slot).arg(100));
            if keys.is_empty() {
                return moved;
            }
            moved += keys.len();
            let mut migrate = cmd("MIGRATE");
            migrate.arg("127.0.0.1").arg(self.nodes[to].server.port).arg("").arg(0).arg(5_000).arg("KEYS").arg(keys);
            self.nodes[from].ask::<()>(&migrate);
        }
    }

    /// Gives the slot to its new owner, which tells the others.
    #[allow(clippy::needless_pass_by_value)] // it is over: nobody can go on with it
    pub fn finish_migration(&self, migration: Migration) {
        let Migration { slot, from, to } = migration;
        for node in [to, from] {
            let owner = &self.nodes[to].id;
            self.nodes[node].ask::<()>(cmd("CLUSTER").arg("SETSLOT").arg(slot).arg("NODE").arg(owner));
        }
    }

    pub fn migrate(&self, slot: u16, to: usize) {
        let migration = self.begin_migration(slot, to);
        self.move_keys(&migration);
        self.finish_migration(migration);
    }

    /// Makes a replica the master of its slots, by command, and waits until all know.
    pub fn fail_over_to(&self, replica: usize) {
        self.nodes[replica].ask::<()>(cmd("CLUSTER").arg("FAILOVER"));
        self.wait_until("the replica is master", |cluster| {
            cluster.nodes[replica].replication().contains("role:master")
        });
        self.wait_until_ok();
    }

    /// A new master without slots. Returns its index.
    pub fn add_master(&mut self) -> usize {
        let options: Vec<&str> = self.options.iter().map(String::as_str).collect();
        let node = Node::new(Server::start(&options));
        node.ask::<()>(cmd("CLUSTER").arg("MEET").arg("127.0.0.1").arg(self.nodes[0].server.port));
        self.nodes.push(node);
        self.wait_until("all know the new node", |cluster| {
            let count = cluster.nodes.iter().filter(|node| node.server.is_running()).count().to_string();
            cluster.nodes.iter().filter(|node| node.server.is_running()).all(|node| node.info("known_nodes") == count)
        });
        self.wait_until_ok();
        self.nodes.len() - 1
    }

    /// Takes a node without slots out of the cluster for good.
    pub fn remove(&mut self, index: usize) {
        let gone = self.nodes.remove(index);
        assert!(gone.replication().contains("role:master"), "remove a replica's master link first");
        drop(gone.server);
        for node in self.nodes.iter().filter(|node| node.server.is_running()) {
            node.ask::<()>(cmd("CLUSTER").arg("FORGET").arg(&gone.id));
        }
    }
}

impl Node {
    fn new(server: Server) -> Self {
        let id = cmd("CLUSTER").arg("MYID").query(&mut server.connection()).expect("a cluster node");
        Self { server, id }
    }

    pub fn connection(&self) -> Connection {
        self.server.connection()
    }

    pub fn try_ask<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        let mut connection = self.server.client().get_connection_with_timeout(Duration::from_secs(2))?;
        connection.set_read_timeout(Some(Duration::from_secs(10)))?;
        command.query(&mut connection)
    }

    pub fn ask<T: FromRedisValue>(&self, command: &Cmd) -> T {
        self.try_ask(command).unwrap_or_else(|error| panic!("port {}: {error}", self.server.port))
    }

    /// A field of CLUSTER INFO, without its `cluster_`.
    pub fn info(&self, field: &str) -> String {
        let info: String = self.try_ask(cmd("CLUSTER").arg("INFO")).unwrap_or_default();
        let value = info.lines().find_map(|line| line.strip_prefix(&format!("cluster_{field}:")));
        value.unwrap_or_default().to_owned()
    }

    pub fn replication(&self) -> String {
        self.try_ask(cmd("INFO").arg("replication")).unwrap_or_default()
    }
}
