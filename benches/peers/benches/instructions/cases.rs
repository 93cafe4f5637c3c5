//! What is counted: the child's side.
//!
//! Time stands still in the measured loop. A clock reads different instructions under valgrind, where the processor's
//! own counter is out of reach, so the clock is no part of the counts.

use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use shardlimit::{Decision, Error, FakeClock, Handle, Leases, Limiter, NamedLimit};

/// The child's exit code when its calls are not decided in process.
pub(crate) const UNDECIDED: u8 = 3;

pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) place: Place,
}

/// Where a case has its state, and what makes it ready to be counted.
pub(crate) enum Place {
    Embedded(fn() -> Box<dyn Call>),
    /// By the URL of a server; none if only the server can decide it.
    Server(fn(&str) -> Option<Box<dyn Call>>),
}

/// The loop alone.
pub(crate) const NOTHING: Case = Case { name: "nothing", place: Place::Embedded(|| counted(|| true)) };

pub(crate) const CASES: [Case; 7] = [
    Case { name: "embedded, allowed, by key", place: Place::Embedded(by_key) },
    Case { name: "embedded, allowed, by handle", place: Place::Embedded(by_handle) },
    Case { name: "embedded, denied, by handle", place: Place::Embedded(denied) },
    Case { name: "redis, leased, by handle", place: Place::Server(leased) },
    Case { name: "redis, denied by ceiling, by handle", place: Place::Server(under_ceiling) },
    Case { name: "embedded, allowed, awaited", place: Place::Embedded(awaited) },
    Case { name: "redis, leased, awaited", place: Place::Server(leased_awaited) },
];

/// A call that is repeated; says whether it was decided as its case says.
pub(crate) trait Call {
    fn measure(&self, calls: u32) -> bool;
}

struct Counted<F>(F);

impl<F: Fn() -> bool> Call for Counted<F> {
    fn measure(&self, calls: u32) -> bool {
        measured(calls, &self.0)
    }
}

fn counted(call: impl Fn() -> bool + 'static) -> Box<dyn Call> {
    Box::new(Counted(call))
}

/// Callgrind collects between the entry of this function and its return.
#[inline(never)]
fn measured(calls: u32, call: impl Fn() -> bool) -> bool {
    let mut as_said = true;
    for _ in 0..calls {
        as_said &= black_box(call());
    }
    as_said
}

/// Runs a case; false if only the store could decide it.
pub(crate) fn run(name: &str, calls: u32, url: &str) -> bool {
    let case = CASES.iter().chain([&NOTHING]).find(|case| case.name == name).expect("a case");
    let call = match case.place {
        Place::Embedded(set_up) => Some(set_up()),
        Place::Server(set_up) => set_up(url),
    };
    let Some(call) = call else { return false };
    assert!(call.measure(calls), "{name}: a call was decided otherwise");
    true
}

fn embedded(limit: &str) -> NamedLimit {
    let limiter = Limiter::builder().clock(FakeClock::new()).build().expect("valid settings");
    limiter.define("counted", limit.parse().expect("a limit")).expect("a name")
}

const ALLOWS: &str = "token-bucket 1000000/s burst 1000000";
const DENIES: &str = "token-bucket 1/day burst 1";

fn by_key() -> Box<dyn Call> {
    let limit = embedded(ALLOWS);
    let ask = move || matches!(limit.try_acquire(black_box("user:42"), 1), Ok(Some(Decision::Allowed(_))));
    assert!(ask());
    counted(ask)
}

fn by_handle() -> Box<dyn Call> {
    let handle = embedded(ALLOWS).handle("user:42").expect("a key");
    assert!(is_allowed(&handle));
    counted(move || is_allowed(black_box(&handle)))
}

fn denied() -> Box<dyn Call> {
    let handle = embedded(DENIES).handle("user:42").expect("a key");
    assert!(is_allowed(&handle));
    counted(move || is_denied(black_box(&handle)))
}

fn awaited() -> Box<dyn Call> {
    let handle = embedded(ALLOWS).handle("user:42").expect("a key");
    counted(move || is_allowed_when_awaited(black_box(&handle)))
}

fn is_allowed(handle: &Handle) -> bool {
    matches!(handle.try_acquire(1), Ok(Some(Decision::Allowed(_))))
}

fn is_denied(handle: &Handle) -> bool {
    matches!(handle.try_acquire(1), Ok(Some(Decision::Denied(_))))
}

/// As a caller awaits it; false also if it has to wait.
fn is_allowed_when_awaited(handle: &Handle) -> bool {
    matches!(poll_once(handle), Poll::Ready(Ok(Decision::Allowed(_))))
}

#[inline(always)]
fn poll_once(handle: &Handle) -> Poll<Result<Decision, Error>> {
    pin!(handle.acquire()).poll(&mut Context::from_waker(Waker::noop()))
}

fn leased(url: &str) -> Option<Box<dyn Call>> {
    let (limit, time) = on_server(url, "leased", ALLOWS, true);
    in_process(&limit, &time, is_allowed)
}

fn under_ceiling(url: &str) -> Option<Box<dyn Call>> {
    let (limit, time) = on_server(url, "denied", DENIES, false);
    in_process(&limit, &time, is_denied)
}

fn leased_awaited(url: &str) -> Option<Box<dyn Call>> {
    let (limit, time) = on_server(url, "leased-awaited", ALLOWS, true);
    in_process(&limit, &time, is_allowed_when_awaited)
}

/// A limit on the server, under a name of its own in each run.
fn on_server(url: &str, name: &str, limit: &str, leased: bool) -> (NamedLimit, FakeClock) {
    let time = FakeClock::new();
    let limiter = Limiter::builder().redis([url]).clock(&time).timeout(Duration::from_secs(60)).build();
    let name = format!("{name}-{}", std::process::id());
    let (limiter, limit) = (limiter.expect("valid settings"), limit.parse().expect("a limit"));
    let limit =
        if leased { limiter.define_leased(&name, limit, Leases::default()) } else { limiter.define(&name, limit) };
    (limit.expect("a name"), time)
}

/// Asks the server until this process can decide by itself, with the fake clock in step with the real one, which stands
/// still from then on. None if that does not come.
fn in_process(limit: &NamedLimit, time: &FakeClock, decided: fn(&Handle) -> bool) -> Option<Box<dyn Call>> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let handle = limit.handle("user:42").expect("a key");
    let began = Instant::now();
    let mut last = began;
    while !decided(&handle) {
        if began.elapsed() > Duration::from_secs(5) {
            return None;
        }
        let _ = runtime.block_on(handle.acquire()).expect("the server answers");
        let now = Instant::now();
        time.advance(now - last);
        last = now;
    }
    // So much in so little time that what is held lasts for the measured loop.
    for _ in 0..10 {
        for _ in 0..1_000 {
            if !decided(&handle) {
                let _ = runtime.block_on(handle.acquire()).expect("the server answers");
            }
        }
        time.advance(Duration::from_millis(5));
        std::thread::sleep(Duration::from_millis(20));
    }
    Some(counted(move || {
        let _running = &runtime;
        decided(black_box(&handle))
    }))
}
