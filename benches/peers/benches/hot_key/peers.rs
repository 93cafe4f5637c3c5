//! Other crates that limit, each as its own documentation has it used.
//!
//! None of them knows a cluster, so each that needs a server has one to itself. They count by algorithms of their own, with
//! the same rate, and deny nobody either.

use std::num::NonZeroU32;
use std::sync::Arc;

use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use limitador::AsyncRateLimiter;
use limitador::limit::{Context, Limit, Namespace};
use limitador::storage::AsyncCounterStorage;
use limitador::storage::redis::{AsyncRedisStorage, CachedRedisStorage};
use redis::aio::ConnectionManagerConfig;
use shardlimit_peers::cluster::{Server, url};
use shardlimit_peers::load::{Caller, Outcome};
use tokio::runtime::Runtime;
use trypema::hybrid::HybridRateLimiterProvider;
use trypema::redis::{ConnectionManager, RedisKey, RedisRateLimiterProvider};
use trypema::{RateLimit, RateLimitDecision, RateLimiterBuilder, TrypemaError, WindowSize};

use crate::contestants::{BURST, RATE};

/// Seconds of those that count by windows.
const WINDOW: u64 = 60;

/// One with a server to itself.
pub(crate) struct Served<C> {
    pub caller: C,
    pub server: Server,
}

pub(crate) struct Peers {
    pub governor: Governor,
    pub trypema: Served<Trypema>,
    pub trypema_hybrid: Served<TrypemaHybrid>,
    pub limitador: Served<Limitador>,
    pub limitador_cached: Served<Limitador>,
}

impl Peers {
    /// All of them connected, each with its first call behind it.
    pub(crate) fn new(runtime: &Runtime) -> Self {
        runtime.block_on(async {
            Self {
                governor: ready(Governor::new()).await,
                trypema: served(async |server| Trypema::new(server).await).await,
                trypema_hybrid: served(async |server| TrypemaHybrid::new(server).await).await,
                limitador: served(async |server| Limitador::plain(server).await).await,
                limitador_cached: served(async |server| Limitador::cached(server).await).await,
            }
        })
    }
}

async fn served<C: Caller>(make: impl AsyncFnOnce(&Server) -> C) -> Served<C> {
    let server = Server::start(&[]);
    Served { caller: ready(make(&server).await).await, server }
}

async fn ready<C: Caller>(mut caller: C) -> C {
    assert_eq!(caller.call().await, Outcome::Allowed);
    caller
}

/// GCRA on a keyed map, in this process: another process would have a limit of its own.
#[derive(Clone)]
pub(crate) struct Governor {
    limiter: Arc<DefaultKeyedRateLimiter<String>>,
    key: String,
}

impl Governor {
    fn new() -> Self {
        let [rate, burst] = [RATE, BURST].map(|permits| u32::try_from(permits).ok().and_then(NonZeroU32::new));
        let quota = Quota::per_second(rate.expect("a rate")).allow_burst(burst.expect("a burst"));
        Self { limiter: Arc::new(RateLimiter::keyed(quota)), key: "item:42".into() }
    }
}

impl Caller for Governor {
    async fn call(&mut self) -> Outcome {
        if self.limiter.check_key(&self.key).is_ok() { Outcome::Allowed } else { Outcome::Denied }
    }
}

/// The Redis provider's absolute strategy: a sliding window, by one script run a call.
#[derive(Clone)]
pub(crate) struct Trypema {
    provider: Arc<RedisRateLimiterProvider>,
    ask: TrypemaAsk,
}

impl Trypema {
    async fn new(server: &Server) -> Self {
        let builder = RedisRateLimiterProvider::builder(manager(server).await).window_size(window());
        Self { provider: builder.build().expect("sound settings"), ask: TrypemaAsk::new() }
    }
}

impl Caller for Trypema {
    async fn call(&mut self) -> Outcome {
        outcome(&self.provider.absolute().inc(&self.ask.key, &self.ask.rate, 1).await)
    }
}

/// The hybrid provider's absolute strategy: decides from local state, and tells the server every 10 ms.
#[derive(Clone)]
pub(crate) struct TrypemaHybrid {
    provider: Arc<HybridRateLimiterProvider>,
    ask: TrypemaAsk,
}

impl TrypemaHybrid {
    async fn new(server: &Server) -> Self {
        let builder = HybridRateLimiterProvider::builder(manager(server).await).window_size(window());
        Self { provider: builder.build().expect("sound settings"), ask: TrypemaAsk::new() }
    }
}

impl Caller for TrypemaHybrid {
    async fn call(&mut self) -> Outcome {
        let absolute = self.provider.absolute();
        match absolute.try_inc(self.ask.key.as_key_ref(), 1) {
            Ok(Some(decision)) => outcome(&Ok(decision)),
            Ok(None) => outcome(&absolute.inc(&self.ask.key, &self.ask.rate, 1).await),
            Err(_) => Outcome::Failed,
        }
    }
}

#[derive(Clone)]
struct TrypemaAsk {
    key: RedisKey,
    rate: RateLimit,
}

impl TrypemaAsk {
    fn new() -> Self {
        let key = RedisKey::try_from("item-42").expect("a valid key");
        Self { key, rate: RateLimit::per_second_or_panic(RATE as f64) }
    }
}

fn window() -> WindowSize {
    WindowSize::seconds_or_panic(WINDOW)
}

/// Without a time-out for answers: as the connection of one key, which has none unless it is set. The usual 500 ms are less than
/// 10,000 callers wait for a server.
async fn manager(server: &Server) -> ConnectionManager {
    let config = ConnectionManagerConfig::new().set_response_timeout(None);
    server.client().get_connection_manager_with_config(config).await.expect("a server")
}

fn outcome(decision: &Result<RateLimitDecision, TrypemaError>) -> Outcome {
    match decision {
        Ok(RateLimitDecision::Allowed) => Outcome::Allowed,
        Ok(_) => Outcome::Denied,
        Err(_) => Outcome::Failed,
    }
}

/// A fixed window, without conditions or variables, which it would have to evaluate for each call.
#[derive(Clone)]
pub(crate) struct Limitador {
    limiter: Arc<AsyncRateLimiter>,
    namespace: Namespace,
}

impl Limitador {
    /// One script reads, and another one adds: for each call, and others may come in between.
    async fn plain(server: &Server) -> Self {
        Self::on(AsyncRedisStorage::new(&url(server)).await.expect("a server that answers"))
    }

    /// Decides from memory, and tells the server once a second, as it does unless it is set; in the last second of a window
    /// all the time, so a window of a second would not show it as it is.
    async fn cached(server: &Server) -> Self {
        Self::on(CachedRedisStorage::new(&url(server)).await.expect("a server that answers"))
    }

    fn on(store: impl AsyncCounterStorage + 'static) -> Self {
        let limiter = AsyncRateLimiter::new_with_storage(Box::new(store));
        limiter.add_limit(Limit::new("hot", RATE * WINDOW, WINDOW, [], []));
        Self { limiter: Arc::new(limiter), namespace: "hot".into() }
    }
}

impl Caller for Limitador {
    async fn call(&mut self) -> Outcome {
        match self.limiter.check_rate_limited_and_update(&self.namespace, &Context::default(), 1).await {
            Ok(check) if check.limited => Outcome::Denied,
            Ok(_) => Outcome::Allowed,
            Err(_) => Outcome::Failed,
        }
    }
}
