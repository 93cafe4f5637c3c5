//! Peers that decide in process.

use std::hint::black_box;
use std::num::NonZeroU32;

use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use shardlimit_peers::cluster::Server;
use tokio::runtime::Runtime;
use trypema::hybrid::HybridRateLimiterProvider;
use trypema::local::LocalRateLimiterProvider;
use trypema::redis::RedisKey;
use trypema::{RateLimit, RateLimitDecision, RateLimiterBuilder, WindowSize};

use crate::{BASELINE, Case, Entrant};

const KEY: &str = "item:42";

/// The server is for those who tell one now and then.
pub(crate) fn entrants<'a>(case: Case, runtime: &'a Runtime, server: &Server) -> Vec<Entrant<'a>> {
    vec![governor(case), trypema_local(case), trypema_hybrid(case, runtime, server)]
}

/// GCRA on a keyed map.
fn governor<'a>(case: Case) -> Entrant<'a> {
    let quota = match case {
        Case::Allowed => Quota::per_second(NonZeroU32::new(1_000_000_000).expect("not zero")),
        Case::Denied => Quota::per_hour(NonZeroU32::MIN),
    };
    let limiter: DefaultKeyedRateLimiter<String> = RateLimiter::keyed(quota);
    let key = KEY.to_owned();
    assert!(limiter.check_key(&key).is_ok());
    assert_eq!(limiter.check_key(&key).is_ok(), case == Case::Allowed);
    Entrant::new(BASELINE, move || limiter.check_key(black_box(&key)).is_ok())
}

/// The local provider's absolute strategy.
fn trypema_local<'a>(case: Case) -> Entrant<'a> {
    let provider = LocalRateLimiterProvider::builder().window_size(window(case)).build().expect("sound settings");
    let rate = trypema_rate(case);
    let call = move || matches!(provider.absolute().inc(black_box(KEY), &rate, 1), RateLimitDecision::Allowed);
    while call() && case == Case::Denied {}
    Entrant::new("trypema, local absolute", call)
}

/// The hybrid provider's absolute strategy on a server of its own, as it knows no clusters: `try_inc` decides from local
/// state, and where it can't, `inc` asks the server. It asks for Redis 7.2; the calls made here also work on 7.0.15.
fn trypema_hybrid<'a>(case: Case, runtime: &'a Runtime, server: &Server) -> Entrant<'a> {
    let provider = runtime.block_on(async {
        let manager = server.client().get_connection_manager().await.expect("a server");
        HybridRateLimiterProvider::builder(manager).window_size(window(case)).build().expect("sound settings")
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
    Entrant::new("trypema, hybrid absolute", call)
}

fn trypema_rate(case: Case) -> RateLimit {
    match case {
        Case::Allowed => RateLimit::per_second_or_panic(1_000_000_000.0),
        // 60 in its window of an hour. One that holds less than one permit is asked of the server every time.
        Case::Denied => RateLimit::per_hour_or_panic(60.0),
    }
}

fn window(case: Case) -> WindowSize {
    match case {
        // What its documentation begins with.
        Case::Allowed => WindowSize::minutes_or_panic(1),
        // Within a minute it would have permits again, and not every call would be denied.
        Case::Denied => WindowSize::hours_or_panic(1),
    }
}
