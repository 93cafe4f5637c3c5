//! Peers that decide from a copy in process and tell a Redis server now and then. One server, as neither knows clusters.

use std::collections::HashMap;
use std::hint::black_box;

use limitador::AsyncRateLimiter;
use limitador::limit::{Context, Limit, Namespace};
use limitador::storage::redis::CachedRedisStorage;
use shardlimit_peers::cluster::{Server, url};
use tokio::runtime::Runtime;
use trypema::hybrid::HybridRateLimiterProvider;
use trypema::redis::RedisKey;
use trypema::{RateLimitDecision, RateLimiterBuilder};

use crate::peers::trypema_rate;
use crate::{Case, Named};

pub(crate) fn loops<'a>(case: Case, runtime: &'a Runtime, server: &Server) -> Vec<Named<'a>> {
    vec![limitador(case, runtime, server), trypema_hybrid(case, runtime, server)]
}

/// The cached Redis storage with its defaults: a fixed window, flushed to the server every second.
fn limitador<'a>(case: Case, runtime: &'a Runtime, server: &Server) -> Named<'a> {
    let (most, seconds) = match case {
        Case::Allowed => (u64::from(u32::MAX) * 1_000, 3_600),
        Case::Denied => (1, 3_600),
    };
    let storage = runtime.block_on(CachedRedisStorage::new(&url(server))).expect("a server");
    let limiter = AsyncRateLimiter::new_with_storage(Box::new(storage));
    let variable = "item".try_into().expect("an expression");
    limiter.add_limit(Limit::new("bench", most, seconds, vec![], vec![variable]));
    let namespace: Namespace = "bench".into();
    let call = async move |context: &Context<'_>| {
        let answer = limiter.check_rate_limited_and_update(&namespace, context, 1).await;
        !answer.expect("an answer").limited
    };
    // As a proxy would: the request's values are known, and asked with.
    let context = || Context::from(HashMap::from([("item".to_owned(), "42".to_owned())]));
    runtime.block_on(async {
        assert!(call(&context()).await);
        assert_eq!(call(&context()).await, case == Case::Allowed);
    });
    let work = move |_, calls| {
        let context = context();
        runtime.block_on(async {
            for _ in 0..calls {
                black_box(call(black_box(&context)).await);
            }
        });
    };
    ("limitador, cached redis", Box::new(work))
}

/// The hybrid provider's absolute strategy: `try_inc` decides from local state, and where it can't, `inc` asks the server.
fn trypema_hybrid<'a>(case: Case, runtime: &'a Runtime, server: &Server) -> Named<'a> {
    let provider = runtime.block_on(async {
        let manager = server.client().get_connection_manager().await.expect("a server");
        HybridRateLimiterProvider::builder(manager).build().expect("its defaults")
    });
    let (key, rate) = (RedisKey::try_from("item-42").expect("a valid key"), trypema_rate(case));
    let call = move || {
        let decision = match provider.absolute().try_inc(key.as_key_ref(), 1).expect("sound state") {
            Some(decision) => decision,
            None => runtime.block_on(provider.absolute().inc(&key, &rate, 1)).expect("a server that answers"),
        };
        matches!(decision, RateLimitDecision::Allowed)
    };
    while call() && case == Case::Denied {}
    let work = move |_, calls| {
        for _ in 0..calls {
            black_box(call());
        }
    };
    ("trypema, hybrid absolute", Box::new(work))
}
