//! The router: each request to the master that owns its slot, and the reaction to every reply.

use std::collections::HashMap;

use arc_swap::ArcSwap;
use redis::{Cmd, Value, cmd};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout_at};

use super::budget::Budget;
use super::fault::{Address, Fault};
use super::node::{Node, clock_of};
use super::rest::Rest;
use super::settings::Settings;
use crate::key::Slot;
use crate::observe;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, Mutex, lock};
use crate::topology::{Master, Topology};
use crate::wire::Script;

/// As many as a client may follow before it must take the cluster for confused, and wait.
const REDIRECTS: usize = 5;
/// Nodes beyond those of the topology: seeds, and what redirects name. A hostile server could name another one each time.
const STRANGERS: usize = 64;

pub(crate) struct Router {
    pub(super) settings: Settings,
    budget: Budget,
    view: ArcSwap<View>,
    /// Held from reading the view until another one is published.
    publishing: Mutex<()>,
    /// Every node spoken to, by address: an ASK may lead to one that owns no slot yet.
    nodes: Mutex<HashMap<Address, Arc<Node>>>,
    /// Rung by whoever has reason to doubt the topology.
    pub(super) doubt: Arc<Notify>,
    topology: watch::Sender<Arc<Topology>>,
    rest: Rest,
    /// How often the watcher has looked, and what it last failed with.
    looked: watch::Sender<Look>,
}

/// One snapshot: a slot leads to its node by two look-ups in arrays.
struct View {
    topology: Arc<Topology>,
    nodes: Box<[Arc<Node>]>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Look {
    pub(super) count: u64,
    pub(super) failure: Option<String>,
}

/// One script run on one key.
pub(crate) struct Request<'a> {
    pub slot: Slot,
    pub script: Script,
    pub key: &'a [u8],
    /// Adds the script's arguments.
    pub arguments: &'a (dyn Fn(&mut Cmd) + Sync),
    /// Whether it is on its way, and may run.
    pub sent: &'a AtomicBool,
}

impl Request<'_> {
    pub(super) fn command(&self, by_source: bool) -> Cmd {
        let mut command = if by_source { cmd("EVAL") } else { cmd("EVALSHA") };
        command.arg(if by_source { self.script.source() } else { self.script.sha() }).arg(1).arg(self.key);
        (self.arguments)(&mut command);
        command
    }
}

impl Router {
    pub(crate) fn new(settings: Settings) -> Self {
        let topology = Arc::new(Topology::new(0, []).expect("nothing contradicts itself"));
        Self {
            budget: Budget::new(settings.retries),
            settings,
            view: ArcSwap::from_pointee(View { topology: Arc::clone(&topology), nodes: Box::default() }),
            publishing: Mutex::default(),
            nodes: Mutex::default(),
            doubt: Arc::default(),
            topology: watch::Sender::new(topology),
            rest: Rest::new(),
            looked: watch::Sender::default(),
        }
    }

    pub(crate) fn topology(&self) -> Arc<Topology> {
        Arc::clone(&self.view.load().topology)
    }

    pub(super) async fn look_again(&self) {
        let mut looked = self.looked.subscribe();
        self.doubt.notify_one();
        let _ = looked.changed().await;
    }

    pub(super) fn settled(&self) -> Option<u64> {
        self.rest.settled()
    }

    pub(crate) fn watch_topology(&self) -> watch::Receiver<Arc<Topology>> {
        self.topology.subscribe()
    }

