//! What leases may add to an interval, and what they may not.

use std::time::{Duration, Instant, SystemTime};

use crate::shared::{Cluster, Layout, Server, client, client_of};
use shardlimit::{Allowed, DecidedBy, Decision, Handle, Leases, NamedLimit};
use tokio::task::JoinSet;

fn leased(builder: shardlimit::Builder, text: &str, leases: Leases) -> NamedLimit {
    builder.build().unwrap().define_leased("api", text.parse().unwrap(), leases).unwrap()
}

/// Microseconds as servers count them: all of them run here.
fn wall_clock() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_micros() as u64
}

/// When a call was admitted: by the store, when it said so; by a lease, now.
fn admitted_at(allowed: &Allowed) -> u64 {
    match allowed.decided_by() {
        DecidedBy::Lease => wall_clock(),
        _ => allowed.receipt().charged_at(),
    }
}

/// Two clients whose callers ask without a rest: few runs, most of the limit, and never more than it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_clients_above_the_limit_use_it_and_no_more() {
    const RATE: f64 = 5_000.0;
    const BURST: f64 = 1_000.0;
    const CLIENTS: usize = 2;
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    let clients = [0, 1].map(|node| leased(client_of(&cluster, node), "token-bucket 5000/s burst 1000", Leases::new()));
    clients[0].plan("hot").await.unwrap();
    let handles: [Handle; CLIENTS] = [0, 1].map(|client| clients[client].handle("hot").unwrap());
    let began = Instant::now();
    let warm = began + Duration::from_millis(300);
    let end = began + Duration::from_millis(1_800);
    let mut tasks = JoinSet::new();
    for hot in handles.iter().flat_map(|hot| [hot; 8]) {
        let hot = hot.clone();
        tasks.spawn(async move {
            // All, those after the warm-up, and of these the ones by a lease; and calls.
            let mut admitted = [0_u64; 4];
            while Instant::now() < end {
                admitted[3] += 1;
                let decision = hot.acquire().await.unwrap();
                if decision.is_allowed() {
                    let is_warm = Instant::now() > warm;
                    admitted[0] += 1;
                    admitted[1] += u64::from(is_warm);
                    admitted[2] += u64::from(is_warm && decision.decided_by() == DecidedBy::Lease);
                    tokio::task::yield_now().await;
                } else {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
            admitted
        });
    }
    let sum = |all: [u64; 4], one: [u64; 4]| std::array::from_fn(|index| all[index] + one[index]);
    let [admitted, after, by_lease, calls] = tasks.join_all().await.into_iter().fold([0; 4], sum);
    let most = BURST + RATE * began.elapsed().as_secs_f64();
    let runs: u64 = handles.iter().flat_map(Handle::counts).map(|shard| shard.runs).sum();
    println!("{admitted} of {most:.0} admitted, {by_lease} of {after} by leases, {calls} calls, {runs} runs");
    // Permits that were spent were charged in that time, so not even the ttl is on top of it; one of rounding.
    assert!(admitted as f64 <= most + 1.0, "{admitted} admitted, {most} is the most");
    assert!(admitted as f64 >= 0.9 * (BURST + RATE * 1.8), "only {admitted} admitted of {most}");
    // Where the store has nothing ahead of need, the calls themselves take what comes back.
    // Of a permit that came back each client may learn by asking once: how often they do is a matter of the machine's speed.
    let most_runs = CLIENTS as u64 * admitted;
    assert!(by_lease > 0 && runs <= most_runs, "{runs} runs for {admitted} admissions, {by_lease} of them by leases");
}

/// Below the limit the store is hardly ever waited for: it is asked ahead, for many at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn below_the_limit_nearly_every_call_is_decided_here() {
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    let define = |node| leased(client_of(&cluster, node), "token-bucket 100000/s burst 20000", Leases::new());
    let clients = [define(0), define(1)];
    clients[0].plan("hot").await.unwrap();
    let handles = clients.map(|limit| limit.handle("hot").unwrap());
    let runs = |hot: &Handle| hot.counts().iter().map(|shard| shard.runs).sum::<u64>();
    for measured in [false, true] {
        let before: u64 = handles.iter().map(runs).sum();
        let (mut calls, mut by_lease) = (0_u64, 0_u64);
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(500) {
            for hot in handles.iter().flat_map(|hot| [hot; 10]) {
                calls += 1;
                let decision = hot.acquire().await.unwrap();
                assert!(decision.is_allowed(), "{decision:?}");
                by_lease += u64::from(decision.decided_by() == DecidedBy::Lease);
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let runs = handles.iter().map(runs).sum::<u64>() - before;
        println!("{by_lease} of {calls} by leases, {runs} runs");
        if measured {
            assert!(by_lease * 100 >= calls * 95, "only {by_lease} of {calls} by leases");
            assert!(runs * 10 <= calls, "{runs} runs for {calls} calls");
        }
    }
}

/// Use at six tenths of the rate, with spikes of all there is: then what is held comes on top of a full bucket. Before every
/// spike whose number is a multiple of `quiet` the key falls quiet, and what is held goes back.
async fn use_in_spikes(clients: &[NamedLimit], rate: f64, cycles: u32, quiet: Option<u32>) -> Vec<(u64, u64)> {
    let mut tasks = JoinSet::new();
    let began = Instant::now();
    for limit in clients {
        for _ in 0..4 {
            let hot = limit.handle("hot").unwrap();
            let each = 0.6 * rate / (4 * clients.len()) as f64;
            tasks.spawn(async move {
                let mut admitted = Vec::new();
                let mut ask = async |permits| match hot.acquire_n(permits).await.unwrap() {
                    Decision::Allowed(allowed) => {
                        admitted.push((admitted_at(&allowed), permits));
                        true
                    }
                    Decision::Denied(_) => false,
                };
                for cycle in 1..=cycles {
                    let (start, spike) = (Instant::now(), began + cycle * Duration::from_millis(200));
                    let mut asked = 0.0;
                    let is_quiet = quiet.is_some_and(|quiet| cycle % quiet == 0);
                    let pause = if is_quiet { Duration::from_millis(80) } else { Duration::ZERO };
                    while Instant::now() < spike - pause {
                        while asked < each * start.elapsed().as_secs_f64() {
                            ask(1).await;
                            asked += 1.0;
                        }
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    tokio::time::sleep_until(spike.into()).await;
                    // The purse first, then large asks on the store, then what is left.
                    while ask(1).await && asked < 2_000.0 + each * 0.2 && spike.elapsed() < Duration::from_millis(5) {
                        asked += 1.0;
                    }
                    while ask(20).await {}
                    while ask(1).await && spike.elapsed() < Duration::from_millis(100) {}
                }
                admitted
            });
        }
    }
    let mut admitted: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
    admitted.sort_unstable();
    admitted
}

/// The most by which an interval [a, b] has more permits than rate · (b - a): one pass, since a larger start can be
/// found as the largest of what all starts so far are worth.
fn most_above(admitted: &[(u64, u64)], rate: f64) -> f64 {
    let Some((first, _)) = admitted.first() else { return 0.0 };
    let (mut before, mut best_start, mut most) = (0.0, f64::MIN, f64::MIN);
    for (at, permits) in admitted {
        let refilled = rate * (at - first) as f64 / 1e6;
        best_start = f64::max(best_start, refilled - before);
        before += *permits as f64;
        most = f64::max(most, before - refilled + best_start);
    }
    most
}

#[test]
fn intervals_are_measured_right() {
    let above = |admitted: &[(u64, u64)]| most_above(admitted, 1_000.0);
    let close = |a: f64, b: f64| (a - b).abs() < 1e-6;
    assert!(close(above(&[(0, 5)]), 5.0));
    // 5 at once, then 3 in an instant 10 ms later, when 10 have come back.
    assert!(close(above(&[(7, 5), (10_007, 3)]), 5.0));
    assert!(close(above(&[(0, 5), (1_000, 3), (1_000, 1)]), 8.0));
    assert!(close(above(&[(0, 5), (100_000, 4), (101_000, 4)]), 7.0));
}

/// Admissions in any interval: burst + rate · t + rate · ttl, as long as nothing is given back. If shards keep room for leases, without the
/// last one, and whatever is given back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_interval_has_more_than_the_burst_and_what_is_held() {
    const RATE: f64 = 10_000.0;
    // The least that is accepted with room for them.
    const BURST: f64 = 2_500.0;
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    let ttl = Duration::from_millis(50);
    let leases = Leases::new().horizon(ttl).ttl(ttl);
    for (number, leases, extra) in [(0, leases, RATE * 0.05), (1, leases.within_burst(), 0.0)] {
        let builder = |node| client_of(&cluster, node).prefix(format!("test-{number}"));
        let clients = [0, 1].map(|node| leased(builder(node), "token-bucket 10000/s burst 2500", leases));
        clients[0].plan("hot").await.unwrap();
        let admitted = use_in_spikes(&clients, RATE, 10, leases.is_within_burst().then_some(3)).await;
        let above = most_above(&admitted, RATE);
        println!("{} admissions, {above:.1} above the rate, {:.1} may be", admitted.len(), BURST + extra);
        // One of rounding, and one that each thread has decided and not yet looked at the clock for.
        assert!(above <= BURST + extra + 1.0 + 2.0, "{leases:?}: {above} permits above the rate");
        assert!(above > 0.5 * BURST, "{above}: this tests nothing");
    }
}

/// Leases come back again and again, and shards keep no room for them: an interval has what all processes held when it began on top of
/// the burst, and no more, however often. Each of the two holds a quarter of the burst at the most.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_back_adds_no_more_than_was_held() {
    const RATE: f64 = 10_000.0;
    const BURST: f64 = 2_500.0;
    const MOST_HELD: f64 = 2.0 * BURST / 4.0;
    let cluster = Cluster::start(3, 0, Layout::Contiguous, &[]);
    // Of spikes that leave nothing over: so what came back twice would be admitted twice, and add up.
    let leases = Leases::new().horizon(Duration::from_millis(50));
    let clients = [0, 1].map(|node| leased(client_of(&cluster, node), "token-bucket 10000/s burst 2500", leases));
    clients[0].plan("hot").await.unwrap();
    let handles = clients.clone().map(|limit| limit.handle("hot").unwrap());
    let admitted = use_in_spikes(&clients, RATE, 20, Some(1)).await;
    let above = most_above(&admitted, RATE);
    // A lease counts as a call for each of its permits.
    let charged: u64 = handles.iter().flat_map(Handle::counts).map(|shard| shard.allowed).sum();
    let back = charged - admitted.len() as u64;
    println!("{} admissions, {back} back, {above:.1} above the rate, {:.1} may be", admitted.len(), BURST + MOST_HELD);
    assert!(back as f64 > 2.0 * MOST_HELD, "{back} came back: this tests nothing");
    // One of rounding, and one that each thread has decided and not yet looked at the clock for.
    assert!(above <= BURST + MOST_HELD + 1.0 + 2.0, "{above} permits above the rate");
}

/// Use that all but stops: what was taken ahead for more of it is not spent when its time is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_permit_is_spent_after_its_ttl() {
    const TTL: u64 = 50_000;
    let server = Server::start(&[]);
    let leases = Leases::new().horizon(Duration::from_micros(TTL)).ttl(Duration::from_micros(TTL));
    let limit = leased(client(&server), "token-bucket 10000/s burst 1000", leases);
    let hot = limit.handle("hot").unwrap();
    let (mut by_lease, mut oldest) = (0, 0);
    for _ in 0..10 {
        // Never quiet for so long that all of it goes back.
        for (calls, pause) in [(200, 1), (30, 6)] {
            for _ in 0..calls {
                let before = wall_clock();
                if let Decision::Allowed(allowed) = hot.acquire().await.unwrap()
                    && allowed.decided_by() == DecidedBy::Lease
                {
                    by_lease += 1;
                    oldest = oldest.max(before.saturating_sub(allowed.receipt().charged_at()));
                }
                if pause > 1 || by_lease % 20 == 0 {
                    tokio::time::sleep(Duration::from_millis(pause)).await;
                }
            }
        }
    }
    println!("{by_lease} by leases, the oldest of {oldest} µs");
    assert!(oldest < TTL, "a permit was spent {oldest} µs after it was charged");
    assert!(by_lease > 500 && oldest > TTL / 2, "{by_lease} by leases, the oldest of {oldest} µs: this tests nothing");
}

