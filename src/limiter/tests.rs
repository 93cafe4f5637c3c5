//! How a limiter ends, where that takes settings that no user can make.

use std::time::Duration;

use super::{Limiter, Store};
use crate::decision::DecidedBy;
use crate::flow::sharded::moment;
use crate::kernel::tests::oracle::server::Server;
use crate::leases::Leases;

const HANGS: Duration = Duration::from_secs(30);

/// Half of a lease's time had to pass before the limiter was at its end: so long the task slept that looks through purses.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_until_leases_are_looked_through_again() {
    let server = Server::start(&[]);
    let limiter = Limiter::builder().redis([format!("redis://127.0.0.1:{}", server.port)]).build().unwrap();
    limiter.ready(HANGS).await.unwrap();
    let day = Duration::from_secs(86_400);
    let (text, leases) = ("fixed-window 30000000/365days".parse().unwrap(), Leases { ttl: day, ..Leases::new() });
    let Store::Shared(shared) = &limiter.0.store else { panic!("it is on a server") };
    let define = || Ok(shared.define("leased", text, moment(), Some(&leases)));
    let limit = limiter.define_as("leased", text, Some(leases), define).unwrap();
    let (hot, mut by_leases) = (limit.handle("hot").unwrap(), 0);
    while by_leases < 10 {
        let decision = hot.acquire().await.unwrap();
        by_leases += u64::from(decision.decided_by() == DecidedBy::Lease);
    }
    tokio::time::timeout(HANGS, limiter.shutdown(day)).await.expect("it waits for nothing").unwrap();
}