    /// Runs a script on the master that owns the slot.
    ///
    /// # Cancel safety
    /// The script may have run.
    pub(crate) async fn run(&self, request: &Request<'_>) -> Result<Value, Fault> {
        // Why it waits.
        let waits_for = Mutex::default();
        let timeout = self.settings.timeout;
        match timeout_at(Instant::now() + timeout, self.follow(request, &waits_for)).await {
            Ok(reply) => reply,
            Err(_) if request.sent.load(Ordering::Relaxed) => {
                let node = self.node_of(request.slot).map_or_else(|_| "the master".into(), |n| n.address.to_string());
                self.doubt.notify_one();
                Err(Fault::Unknown(format!("no answer from {node} within {timeout:?}")))
            }
            Err(_) => {
                let fault = lock(&waits_for).take().map(Fault::what);
                let why = self.looked.borrow().failure.clone().or(fault).unwrap_or_else(|| "no connection".into());
                Err(Fault::NotSent(format!("{why}, for {timeout:?}")))
            }
        }
    }

    /// Until an answer, or a fault for which nothing more can be done here.
    async fn follow(&self, request: &Request<'_>, waits_for: &Mutex<Option<Fault>>) -> Result<Value, Fault> {
        let mut to = None;
        let (mut asking, mut by_source) = (false, false);
        let (mut redirects, mut failed) = (0, 0);
        self.budget.earn();
        let mut command = request.command(by_source);
        loop {
            let mut was_asked = true;
            let reply = match to.take().map_or_else(|| self.node_of(request.slot), Ok) {
                Ok(node) => match node.call(&command, asking, request.sent).await {
                    Err(Fault::NoScript) if !by_source => {
                        by_source = true;
                        command = request.command(by_source);
                        to = Some(node);
                        continue;
                    }
                    Err(Fault::TryAgain) if asking => {
                        to = Some(node);
                        Err(Fault::TryAgain)
                    }
                    reply => reply,
                },
                Err(fault) => {
                    was_asked = false;
                    Err(fault)
                }
            };
            let fault = match reply {
                Ok(answer) => return Ok(answer),
                Err(fault) => fault,
            };
            match &fault {
                Fault::Moved { slot, to: address } => {
                    self.moved(*slot, address);
                    asking = false;
                    to = Some(self.stranger_at(address));
                }
                Fault::Ask { to: address } => {
                    asking = true;
                    to = Some(self.stranger_at(address));
                }
                Fault::TryAgain => {
                    failed += 1;
                    let Some(wait) = self.budget.take(failed, Instant::now().into_std()) else { return Err(fault) };
                    sleep(wait).await;
                }
                Fault::Unavailable(_) => redirects = REDIRECTS,
                Fault::NoScript | Fault::Refused(_) | Fault::NotSent(_) | Fault::Unknown(_) => return Err(fault),
            }
            redirects += 1;
            if redirects > REDIRECTS {
                // The nodes do not agree yet, or none can serve: not before the watcher has looked again.
                (to, asking, redirects) = (None, false, 0);
                // To wait for a topology is no retry.
                failed += u32::from(was_asked);
                if was_asked && self.budget.take(failed, Instant::now().into_std()).is_none() {
                    return Err(fault);
                }
                *lock(waits_for) = Some(fault.clone());
                let mut looked = self.looked.subscribe();
                self.doubt.notify_one();
                if looked.changed().await.is_err() {
                    return Err(fault);
                }
            }
        }
    }

    /// The clock of each slot's master, in µs: what `install` is bound to.
    pub(crate) async fn time_at(&self, slot: Slot) -> Result<u64, Fault> {
        let ask = async {
            let replies = self.node_of(slot)?.ask(&[cmd("TIME")]).await?;
            clock_of(replies.into_iter().next().unwrap_or(Value::Nil))
        };
        let late = |_| Fault::NotSent(format!("no TIME within {:?}", self.settings.timeout));
        tokio::time::timeout(self.settings.timeout, ask).await.map_err(late)?
    }

    fn node_of(&self, slot: Slot) -> Result<Arc<Node>, Fault> {
        let view = self.view.load();
        match view.topology.index_of(slot) {
            Some(index) => Ok(Arc::clone(&view.nodes[index])),
            None => Err(Fault::Unavailable(format!("no master owns slot {}", slot.number()))),
        }
    }

