//! The router: each request to the master that owns its slot, and the reaction to every reply.

use std::collections::HashMap;

use arc_swap::ArcSwap;
use redis::{Value, cmd};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::budget::Budget;
use super::fault::{Address, Fault};
use super::node::{Node, clock_of};
use super::request::Request;
use super::rest::Rest;
use super::settings::Settings;
use super::timers::Timers;
use super::trouble::Trouble;
use super::view::View;
use crate::breaker::BreakerForce;
use crate::key::Slot;
use crate::observe;
use crate::store::ring::Ring;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, Mutex, lock};
use crate::topology::{Master, Topology};

/// As many as a client may follow before it must take the cluster for confused, and wait.
const REDIRECTS: usize = 5;
/// Nodes beyond those of the topology: seeds, and what redirects name. A hostile server could name another one each time.
const STRANGERS: usize = 64;

pub(crate) struct Router {
    pub(super) settings: Settings,
    /// Instead of a cluster.
    pub(in crate::store) ring: Option<Ring>,
    budget: Budget,
    view: ArcSwap<View>,
    /// Held from reading the view until another one is published.
    publishing: Mutex<()>,
    /// Every node spoken to, by address: an ASK may lead to one that owns no slot yet.
    nodes: Mutex<HashMap<Address, Arc<Node>>>,
    /// Ends all of them, and those that are made later: a look that is under way may come upon a new master yet.
    closed: CancellationToken,
    /// Whose breaker is forced: it stays so when a node goes and comes back.
    forced: Mutex<HashMap<Address, BreakerForce>>,
    /// Rung by whoever has reason to doubt the topology.
    pub(in crate::store) doubt: Arc<Notify>,
    topology: watch::Sender<Arc<Topology>>,
    rest: Rest,
    pub(super) timers: Timers,
    wanted: AtomicBool,
    /// How often the watcher has looked, and what it last failed with.
    looked: watch::Sender<Look>,
    /// Nobody owns a slot that was asked for.
    unowned: Trouble,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Look {
    pub(super) count: u64,
    pub(super) failure: Option<String>,
}

impl Router {
    pub(crate) fn new(settings: Settings, ring: Option<Ring>) -> Self {
        let topology = Arc::new(Topology::new(0, []).expect("nothing contradicts itself"));
        Self {
            budget: Budget::new(settings.patience.retries),
            settings,
            ring,
            view: ArcSwap::from_pointee(View { topology: Arc::clone(&topology), nodes: Box::default() }),
            publishing: Mutex::default(),
            nodes: Mutex::default(),
            closed: CancellationToken::new(),
            forced: Mutex::default(),
            doubt: Arc::default(),
            topology: watch::Sender::new(topology),
            rest: Rest::new(),
            timers: Timers::new(),
            wanted: AtomicBool::new(false),
            looked: watch::Sender::default(),
            unowned: Trouble::default(),
        }
    }

    pub(crate) fn ring(&self) -> Option<&Ring> {
        self.ring.as_ref()
    }

    pub(crate) fn topology(&self) -> Arc<Topology> {
        Arc::clone(&self.view.load().topology)
    }

