//! How a cluster is made.

use std::time::{Duration, Instant};

use redis::cmd;

use super::slots::SLOTS;
use super::{Cluster, Node, Seat};
use crate::Failure;

/// How long a cluster may take to agree on anything.
const PATIENCE: Duration = Duration::from_secs(40);

/// What a cluster is to be like.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub masters: usize,
    pub full_coverage: bool,
    /// Whether every write is in a file before it is confirmed.
    pub durable: bool,
    /// Milliseconds after which a node that does not answer counts as failed.
    pub node_timeout: u64,
    /// One for each node: masters first, then replicas in the same order.
    pub seats: Vec<Seat>,
    /// Added to the environment of each node.
    pub environments: Vec<Vec<(String, String)>>,
}

impl Cluster {
    pub(crate) fn start(setup: &Setup) -> Result<Self, Failure> {
        let yes = if setup.full_coverage { "yes" } else { "no" };
        let timeout = setup.node_timeout.to_string();
        let options: Vec<String> = ["--cluster-enabled", "yes", "--cluster-node-timeout", &timeout]
            .into_iter()
            .chain(["--cluster-require-full-coverage", yes])
            // A master that gives its last slot away would turn into a replica by itself.
            .chain(["--latency-monitor-threshold", "5"])
            .chain(["--cluster-allow-replica-migration", "no", "--repl-diskless-sync-delay", "0"])
            .chain(["--appendonly", if setup.durable { "yes" } else { "no" }, "--appendfsync", "always"])
            .map(ToOwned::to_owned)
            .collect();
        let nodes = setup
            .seats
            .iter()
            .enumerate()
            .map(|(index, seat)| {
                let environment = setup.environments.get(index).map_or(&[][..], Vec::as_slice);
                Node::start(seat.clone(), &options, environment)
            })
            .collect::<Result<_, _>>()?;
        let cluster = Self { nodes, masters: setup.masters, options };
        for (index, node) in cluster.nodes.iter().enumerate() {
            node.ask::<()>(cmd("CLUSTER").arg("SET-CONFIG-EPOCH").arg(index + 1))?;
        }
        for (index, node) in cluster.nodes[..setup.masters].iter().enumerate() {
            let edge = |part: usize| usize::from(SLOTS) * part / setup.masters;
            node.ask::<()>(cmd("CLUSTER").arg("ADDSLOTSRANGE").arg(edge(index)).arg(edge(index + 1) - 1))?;
        }
        for node in &cluster.nodes[1..] {
            cluster.meet(node)?;
        }
        cluster.wait_until_all_know_each_other()?;
        for (index, replica) in cluster.nodes[setup.masters..].iter().enumerate() {
            let master = &cluster.nodes[index % setup.masters].id;
            replica.ask::<()>(cmd("CLUSTER").arg("REPLICATE").arg(master))?;
        }
        cluster.wait_until_sound()?;
        cluster.wait_until_replicas_are_in_step()?;
        Ok(cluster)
    }

    /// The first node takes another one in.
    pub(super) fn meet(&self, node: &Node) -> Result<(), Failure> {
        let Seat { host, port, .. } = &node.seat;
        self.nodes[0].ask(cmd("CLUSTER").arg("MEET").arg(host).arg(port).arg(port + 10_000))
    }

    pub(super) fn wait_until_all_know_each_other(&self) -> Result<(), Failure> {
        self.wait_until("all nodes know each other", |cluster| {
            cluster.nodes.iter().all(|node| node.info("known_nodes") == cluster.nodes.len().to_string())
        })
    }

    /// Every running node says that the cluster is up, and all name the same owners, which run too.
    pub(crate) fn is_sound(&self) -> bool {
        let running: Vec<&Node> = self.nodes.iter().filter(|node| node.is_running()).collect();
        let views: Vec<Vec<usize>> = running.iter().map(|node| self.owners_as_seen_by(node)).collect();
        running.iter().all(|node| node.info("state") == "ok")
            && views.windows(2).all(|pair| pair[0] == pair[1])
            && views.first().is_some_and(|owners| owners.iter().all(|owner| self.runs(*owner)))
    }

    fn runs(&self, owner: usize) -> bool {
        self.nodes.get(owner).is_some_and(Node::is_running)
    }

    pub(crate) fn wait_until_sound(&self) -> Result<(), Failure> {
        self.wait_until("the cluster is up and all agree", Self::is_sound)
    }

    pub(crate) fn wait_until_replicas_are_in_step(&self) -> Result<(), Failure> {
        self.wait_until("replicas are in step", |cluster| {
            cluster.nodes.iter().filter(|node| node.is_running()).all(|node| {
                let told = node.replication();
                told.contains("role:master") || told.contains("master_link_status:up")
            })
        })
    }

    pub(crate) fn wait_until(&self, what: &str, done: impl Fn(&Self) -> bool) -> Result<(), Failure> {
        let patience = Instant::now();
        while !done(self) {
            if patience.elapsed() > PATIENCE {
                return Err(Failure::new(format!("waited {PATIENCE:?} until {what}")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// The longest that a server which runs took for one command, in ms; 0 below 5. A script takes some tens of microseconds, so this is for how long
    /// a server had no core.
    pub(crate) fn longest_command(&self) -> u64 {
        let longest = |node: &Node| {
            let events: Vec<(String, u64, u64, u64)> = node.ask(cmd("LATENCY").arg("LATEST")).unwrap_or_default();
            events.into_iter().filter(|(name, ..)| name.ends_with("command")).map(|(_, _, _, most)| most).max()
        };
        self.nodes.iter().filter(|node| node.is_running()).filter_map(longest).max().unwrap_or_default()
    }

    /// For clients: where each node that was a master at the start can be found.
    pub(crate) fn urls(&self) -> Vec<String> {
        self.nodes[..self.masters].iter().map(|node| node.seat.url()).collect()
    }
}
