//! A cluster with all that a fault may need around it.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::Failure;
use crate::clock::{Nanos, now};
use crate::cluster::{Cluster, Seat, Setup};
use crate::fault::{Needs, Place};
use crate::limiter::{KEY, Settings};
use crate::network::{self, Network};
use crate::options::Suite;
use crate::proxy::Proxy;

pub(crate) const MASTERS: usize = 3;
/// A master that does not answer for so long has failed, in milliseconds.
pub(crate) const NODE_TIMEOUT: u64 = 1_000;

/// Where a fault takes place.
pub(crate) struct Stage {
    pub cluster: Cluster,
    pub network: Option<Network>,
    pub proxies: Vec<Proxy>,
    /// The shards of the hot key; home comes first.
    pub shards: Vec<Shard>,
    pub replicas: bool,
    /// How long a fault lasts that has no length of its own.
    pub length: Duration,
    folder: PathBuf,
}

/// One shard of the hot key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shard {
    pub slot: u16,
    /// Whose slot it is at the start.
    pub node: usize,
    pub burst: u64,
    /// Permits in each of the limit's periods.
    pub permits: u64,
}

/// When a fault was there, and whom it hit.
#[derive(Clone, Debug)]
pub(crate) struct Marks {
    pub begin: Nanos,
    /// When it was taken away, or the cluster had got over it by itself.
    pub end: Nanos,
    /// The nodes it was done to.
    pub sick: Vec<usize>,
}

impl Stage {
    pub(crate) fn build(suite: &Suite, needs: Needs, folder: &Path) -> Result<Self, Failure> {
        let count = MASTERS * (1 + usize::from(suite.replicas));
        let is_network = needs.place == Place::Network;
        let network = if is_network { Some(Network::new(count, suite.processes)?) } else { None };
        let mut proxies = Vec::new();
        let seats = (0..count).map(|index| {
            if is_network {
                let name = network::server(index);
                let host = network::address(&name);
                return Ok(Seat { namespace: Some(name), host, port: network::PORT, announced: network::PORT });
            }
            let port = free_port()?.1;
            let mut announced = port;
            if needs.place == Place::Proxied {
                proxies.push(Proxy::start(free_port()?.0, port)?);
                announced = proxies[index].port;
            }
            Ok(Seat { namespace: None, host: "127.0.0.1".into(), port, announced })
        });
        let seats = seats.collect::<Result<_, Failure>>()?;
        let is_lied_to = needs.place == Place::Lied;
        let environments = (0..count).map(|index| if is_lied_to { lies(folder, index) } else { Ok(Vec::new()) });
        let setup = Setup {
            masters: MASTERS,
            full_coverage: suite.full_coverage,
            durable: needs.durable,
            node_timeout: NODE_TIMEOUT,
            seats,
            environments: environments.collect::<Result<_, Failure>>()?,
        };
        let cluster = Cluster::start(&setup)?;
        Ok(Self {
            cluster,
            network,
            proxies,
            shards: Vec::new(),
            replicas: suite.replicas > 0,
            length: Duration::from_secs(suite.seconds),
            folder: folder.to_path_buf(),
        })
    }

    /// Finds out where the hot key's shards are. This client is another one, and calls no more afterwards.
    pub(crate) fn look_up_shards(&mut self, settings: &Settings) -> Result<(), Failure> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let limit = settings.define(&self.cluster.urls())?;
        let plan = runtime.block_on(limit.plan(KEY))?;
        self.shards = plan
            .shards
            .iter()
            .map(|shard| {
                let slot = shard.slot.number();
                let node = self.cluster.owner_of(slot)?;
                Ok(Shard { slot, node, burst: shard.burst, permits: shard.permits })
            })
            .collect::<Result<_, Failure>>()?;
        if self.shards.len() < 2 {
            return Err(Failure::new("the limit is too small to be split: there would be no healthy shards"));
        }
        Ok(())
    }

    /// One more master, on loopback.
    pub(crate) fn add_master(&mut self) -> Result<(), Failure> {
        let port = free_port()?.1;
        self.cluster.add_master(Seat { namespace: None, host: "127.0.0.1".into(), port, announced: port })
    }

    /// The master of home.
    pub(crate) fn home(&self) -> usize {
        self.shards[0].node
    }

    /// The master of a share that home lent.
    pub(crate) fn victim(&self) -> usize {
        self.shards[1].node
    }

    /// Once it has taken over, the one that was its master is its replica.
    pub(crate) fn replica_of(&self, master: usize) -> usize {
        let masters = self.cluster.masters;
        if master < masters { master + masters } else { master - masters }
    }

    pub(crate) fn network(&self) -> Result<&Network, Failure> {
        self.network.as_ref().ok_or_else(|| Failure::new("this fault needs a network"))
    }

    /// Lets a server believe that it is earlier or later, as `+30s`.
    pub(crate) fn set_clock(&self, node: usize, offset: &str) -> Result<(), Failure> {
        Ok(std::fs::write(clock_file(&self.folder, node), offset)?)
    }

    /// Does something again and again, for as long as the fault lasts.
    pub(crate) fn keep_doing(
        &self,
        pause: Duration,
        mut what: impl FnMut(&Self) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let end = now() + self.length.as_nanos() as Nanos;
        while now() < end {
            what(self)?;
            std::thread::sleep(pause);
        }
        Ok(())
    }
}

impl Marks {
    pub(crate) fn begin(sick: &[usize]) -> Self {
        Self { begin: now(), end: Nanos::MAX, sick: sick.to_vec() }
    }

    /// It is over now.
    pub(crate) fn end(self) -> Self {
        Self { end: now(), ..self }
    }
}

fn clock_file(folder: &Path, node: usize) -> PathBuf {
    folder.join(format!("clock-{node}"))
}

/// The environment of a server whose clock can be stepped while it runs.
fn lies(folder: &Path, node: usize) -> Result<Vec<(String, String)>, Failure> {
    let file = clock_file(folder, node);
    std::fs::write(&file, "+0s")?;
    let library = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"]
        .map(|folder| Path::new(folder).join("faketime/libfaketimeMT.so.1"))
        .into_iter()
        .find(|library| library.exists())
        .ok_or_else(|| Failure::new("libfaketime is missing: install the package faketime"))?;
    let pairs = [
        // With libc's allocator: jemalloc asks for the time before libfaketime can tell it, and the server hangs.
        ("LD_PRELOAD", format!("{}:libc.so.6", library.display())),
        ("FAKETIME_TIMESTAMP_FILE", file.display().to_string()),
        ("FAKETIME_CACHE_DURATION", "1".into()),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
        ("DONT_FAKE_MONOTONIC", "1".into()),
    ];
    Ok(pairs.map(|(name, value)| (name.to_owned(), value)).to_vec())
}

/// A port whose cluster bus (10,000 above) exists too.
fn free_port() -> Result<(TcpListener, u16), Failure> {
    loop {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let port = listener.local_addr()?.port();
        if port < 55_000 {
            return Ok((listener, port));
        }
    }
}