    pub(in crate::store) async fn look_again(&self) {
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
    pub(crate) async fn run(self: &Arc<Self>, request: &Request<'_>) -> Result<Value, Fault> {
        // Why it waits.
        let waits_for = Mutex::default();
        let timeout = self.settings.patience.timeout;
        match self.timers.timeout_at(Instant::now() + timeout, self.follow(request, &waits_for)).await {
            Some(reply) => reply,
            None if request.sent.load(Ordering::Relaxed) => {
                let node = self.node_of(request.slot).map_or_else(|_| "the master".into(), |n| n.address.to_string());
                self.doubt.notify_one();
                Err(Fault::Unknown(format!("no answer from {node} within {timeout:?}")))
            }
            None => {
                let fault = lock(&waits_for).take().map(Fault::what);
                let why = self.looked.borrow().failure.clone().or(fault).unwrap_or_else(|| "no connection".into());
                Err(Fault::NotSent(format!("{why}, for {timeout:?}")))
            }
        }
    }

    /// Until an answer, or a fault for which nothing more can be done here.
    async fn follow(self: &Arc<Self>, request: &Request<'_>, waits_for: &Mutex<Option<Fault>>) -> Result<Value, Fault> {
        let mut to = None;
        let (mut asking, mut by_source) = (false, false);
        let (mut redirects, mut failed, mut left) = (0, 0, 0);
        self.budget.earn();
        let mut command = request.command(by_source);
        loop {
            let (mut was_asked, mut is_lasting) = (true, false);
            let node = match to.take() {
                Some(node) => Ok(node),
                None => self.node_for(request).await,
            };
            let fault = match node {
                Ok(node) => match node.call(&command, asking, request.sent).await {
                    Ok(answer) => {
                        node.trouble.is_over();
                        return Ok(answer);
                    }
                    Err(Fault::NoScript) if !by_source => {
                        by_source = true;
                        command = request.command(by_source);
                        to = Some(node);
                        continue;
                    }
                    Err(fault) => {
                        match fault {
                            Fault::TryAgain if asking => to = Some(node),
                            Fault::Unavailable(_) => is_lasting = self.is_lasting(&node.trouble),
                            _ => {}
                        }
                        fault
                    }
                },
                Err(fault) => {
                    was_asked = false;
                    is_lasting = matches!(fault, Fault::Unavailable(_)) && self.is_lasting(&self.unowned);
                    fault
                }
            };
            match &fault {
                Fault::Moved { .. } | Fault::Ask { .. } if self.ring.is_some() => {
                    let message = "a node of the ring is one of a cluster: give it to `redis` instead of `ring`";
                    return Err(Fault::Refused(message.into()));
                }
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
                // To wait for a look at it; the node has seen no fault.
                Fault::Left => {
                    was_asked = false;
                    redirects = REDIRECTS;
                    left += 1;
                    // Not even a look has led elsewhere: it may be what a change of long ago left there.
                    if let (true, Some(ring)) = (left > 1, &self.ring) {
                        Box::pin(ring.clear(self, request.slot, request.key)).await?;
                    }
                }
                // Another look will not help either: the failure policy decides at once, for as long as it lasts.
                Fault::Unavailable(_) if is_lasting => {
                    // Only a look finds out that it is over.
                    self.doubt.notify_one();
                    // Who owns a slot nobody knows where no look has come to anything.
                    let why = self.failure().filter(|_| !was_asked);
                    return Err(why.map_or(fault, Fault::NotSent));
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

    fn is_lasting(&self, trouble: &Trouble) -> bool {
        trouble.is_lasting(self.looked.borrow().count)
    }

    /// The clock of each slot's master, in µs: what `install` is bound to.
    pub(crate) async fn time_at(&self, slot: Slot) -> Result<u64, Fault> {
        let ask = async {
            let replies = self.node_of(slot)?.ask(&[cmd("TIME")]).await?;
            clock_of(replies.into_iter().next().unwrap_or(Value::Nil))
        };
        let late = |_| Fault::NotSent(format!("no TIME within {:?}", self.settings.patience.timeout));
        tokio::time::timeout(self.settings.patience.timeout, ask).await.map_err(late)?
    }

    /// Runs a script on this very node.
    ///
    /// # Cancel safety
    /// The script may have run.
    pub(in crate::store) async fn run_at(&self, node: &Arc<Node>, request: &Request<'_>) -> Result<Value, Fault> {
        match node.call(&request.command(false), false, request.sent).await {
            Err(Fault::NoScript) => node.call(&request.command(true), false, request.sent).await,
            reply => reply,
        }
    }

    /// The same past the breaker, for looks: they have to see when it is well again, and ring no bell.
    ///
    /// # Cancel safety
    /// The script may have run.
    pub(in crate::store) async fn look_at(&self, node: &Arc<Node>, request: &Request<'_>) -> Result<Value, Fault> {
        match node.send(&request.command(false), false, request.sent).await {
            Err(Fault::NoScript) => node.send(&request.command(true), false, request.sent).await,
            reply => reply,
        }
    }

    /// Somebody has something to keep here, and does not just look.
    pub(super) fn is_wanted_now(&self) {
        self.wanted.store(true, Ordering::Relaxed);
        self.doubt.notify_one();
    }

    /// Whether that is so.
    pub(in crate::store) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// The node that is to be asked, with what it is asked for brought there.
    async fn node_for(self: &Arc<Self>, request: &Request<'_>) -> Result<Arc<Node>, Fault> {
        let Some(ring) = &self.ring else { return self.node_of(request.slot) };
        if !self.is_wanted() {
            self.is_wanted_now();
        }
        let view = self.view.load_full();
        if ring.is_moving() {
            // Boxed: few rounds come to this, and the others carry no room for it.
            Box::pin(ring.bring(self, &view.topology, request.slot, request.key)).await?;
        }
        view.node_of(request.slot)
    }

    fn node_of(&self, slot: Slot) -> Result<Arc<Node>, Fault> {
        self.view.load().node_of(slot)
    }

    pub(in crate::store) fn node_at(&self, address: &Address) -> Arc<Node> {
        let mut nodes = lock(&self.nodes);
        if let Some(node) = nodes.get(address) {
            return Arc::clone(node);
        }
        let node = Arc::new(self.new_node(address, &self.settings));
        if let Some(force) = lock(&self.forced).get(address) {
            node.breaker.force(*force);
        }
        nodes.insert(address.clone(), Arc::clone(&node));
        node
    }

    /// One that ends with all others.
    pub(in crate::store) fn new_node(&self, address: &Address, settings: &Settings) -> Node {
        Node::new(address.clone(), settings, Arc::clone(&self.doubt), self.closed.child_token())
    }

    /// Forces the breaker of a master that is known, or of one whose breaker was forced while it was. `false`: there is none.
    pub(super) fn force_breaker(&self, master: &str, force: BreakerForce) -> bool {
        let is_it = |address: &&Address| address.to_string() == master;
        // Whoever makes a node meanwhile sees what is forced, or is seen here.
        let nodes = lock(&self.nodes);
        let forced = &mut *lock(&self.forced);
        let view = self.view.load();
        let Some(address) = view.nodes.iter().map(|node| &node.address).chain(forced.keys()).find(is_it).cloned()
        else {
            return false;
        };
        for node in nodes.get(&address).into_iter().chain(view.nodes.iter().filter(|node| node.address == address)) {
            node.breaker.force(force);
        }
        match force {
            BreakerForce::Off => forced.remove(&address),
            BreakerForce::Open | BreakerForce::Closed => forced.insert(address, force),
        };
        true
    }

    /// Opens a connection to every master that has none.
    pub(super) async fn connect(&self) -> Result<(), Fault> {
        if self.topology().masters().is_empty() {
            let why = self.looked.borrow().failure.clone();
            return Err(Fault::NotSent(why.unwrap_or_else(|| "no master is known".into())));
        }
        for node in self.nodes() {
            node.connect().await?;
        }
        Ok(())
    }

    /// Lets go of all connections, and opens no more.
    pub(super) fn close(&self) {
        self.closed.cancel();
        lock(&self.nodes).values().for_each(|node| node.close());
        self.nodes().iter().for_each(|node| node.close());
        self.ring.iter().for_each(Ring::close);
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
    pub(in crate::store) fn adopt(&self, topology: Topology) -> bool {
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
        let is_of_ring = |node: &Address| self.ring.as_ref().is_some_and(|ring| ring.needs(node));
        let is_needed = |node: &Address| serves(node) || is_of_ring(node) || self.settings.seeds().contains(node);
        lock(&self.nodes).retain(|address, _| is_needed(address));
        true
    }

    fn publish(&self, topology: Topology) {
        let nodes = topology.masters().iter().map(|master| self.node_at(&master.into())).collect();
        let topology = Arc::new(topology);
        self.view.store(Arc::new(View { topology: Arc::clone(&topology), nodes }));
        self.topology.send_replace(topology);
        self.unowned.is_over();
        self.rest.disturb();
    }

    /// Why the last look failed.
    pub(in crate::store) fn failure(&self) -> Option<String> {
        self.looked.borrow().failure.clone()
    }

    pub(in crate::store) fn has_looked(&self, failure: Option<String>) {
        self.looked.send_modify(|look| {
            look.count += 1;
            look.failure = failure;
        });
    }
}

impl Drop for Router {
    /// The watcher waits for this bell, and finds that there is nothing left to watch for. Nobody else ends what is being opened.
    fn drop(&mut self) {
        self.close();
        self.doubt.notify_one();
    }
}