    pub(super) fn node_at(&self, address: &Address) -> Arc<Node> {
        let mut nodes = lock(&self.nodes);
        if let Some(node) = nodes.get(address) {
            return Arc::clone(node);
        }
        let node = Arc::new(Node::new(address.clone(), &self.settings, Arc::clone(&self.doubt)));
        nodes.insert(address.clone(), Arc::clone(&node));
        node
    }

    /// Opens a connection to every master that has none.
    pub(super) async fn connect(&self) -> Result<(), Fault> {
        if self.topology().masters().is_empty() {
            let why = self.looked.borrow().failure.clone();
            return Err(Fault::NotSent(why.unwrap_or_else(|| "no master is known".into())));
        }
        for node in self.nodes() {
            node.connect_ahead().await?;
        }
        Ok(())
    }

    /// Lets go of all connections.
    pub(super) fn close(&self) {
        lock(&self.nodes).values().for_each(|node| node.close());
        self.nodes().iter().for_each(|node| node.close());
    }

    /// A call on a shard of this slot has reached its deadline without an answer.
    pub(super) fn is_overdue(&self, slot: Slot) {
        if let Ok(node) = self.node_of(slot) {
            node.breaker.overdue(std::time::Instant::now());
        }
        self.doubt.notify_one();
    }

    /// The node that a redirect names.
    fn stranger_at(&self, address: &Address) -> Arc<Node> {
        let view = self.view.load_full();
        let mut nodes = lock(&self.nodes);
        if nodes.len() > view.nodes.len() + STRANGERS {
            nodes.retain(|_, node| view.nodes.iter().any(|known| Arc::ptr_eq(known, node)));
        }
        drop(nodes);
        self.node_at(address)
    }

    /// The nodes of the present view.
    pub(crate) fn nodes(&self) -> Vec<Arc<Node>> {
        self.view.load().nodes.to_vec()
    }

    /// One slot is another master's: known to all from now on; the watcher will look at the whole.
    fn moved(&self, slot: Slot, to: &Address) {
        self.doubt.notify_one();
        let _one = lock(&self.publishing);
        let same = |master: &Master| master.host == to.host && master.port == to.port;
        let known = self.topology();
        if known.master_of(slot).is_some_and(same) {
            return;
        }
        let master = known.masters().iter().find(|master| same(master)).cloned().unwrap_or_else(|| Master {
            id: to.to_string().into(),
            host: to.host.clone(),
            port: to.port,
        });
        self.publish(known.with_moved(slot, master));
    }

    /// Takes a whole new snapshot, unless it is older than what is known. Says whether it was taken.
    pub(super) fn adopt(&self, topology: Topology) -> bool {
        let _one = lock(&self.publishing);
        let known = self.topology();
        if topology.is_older_than(&known) {
            return false;
        }
        if *known != topology {
            observe::topology_changed(&topology);
            self.publish(topology);
        }
        let current = self.topology();
        let serves = |node: &Address| {
            current.masters().iter().any(|master| master.host == node.host && master.port == node.port)
        };
        lock(&self.nodes).retain(|address, _| serves(address) || self.settings.seeds().contains(address));
        true
    }

    fn publish(&self, topology: Topology) {
        let address = |master: &Master| Address { host: master.host.clone(), port: master.port };
        let nodes = topology.masters().iter().map(|master| self.node_at(&address(master))).collect();
        let topology = Arc::new(topology);
        self.view.store(Arc::new(View { topology: Arc::clone(&topology), nodes }));
        self.topology.send_replace(topology);
        self.rest.disturb();
    }

    pub(super) fn has_looked(&self, failure: Option<String>) {
        self.looked.send_modify(|look| {
            look.count += 1;
            look.failure = failure;
        });
    }
}

impl Drop for Router {
    /// The watcher waits for this bell, and finds that there is nothing left to watch for.
    fn drop(&mut self) {
        self.doubt.notify_one();
    }
}
