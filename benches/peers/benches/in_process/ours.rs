//! The library: the embedded store, and a cluster's limit decided in process, by a lease or by a ceiling.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use shardlimit::{Handle, Leases, Limiter, NamedLimit};
use shardlimit_peers::allowed_of;
use shardlimit_peers::cluster::{Cluster, urls};
use tokio::runtime::Runtime;

use crate::Case;
use crate::entrant::{Asked, Entrant};

const KEY: &str = "item:42";
/// How many calls show whether a handle decides in process.
const TRIAL: u64 = 10_000;

pub(crate) fn entrants<'a>(case: Case, runtime: &'a Runtime, cluster: &Cluster) -> Vec<Entrant<'a>> {
    let (name, text) = match case {
        Case::Allowed => ("allowed", "token-bucket 100000000/s burst 10000000"),
        Case::Denied => ("denied", "token-bucket 1/h burst 1"),
    };
    let define = |limiter: &Limiter| limiter.define(name, text.parse().expect("a valid limit")).expect("a name");
    let hold = |limit: NamedLimit| limit.handle(KEY).expect("a valid key");
    let shared = Limiter::builder().redis(urls(cluster)).runtime(runtime.handle().clone()).build().expect("settings");

    let mut entrants = vec![in_process("embedded store, by handle", case, hold(define(&Limiter::local())), runtime)];
    match case {
        Case::Allowed => {
            let leased = shared.define_leased(name, text.parse().expect("a valid limit"), Leases::default());
            entrants.push(in_process("leased, by handle", case, hold(leased.expect("a name")), runtime));
        }
        Case::Denied => entrants.push(in_process("ceiling, by handle", case, hold(define(&shared)), runtime)),
    }
    entrants.into_iter().flatten().collect()
}

/// The calls of a handle that decides nearly every one by itself; nothing, and a word about it, if it does not: its turns would
/// take for ever.
fn in_process<'a>(name: &'static str, case: Case, handle: Handle, runtime: &'a Runtime) -> Option<Entrant<'a>> {
    let waited = Arc::new(AtomicU64::new(0));
    let call = {
        let (handle, waited) = (handle.clone(), Arc::clone(&waited));
        move || {
            let decision = handle.try_acquire(1).expect("a valid ask").unwrap_or_else(|| {
                waited.fetch_add(1, Ordering::Relaxed);
                runtime.block_on(handle.acquire()).expect("a cluster that answers")
            });
            decision.is_allowed()
        }
    };
    let _ = (call(), waited.swap(0, Ordering::Relaxed));
    let allowed = allowed_of(TRIAL, &call);
    let asked = waited.load(Ordering::Relaxed);
    if asked * 100 > TRIAL {
        println!("left out: {name}; the store was asked for {asked} of {TRIAL} calls");
        return None;
    }
    assert_eq!(allowed, if case == Case::Allowed { TRIAL } else { 0 }, "{name} is not what it should be");
    let entrant = Entrant::new(name, call);
    let has_store = !handle.counts().is_empty();
    let asked = move || {
        let failures = handle.limit().failures();
        Asked {
            calls: waited.load(Ordering::Relaxed),
            runs: handle.counts().iter().map(|shard| shard.runs).sum(),
            failed: failures.allowed + failures.denied,
        }
    };
    Some(if has_store { entrant.asking(asked) } else { entrant })
}
