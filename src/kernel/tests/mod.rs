//! What every kernel must hold to, checked on random calls.
//!
//! * `reference`: each decision equals a plain implementation in rationals or over a list of all past events.
//! * `formula`: admissions never exceed the algorithm's own bound, in any interval.
//! * `laws`: batches equal single calls, waits are exact, refunds lift nothing above its capacity, debts are held.
//! * `leased`: what a bucket has and what is held of it is never more than its burst.
//! * `lend`: what home hands over with a share is what it had, and not more at any later time.
//! * `oracle`: the scripts in `lua/` decide the same, on a real server.
//! * `time`: a clock that steps back neither admits more nor locks out.

mod formula;
mod laws;
#[cfg(feature = "redis")]
mod leased;
#[cfg(feature = "redis")]
pub(crate) mod oracle;
mod reference;
#[cfg(feature = "redis")]
mod rewrite;
mod time;

use proptest::prelude::*;

use super::state::run;
use super::{Ask, Batch, Header, State, Verdict};
use crate::clock::Micros;
use crate::limit::{Limit, Share};

/// A key under one limit.
struct Bench {
    share: Share,
    state: Option<State>,
}

impl Bench {
    fn new(limit: &Limit) -> Self {
        Self { share: Share::whole(limit), state: None }
    }

    fn run(&mut self, now: Micros, batch: &Batch<'_>) -> (Header, Vec<Verdict>) {
        let mut verdicts = vec![Verdict::default(); batch.asks.len()];
        let header = run(&mut self.state, &self.share, now, batch, &mut verdicts);
        (header, verdicts)
    }

    fn ask(&mut self, now: Micros, permits: u64, count: u64) -> (Header, Verdict) {
        let (header, verdicts) = self.run(now, &Batch { asks: &[Ask { permits, count }], ..Batch::default() });
        (header, verdicts[0])
    }

    fn time_for(&self, units: i64) -> Micros {
        (units.max(0) as u64).div_ceil(self.share.rate() as u64)
    }

    /// The longest that time may stand still for each part: a full refill or a window.
    fn refills(&self) -> impl Iterator<Item = Micros> {
        let shares = match &self.share {
            Share::Composite(shares) => shares,
            share => std::slice::from_ref(share),
        };
        shares.iter().map(|share| match share {
            Share::Bucket(share) => share.refill,
            Share::Fixed(share) | Share::Sliding(share) => share.window,
            Share::Composite(_) => unreachable!("no part has parts"),
        })
    }

    /// The longest of these.
    fn refill(&self) -> Micros {
        self.refills().max().expect("a part")
    }
}

/// The same, and several of them at once.
fn any_kind() -> impl Strategy<Value = Limit> {
    let part = prop_oneof![0..2usize, 3..6usize].prop_flat_map(any_limit_of);
    let composite = prop::collection::vec(part, 2..5).prop_filter_map("parts that can be one", all);
    prop_oneof![2 => any_limit(), 1 => composite]
}

fn all(parts: Vec<Limit>) -> Option<Limit> {
    parts.into_iter().map(Ok).reduce(|all, part| all?.and(part?))?.ok()
}

/// As scenes of a home need it.
#[cfg(feature = "redis")]
fn can_be_split(limit: &Limit) -> bool {
    limit.permits().min(limit.burst()) > 1
}

/// Two composites that have the same algorithms, mostly in the same order.
#[cfg(feature = "redis")]
fn any_composites() -> impl Strategy<Value = (Limit, Limit)> {
    let algorithms = prop::collection::vec(prop_oneof![Just(0usize), 3..6usize], 2..4);
    algorithms.prop_flat_map(|algorithms| {
        let limit = || algorithms.iter().map(|of| any_limit_of(*of)).collect::<Vec<_>>();
        (limit(), limit()).prop_filter_map("parts that can be one", |(one, other)| {
            Some((all(one).filter(can_be_split)?, all(other)?))
        })
    })
}

/// Limits of every algorithm, small enough that a few hundred calls meet all their edges.
fn any_limit() -> impl Strategy<Value = Limit> {
    (0..6usize).prop_flat_map(any_limit_of)
}

fn any_limit_of(algorithm: usize) -> impl Strategy<Value = Limit> {
    let period = prop_oneof![1u64..50, Just(1_000), Just(1_000_000), 1u64..100_000];
    (1u64..40, period, 1u64..60, 1u32..20).prop_map(move |(permits, period, burst, precision)| {
        let text = match algorithm {
            0 => format!("token-bucket {permits}/{period}us burst {burst}"),
            1 => format!("leaky-bucket {permits}/{period}us capacity {burst}"),
            2 => format!("pacing-queue {permits}/{period}us capacity {burst}"),
            3 => format!("fixed-window {permits}/{period}us"),
            4 => format!("sliding-window {permits}/{period}us precision {}", u64::from(precision).min(period)),
            _ => format!("sliding-log {permits}/{period}us"),
        };
        text.parse().expect("a limit in range")
    })
}

/// Steps of time as parts of a thousand of the limit's refill: mostly none or short, sometimes past all memory.
fn any_pause() -> impl Strategy<Value = u64> {
    prop_oneof![4 => Just(0u64), 8 => 0u64..50, 4 => 0u64..700, 1 => 1_000u64..4_000]
}

fn scaled(refill: Micros, thousandths: u64) -> Micros {
    (refill * thousandths).div_ceil(1_000)
}

/// Not a multiple of anything.
const START: Micros = 1_700_000_000_123_457;