/// What was taken from a window is not spent after its end, however long it could be held.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_of_a_window_are_not_spent_in_the_next_one() {
    const WINDOW: u64 = 300_000;
    let server = Server::start(&[]);
    let leases = Leases::new().horizon(Duration::from_millis(100)).ttl(Duration::from_millis(250));
    let limit = leased(client(&server), "fixed-window 100000/300ms", leases);
    let hot = limit.handle("hot").unwrap();
    let (mut by_lease, mut seen) = (0_u64, std::collections::BTreeSet::new());
    let began = Instant::now();
    let mut asked = 0.0;
    while began.elapsed() < Duration::from_millis(2_500) {
        // Far below the limit: so there is always something in the purse when a window ends.
        while asked < 10_000.0 * began.elapsed().as_secs_f64() {
            asked += 1.0;
            let before = wall_clock();
            let Decision::Allowed(allowed) = hot.acquire().await.unwrap() else { panic!("denied") };
            if allowed.decided_by() == DecidedBy::Lease {
                by_lease += 1;
                let charged = allowed.receipt().charged_at() / WINDOW;
                seen.insert(charged);
                let late = before.saturating_sub((charged + 1) * WINDOW);
                assert!(late == 0, "spent {late} µs after the end of its window");
            }
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let runs: u64 = hot.counts().iter().map(|shard| shard.runs).sum();
    println!("{by_lease} of {asked} by leases of {} windows, {runs} runs", seen.len());
    assert!(asked > 5_000.0 && seen.len() >= 5, "{asked} calls in {} windows: this tests nothing", seen.len());
    // Below the limit the store is hardly ever waited for.
    assert!(by_lease as f64 > 0.95 * asked, "only {by_lease} of {asked} by leases");
    assert!(runs as f64 <= 0.05 * asked, "{runs} runs for {asked} calls");
}

/// The most permits in an interval that is shorter than this.
fn most_within(admitted: &[(u64, u64)], length: u64) -> u64 {
    let (mut first, mut sum, mut most) = (0, 0, 0);
    for (at, permits) in admitted {
        sum += permits;
        while at - admitted[first].0 >= length {
            sum -= admitted[first].1;
            first += 1;
        }
        most = most.max(sum);
    }
    most
}

/// Permits that are taken ahead, hardly used while the window moves on, and then all at once with what the window has by then: an
/// interval that is shorter than the window by the ttl has no more than the limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sliding_window_has_no_more_than_its_limit_in_a_window_less_the_ttl() {
    const LIMIT: u64 = 1_000;
    let (window, ttl) = (Duration::from_millis(400), Duration::from_millis(50));
    let server = Server::start(&[]);
    let limit = leased(client(&server), "sliding-window 1000/400ms", Leases::new().horizon(ttl).ttl(ttl));
    let hot = limit.handle("hot").unwrap();
    let mut admitted = Vec::new();
    let mut ask = async || match hot.acquire().await.unwrap() {
        Decision::Allowed(allowed) => {
            admitted.push((admitted_at(&allowed), 1));
            true
        }
        Decision::Denied(_) => false,
    };
    for _ in 0..5 {
        for call in 0..300 {
            ask().await;
            if call % 20 == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        // Never quiet for so long that all of it goes back.
        let began = Instant::now();
        while began.elapsed() < window {
            ask().await;
            tokio::time::sleep(Duration::from_millis(6)).await;
        }
        while ask().await {}
        tokio::time::sleep(window).await;
    }
    admitted.sort_unstable();
    let most = most_within(&admitted, (window - ttl).as_micros() as u64);
    println!("{} admitted, {most} of them within a window less the ttl", admitted.len());
    // One that was decided and had not yet looked at the clock.
    assert!(most <= LIMIT + 1, "{most} in less than a window");
    assert!(most > LIMIT * 9 / 10, "{most}: this tests nothing");
}
