//! The bucket by which a shard's calls are spaced while it can't be asked.

use std::time::Duration;

use crate::clock::Micros;
use crate::kernel::bucket::Bucket;
use crate::kernel::{Ask, State, state};
use crate::limit::{Limit, Share};

/// What a local bucket holds is what it brings in this time, in seconds: it spaces calls, and keeps nothing for later.
const HOLDS: f64 = 0.1;
/// A call that has no better word for it is worth another try after this, in µs.
pub(super) const AGAIN: Micros = 10_000;

/// What this process may admit by itself.
#[derive(Debug)]
pub(super) struct Local {
    /// Permits a second.
    pub rate: f64,
    /// None: nothing.
    share: Option<Share>,
    burst: u64,
    state: Option<State>,
}

impl Local {
    /// Empty, and filling at so many permits a second.
    pub(super) fn new(rate: f64, now: Micros) -> Self {
        // Per 1,000 s, so that a rate below one is one too; large ones in whole permits a second, which are exact for longer.
        let (permits, seconds) = if rate < 1_000.0 { (rate * 1_000.0, 1_000) } else { (rate, 1) };
        let burst = (rate * HOLDS).max(1.0) as u64;
        let limit = Limit::token_bucket(permits as u64, Duration::from_secs(seconds), burst);
        let share = limit.ok().map(|limit| Share::whole(&limit));
        let mut local = Self { rate, share, burst, state: None };
        local.drain(now);
        local
    }

    /// The same at another rate, with as many permits as it holds.
    pub(super) fn at(&self, rate: f64, now: Micros) -> Self {
        let mut other = Self::new(rate, now);
        if let (Some(Share::Bucket(share)), Some(State::Bucket(bucket))) = (&self.share, &self.state) {
            let came = share.rate as f64 * now.saturating_sub(bucket.seen) as f64;
            other.give_back(((bucket.level as f64 + came) / share.cost as f64).clamp(0.0, self.burst as f64) as u64);
        }
        other
    }

    pub(super) fn drain(&mut self, now: Micros) {
        self.state = Some(State::Bucket(Bucket { level: 0, seen: now }));
    }

    pub(super) fn give_back(&mut self, permits: u64) {
        if let (Some(Share::Bucket(share)), Some(State::Bucket(bucket))) = (&self.share, &mut self.state) {
            bucket.level = (bucket.level + permits as i64 * share.cost).min(share.capacity);
        }
    }

    /// `Err`: not before so many microseconds from now.
    pub(super) fn take(&mut self, permits: u64, now: Micros) -> Result<(), Micros> {
        let Some(share) = &self.share else { return Err(AGAIN) };
        let (_, verdict) = state::run_one(&mut self.state, share, now, Ask { permits, count: 1 });
        if verdict.granted > 0 {
            return Ok(());
        }
        // More than it ever holds: the shard itself may have it when it is back.
        if permits > self.burst { Err(AGAIN) } else { Err((verdict.lack as u64).div_ceil(share.rate() as u64).max(1)) }
    }
}
