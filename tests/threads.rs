//! Many threads at once: the sum is right, and nothing is left behind.

mod support;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use shardlimit::{
    Allowed, Builder, Clock, Decision, Denied, Error, FakeClock, Handle, Limit, Limiter, NamedLimit, Peek, Receipt,
};
use support::block_on;

#[test]
fn the_api_can_be_shared_between_threads() {
    fn shared<T: Send + Sync + 'static>() {}
    fn sent<T: Send>(_: &T) {}
    shared::<(Limiter, NamedLimit, Handle, Builder, Limit, Clock, FakeClock)>();
    shared::<(Decision, Allowed, Denied, Receipt, Peek, Error)>();
    let limit = Limiter::local().define("send", "1/s".parse().unwrap()).unwrap();
    let handle = limit.handle("k").unwrap();
    sent(&limit.acquire("k"));
    sent(&limit.acquire_within("k", 1, Duration::ZERO));
    sent(&handle.acquire_within(1, Duration::ZERO));
}

/// Time stands still, so exactly the burst can be had, by key and by handle together, whoever asks.
#[test]
fn exactly_the_burst_is_given_out() {
    for text in [
        "token-bucket 1/s burst 50000",
        "leaky-bucket 1/s capacity 50000",
        "pacing-queue 1/s capacity 50000",
        "fixed-window 50000/s",
        "sliding-window 50000/s",
        "sliding-log 10000/s",
    ] {
        let (limit, _) = support::limit(text);
        let handle = limit.handle("k").unwrap();
        let given = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (limit, handle, given) = (&limit, &handle, &given);
                scope.spawn(move || {
                    let mut mine = 0;
                    for call in 0..20_000u64 {
                        let permits = 1 + call % 3;
                        let decision =
                            if thread % 2 == 0 { limit.try_acquire("k", permits) } else { handle.try_acquire(permits) };
                        mine += permits * u64::from(decision.unwrap().unwrap().is_allowed());
                    }
                    given.fetch_add(mine, Ordering::Relaxed);
                });
            }
        });
        assert_eq!(given.into_inner(), limit.limit().burst(), "{text}");
    }
}

/// On the real clock: never above burst + rate·t, over a refill so short that a thread which is held up between
/// reading the clock and taking the key's lock would otherwise look like a clock set back, and refill twice.
#[test]
fn a_thread_that_is_held_up_refills_nothing_twice() {
    let limit = Limiter::local().define("race", "token-bucket 100000/s burst 2".parse().unwrap()).unwrap();
    let start = Instant::now();
    let given = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while start.elapsed() < Duration::from_millis(600) {
                    let granted = (0..64).filter(|_| support::ask(&limit, "k", 1)).count();
                    given.fetch_add(granted as u64, Ordering::Relaxed);
                }
            });
        }
    });
    let most = 2 + start.elapsed().as_micros() as u64 / 10 + 1;
    let given = given.into_inner();
    assert!(given <= most, "{given} given, at most {most}");
    assert!(given > 100, "{given} given: the threads did not run");
}

#[cfg(target_os = "linux")]
fn alarm_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    // The kernel keeps 15 bytes of a name.
    names.filter(|name| name.starts_with("shardlimit-alar")).count()
}

/// No thread for alarms until a call waits, one a limiter then, none when the limiter is gone.
#[cfg(target_os = "linux")]
#[test]
fn the_alarm_thread_ends_with_its_limiter() {
    let limit = Limiter::local().define("wait", "100/s burst 1".parse().unwrap()).unwrap();
    assert!(support::ask(&limit, "k", 1));
    assert_eq!(alarm_threads(), 0);
    for _ in 0..3 {
        assert!(block_on(limit.acquire_within("k", 1, Duration::from_secs(5))).unwrap().is_allowed());
    }
    assert_eq!(alarm_threads(), 1);
    drop(limit);
    let patience = Instant::now();
    while alarm_threads() > 0 {
        assert!(patience.elapsed() < Duration::from_secs(20), "the thread is still there");
        std::thread::sleep(Duration::from_millis(1));
    }
}
