//! Where a command's limit lives. The one place that chooses a store.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};
use shardlimit::{
    Config, FailurePolicy, Leases, LeastLoaded, Limit, Limiter, NamedLimit, PowerOfTwo, RoundRobin, Shards,
};

use tokio::runtime::Handle;

use crate::error::Failure;
use crate::options::{LimitOrConfig, RedisOptions};
use crate::values;

/// For how long a leased permit may be held.
const LEASE_TTL: Duration = Duration::from_millis(50);

/// How permits come to the callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Mode {
    /// Each is charged when a call asks for it.
    Exact,
    /// They are taken ahead, and spent in process.
    Leased,
}

impl Mode {
    /// The word for it in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Leased => "leased",
        }
    }
}

impl FromStr for Mode {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self, Failure> {
        match text {
            "exact" => Ok(Self::Exact),
            "leased" => Ok(Self::Leased),
            other => Err(Failure::usage("mode", format!("must be exact or leased, got {other:?}"))),
        }
    }
}

/// Which store, and how a limit is split on it.
#[derive(Args, Clone, Debug)]
pub(crate) struct StoreOptions {
    #[command(flatten)]
    pub redis: RedisOptions,
    #[command(flatten)]
    pub shards: ShardsOption,
    /// With `--shards auto`: script runs a second, of all clients together, from which a key is split [default: 5000]
    #[arg(long, value_name = "RUNS", value_parser = values::hot, allow_hyphen_values = true)]
    pub hot: Option<u64>,
    /// The revision of the definition: of two that differ, the higher one counts [default: the moment of the call]
    #[arg(long, value_name = "N", value_parser = values::revision, allow_hyphen_values = true)]
    pub revision: Option<u64>,
    /// Which shard a call asks first: round-robin, least-loaded or power-of-two
    #[arg(long, value_name = "SELECTOR", default_value = "round-robin", allow_hyphen_values = true)]
    pub selector: Selector,
    /// What decides where a shard can't: error, open, closed, local, or local with a ratio such as local:0.8
    #[arg(long, value_name = "POLICY", default_value = "error", allow_hyphen_values = true)]
    pub on_failure: FailurePolicy,
    /// The longest that a call may take
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = values::deadline, allow_hyphen_values = true)]
    pub deadline: Duration,
}

#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct ShardsOption {
    /// How many shards a key is split into: per-master, off, auto (while it is hot), or a number
    #[arg(long, value_name = "SHARDS", default_value = "per-master", allow_hyphen_values = true)]
    pub shards: Shards,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Selector {
    RoundRobin,
    LeastLoaded,
    PowerOfTwo,
}

impl FromStr for Selector {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self, Failure> {
        match text {
            "round-robin" => Ok(Self::RoundRobin),
            "least-loaded" => Ok(Self::LeastLoaded),
            "power-of-two" => Ok(Self::PowerOfTwo),
            other => {
                let message = format!("must be round-robin, least-loaded or power-of-two, got {other:?}");
                Err(Failure::usage("selector", message))
            }
        }
    }
}

/// The same, as one process tells it to another. It may hold a password.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Store {
    /// None: the embedded store. The state is then this process's own, and as new whenever it starts.
    urls: Vec<String>,
    /// Whether they form a ring.
    is_ring: bool,
    shards: String,
    /// Without them, the library's own.
    hot: Option<u64>,
    revision: Option<u64>,
    selector: Selector,
    mode: Mode,
    on_failure: String,
    deadline: Duration,
    /// Instead of all of this.
    file: Option<File>,
}

/// A configuration file. Other processes are told where it lies, and read it for themselves: with it belong files beside it, and
/// variables of the environment.
#[derive(Clone, Serialize, Deserialize)]
struct File {
    path: PathBuf,
    /// What it says, in the process that has read it.
    #[serde(skip)]
    read: Option<Config>,
    store: String,
    /// For how long permits of the limit may be held above its burst.
    held: Duration,
}

impl Eq for File {}

impl PartialEq for File {
    fn eq(&self, other: &Self) -> bool {
        (&self.path, &self.store, self.held) == (&other.path, &other.store, other.held)
    }
}

impl File {
    fn config(&self) -> Result<Config, Failure> {
        Ok(self.read.clone().map_or_else(|| Config::read(&self.path), Ok)?)
    }
}

/// Longer than a request may take: what is wrong with that says more than that a call is late.
const DEADLINE: Duration = Duration::from_secs(1);

impl Store {
    /// The store and the limit that a command is about.
    pub(crate) fn of(options: &StoreOptions, limit: &LimitOrConfig) -> Result<(Self, Limit), Failure> {
        let store = Self::new(options);
        let (limit, path) = match (&limit.limit, &limit.config) {
            (Some(limit), _) => return Ok((store, *limit)),
            (None, Some(path)) => (limit, path),
            (None, None) => return Err(Failure::usage("limit", "is missing; give one, or a --config that has it")),
        };
        let config = Config::read(path)?;
        let found = config.limits().find(|(name, _)| *name == limit.name).map(|(_, limit)| limit);
        let Some(found) = found else {
            let known = config.limits().map(|(name, _)| name).collect::<Vec<_>>().join(", ");
            let message = format!("{:?} is no limit of {}; its limits are: {known}", limit.name, path.display());
            return Err(Failure::usage("name", message));
        };
        let leases = config.leases(&limit.name);
        let mode = if leases.is_some() { Mode::Leased } else { Mode::Exact };
        let held = leases.filter(|leases| !leases.is_within_burst()).map_or(Duration::ZERO, |leases| leases.held_for());
        let file = File { path: path.clone(), store: config.store().into(), read: Some(config), held };
        Ok((Self { file: Some(file), mode, ..store }, found))
    }

