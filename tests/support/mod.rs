//! What several tests need. Each test binary uses a part of it.
#![allow(dead_code, unreachable_pub)]

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

pub use pollster::block_on;
use shardlimit::{Allowed, Decision, FakeClock, Limiter, NamedLimit};

/// A limit on a clock of its own.
pub fn limit(text: &str) -> (NamedLimit, FakeClock) {
    let time = FakeClock::new();
    let limiter = Limiter::builder().clock(&time).build().unwrap();
    (limiter.define("test", text.parse().unwrap()).unwrap(), time)
}

/// Counts how often it is woken.
#[derive(Default)]
pub struct Woken(AtomicUsize);

impl Woken {
    pub fn times(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A future that the test polls by hand.
pub struct Manual<F> {
    future: std::pin::Pin<Box<F>>,
    pub woken: Arc<Woken>,
}

impl<F: Future> Manual<F> {
    pub fn new(future: F) -> Self {
        Self { future: Box::pin(future), woken: Arc::default() }
    }

    pub fn poll(&mut self) -> Poll<F::Output> {
        let waker = Waker::from(Arc::clone(&self.woken));
        self.poll_with(&waker)
    }

    pub fn poll_with(&mut self, waker: &Waker) -> Poll<F::Output> {
        self.future.as_mut().poll(&mut Context::from_waker(waker))
    }

    pub fn is_pending(&mut self) -> bool {
        self.poll().is_pending()
    }

    /// The future, for somebody else to poll.
    pub fn into_future(self) -> std::pin::Pin<Box<F>> {
        self.future
    }
}

pub fn allowed(decision: Decision) -> Allowed {
    match decision {
        Decision::Allowed(allowed) => allowed,
        Decision::Denied(denied) => panic!("denied: {denied:?}"),
    }
}

/// Asks at once for one key: was it allowed?
pub fn ask(limit: &NamedLimit, key: &str, permits: u64) -> bool {
    limit.try_acquire(key, permits).unwrap().expect("the embedded store always knows").is_allowed()
}

/// What is left for a key.
pub fn left(limit: &NamedLimit, key: &str) -> u64 {
    block_on(limit.peek(key)).unwrap().remaining().permits
}

pub const MINUTE: Duration = Duration::from_secs(60);

/// A limit whose key `k` has nothing left.
pub fn drained(text: &str) -> (NamedLimit, FakeClock) {
    let (limit, time) = limit(text);
    while ask(&limit, "k", 1) {}
    (limit, time)
}

/// What a finished call was told; `None` while it waits.
pub fn is_allowed(poll: Poll<Result<Decision, shardlimit::Error>>) -> Option<bool> {
    match poll {
        Poll::Ready(decision) => Some(decision.unwrap().is_allowed()),
        Poll::Pending => None,
    }
}
