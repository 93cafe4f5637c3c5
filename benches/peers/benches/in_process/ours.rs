//! The library: the embedded store, and a cluster's limit decided in process, by a lease or by a ceiling.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use shardlimit::{Handle, Leases, Limiter, NamedLimit};
use shardlimit_peers::cluster::{Cluster, urls};
use tokio::runtime::Runtime;

use crate::{Case, Named};

const KEY: &str = "item:42";
/// How many calls show whether a handle decides in process.
const TRIAL: u64 = 10_000;

pub(crate) fn loops<'a>(case: Case, runtime: &'a Runtime, cluster: &Cluster) -> Vec<Named<'a>> {
    let (name, text) = match case {
        Case::Allowed => ("allowed", "token-bucket 100000000/s burst 10000000"),
        Case::Denied => ("denied", "token-bucket 1/h burst 1"),
    };
    let define = |limiter: &Limiter| limiter.define(name, text.parse().expect("a valid limit")).expect("a name");
    let hold = |limit: NamedLimit| limit.handle(KEY).expect("a valid key");
    let shared = Limiter::builder().redis(urls(cluster)).runtime(runtime.handle().clone()).build().expect("settings");

    let mut loops = vec![in_process("embedded store, by handle", case, hold(define(&Limiter::local())), runtime)];
    match case {
        Case::Allowed => {
            let leased = shared.define_leased(name, text.parse().expect("a valid limit"), Leases::default());
            loops.push(in_process("leased, by handle", case, hold(leased.expect("a name")), runtime));
        }
        Case::Denied => loops.push(in_process("ceiling, by handle", case, hold(define(&shared)), runtime)),
    }
    loops.into_iter().flatten().collect()
}

/// The loop of a handle that decides nearly every call by itself; nothing, and a word about it, if it does not.
fn in_process<'a>(name: &'static str, case: Case, handle: Handle, runtime: &'a Runtime) -> Option<Named<'a>> {
    let asked = Arc::new(AtomicU64::new(0));
    let call = {
        let asked = Arc::clone(&asked);
        move || {
            let decision = handle.try_acquire(1).expect("a valid ask").unwrap_or_else(|| {
                asked.fetch_add(1, Ordering::Relaxed);
                runtime.block_on(handle.acquire()).expect("a cluster that answers")
            });
            decision.is_allowed()
        }
    };
    let _ = (call(), asked.swap(0, Ordering::Relaxed));
    let trial: Vec<bool> = (0..TRIAL).map(|_| call()).collect();
    let asked = asked.load(Ordering::Relaxed);
    if asked * 100 > TRIAL {
        println!("left out: {name}; the store was asked for {asked} of {TRIAL} calls");
        return None;
    }
    assert!(trial.iter().all(|allowed| *allowed == (case == Case::Allowed)), "{name} is not what it should be");
    let work = move |_, calls| {
        for _ in 0..calls {
            black_box(call());
        }
    };
    Some((name, Box::new(work)))
}