    fn new(options: &StoreOptions) -> Self {
        let StoreOptions { redis, shards, hot, revision, selector, on_failure, deadline } = options;
        let (on_failure, deadline) = (on_failure.to_string(), *deadline);
        let on = Self::on(redis, shards.shards);
        Self { hot: *hot, revision: *revision, selector: *selector, on_failure, deadline, ..on }
    }

    /// For a look at what others define, or a change of it: whatever the program itself has to define comes before all of
    /// theirs, so that it replaces nothing.
    pub(crate) fn beside_others(redis: &RedisOptions, shards: Shards) -> Self {
        Self { revision: Some(0), ..Self::on(redis, shards) }
    }

    pub(crate) fn embedded() -> Self {
        Self::on(&RedisOptions { redis: None, ring: None }, Shards::default())
    }

    fn on(redis: &RedisOptions, shards: Shards) -> Self {
        let urls = redis.redis.iter().flat_map(|urls| &urls.0).map(|url| url.as_str().to_owned());
        let urls = urls.chain(redis.ring.iter().flat_map(|nodes| nodes.0.clone())).collect();
        let (shards, selector) = (shards.to_string(), Selector::RoundRobin);
        let on_failure = FailurePolicy::Error.to_string();
        let (hot, revision, mode) = (None, None, Mode::Exact);
        Self {
            urls,
            is_ring: redis.ring.is_some(),
            shards,
            hot,
            revision,
            selector,
            mode,
            on_failure,
            deadline: DEADLINE,
            file: None,
        }
    }

    /// The same store, used in another mode.
    pub(crate) fn in_mode(self, mode: Mode) -> Result<Self, Failure> {
        if mode == Mode::Leased && self.revision.is_some() {
            let message = "can't be given in leased mode, where it is the moment of the definition";
            return Err(Failure::usage("revision", message));
        }
        Ok(Self { mode, ..self })
    }

    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    /// Whether permits are held in this process. The embedded store is in process already: there is nothing to lease.
    pub(crate) fn leases(&self) -> bool {
        self.mode == Mode::Leased && !self.is_embedded()
    }

    /// For how long permits may be held above the burst, where they are.
    pub(crate) fn held(&self) -> Duration {
        self.file.as_ref().map_or(LEASE_TTL, |file| file.held)
    }

    pub(crate) fn is_embedded(&self) -> bool {
        self.file.as_ref().map_or(self.urls.is_empty(), |file| file.store == "embedded")
    }

    /// The word for it in reports.
    pub(crate) fn name(&self) -> &'static str {
        match self.is_ring || self.file.as_ref().is_some_and(|file| file.store == "ring") {
            _ if self.is_embedded() => "local",
            true => "ring",
            false => "cluster",
        }
    }

    /// Connects with the first call. All calls must come from within the runtime that is given, if one is.
    pub(crate) fn limiter(&self, runtime: Option<&Handle>) -> Result<Limiter, Failure> {
        if let Some(file) = &self.file {
            let builder = file.config()?.builder();
            return Ok(runtime.map_or(builder.clone(), |runtime| builder.runtime(runtime.clone())).build()?);
        }
        if self.is_embedded() {
            return Ok(Limiter::local());
        }
        let (builder, urls) = (Limiter::builder(), self.urls.iter().cloned());
        let builder = if self.is_ring { builder.ring(urls) } else { builder.redis(urls) };
        let mut builder = builder.shards(self.shards.parse()?);
        builder = builder.on_failure(self.on_failure.parse()?).deadline(self.deadline);
        if let Some(runs) = self.hot {
            builder = builder.hot(runs);
        }
        if let Some(runtime) = runtime {
            builder = builder.runtime(runtime.clone());
        }
        let builder = match self.selector {
            Selector::RoundRobin => builder.selector(RoundRobin),
            Selector::LeastLoaded => builder.selector(LeastLoaded),
            Selector::PowerOfTwo => builder.selector(PowerOfTwo),
        };
        Ok(builder.build()?)
    }

    pub(crate) fn define(&self, name: &str, limit: Limit) -> Result<NamedLimit, Failure> {
        self.define_on(&self.limiter(None)?, name, limit)
    }

    /// On a limiter of this store.
    pub(crate) fn define_on(&self, limiter: &Limiter, name: &str, limit: Limit) -> Result<NamedLimit, Failure> {
        if let Some(file) = &self.file {
            let config = file.config()?;
            if !config.limits().any(|found| found == (name, limit)) {
                let message =
                    format!("{} has changed since the command began: {name:?} is another", file.path.display());
                return Err(Failure::usage("config", message));
            }
            let gone = || Failure::internal("config", "the limit was there before");
            return config.define(limiter)?.remove(name).ok_or_else(gone);
        }
        Ok(match (self.mode, self.revision) {
            (Mode::Exact, None) => limiter.define(name, limit)?,
            (Mode::Exact, Some(revision)) => limiter.define_revision(name, limit, revision)?,
            (Mode::Leased, _) => limiter.define_leased(name, limit, Leases::default().ttl(LEASE_TTL))?,
        })
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Store({}, {}, shards {}, {:?})", self.name(), self.mode.name(), self.shards, self.selector)
    }
}

/// Refuses what every one of a run's calls would be refused for, before the run and without a charge: the
/// question is put to a limiter of its own.
pub(crate) fn check(name: &str, limit: Limit, key: &[u8], permits: u64) -> Result<(), Failure> {
    let _as_new = Limiter::local().define(name, limit)?.try_acquire(key, permits)?;
    Ok(())
}
