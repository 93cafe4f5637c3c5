//! Home hands over parts of its share: what it has available moves along, in proportion, and stays exactly what it was.
//!
//! The grant scripts in `lua/` do the same; this is their oracle. A share that begins *empty* takes nothing along: it
//! stands for one that was lost, and nobody knows what was left of it.
//!
//! Proportions are floating-point numbers, as in Lua; what makes the outcome exact are the bounds around them. Neither
//! side gets more than it can hold, and a debt stays at home.

use super::bucket::Bucket;
use super::fixed_window::FixedWindow;
use super::sliding_window::{Part, SlidingWindow};
use super::state::run;
use super::{Batch, State};
use crate::clock::Micros;
use crate::limit::{BucketShare, Share, WindowShare};

/// A share to hand over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lent {
    pub share: Share,
    /// With nothing available, and nothing taken from home.
    pub empty: bool,
}

/// Hands over `lent` from a home that has `share` and will have `home`: the states of home and of each of them.
pub(crate) fn lend(
    mut state: Option<State>,
    share: &Share,
    now: Micros,
    home: &Share,
    lent: &[Lent],
) -> (State, Vec<State>) {
    // A sliding window stays as it is: what has expired is the oldest, and the oldest are split last.
    let mut current = state.clone();
    let header = run(&mut current, share, now, &Batch::default(), &mut []);
    if matches!(share, Share::Bucket(_) | Share::Fixed(_)) {
        state = current;
    }
    let mut rest = burst(home) + lent.iter().filter(|lent| !lent.empty).map(|lent| burst(&lent.share)).sum::<u64>();
    let mut state = state.expect("a home");
    if let (State::Bucket(bucket), Share::Bucket(old), Share::Bucket(new)) = (&mut state, share, home) {
        assert_eq!(new.cost % old.cost, 0);
        bucket.level = (bucket.level * (new.cost / old.cost)).min(rest as i64 * new.cost);
    }
    let states = lent
        .iter()
        .map(|lent| {
            if lent.empty {
                return drained(&lent.share, header.at);
            }
            let part = burst(&lent.share) as f64 / rest as f64;
            rest -= burst(&lent.share);
            match (&mut state, &lent.share) {
                (State::Bucket(home), Share::Bucket(share)) => State::Bucket(home.hand_over(share, part, rest)),
                (State::Fixed(home), Share::Fixed(share)) => State::Fixed(home.hand_over(share, part, rest)),
                (State::Sliding(home), Share::Sliding(share)) => {
                    State::Sliding(Box::new(home.hand_over(share, part, rest)))
                }
                other => panic!("two algorithms: {other:?}"),
            }
        })
        .collect();
    (state, states)
}

/// What a share can hold, in permits.
pub(crate) fn burst(share: &Share) -> u64 {
    match share {
        Share::Bucket(share) => share.burst,
        Share::Fixed(share) | Share::Sliding(share) => share.permits,
    }
}

/// A share with nothing available, for as long as it takes to come back by itself.
fn drained(share: &Share, at: Micros) -> State {
    match share {
        Share::Bucket(_) => State::Bucket(Bucket { level: 0, seen: at }),
        Share::Fixed(share) => State::Fixed(FixedWindow { start: at - at % share.window, used: share.permits }),
        Share::Sliding(share) => {
            let part = Part { start: at - at % share.step, permits: share.permits };
            State::Sliding(Box::new(SlidingWindow { parts: [part].into(), used: share.permits, seen: at }))
        }
    }
}

fn proportion(whole: i64, part: f64) -> i64 {
    (whole as f64 * part).floor() as i64
}

impl Bucket {
    fn hand_over(&mut self, share: &BucketShare, part: f64, rest: u64) -> Self {
        let least = (self.level - rest as i64 * share.cost).max(0);
        let most = self.level.max(0).min(share.capacity);
        let level = proportion(self.level, part);
        // Whole permits: a part of one on each shard would be of use to nobody.
        let level = (level - level % share.cost).clamp(least, most);
        self.level -= level;
        Self { level, seen: self.seen }
    }
}

impl FixedWindow {
    fn hand_over(&mut self, share: &WindowShare, part: f64, rest: u64) -> Self {
        let free = (share.permits + rest) as i64 - self.used as i64;
        let least = share.permits.saturating_sub(self.used) as i64;
        let most = free.max(0).min(share.permits as i64);
        let used = share.permits - proportion(free, part).clamp(least, most) as u64;
        self.used -= used;
        Self { start: self.start, used }
    }
}

impl SlidingWindow {
    /// Sums run from the newest charge to the oldest. The oldest leave first, so what is left at any later time is such a
    /// sum; each of them is split so that neither side has more than fits, and what does not fit at all is home's.
    /// Summed the other way, a debt's newest charges would stay at home, and as soon as the oldest have left, the share
    /// would be free while home still owes.
    fn hand_over(&mut self, share: &WindowShare, part: f64, rest: u64) -> Self {
        let (mut sum, mut taken) = (0, 0);
        let mut its = Self { seen: self.seen, ..Self::default() };
        for mine in self.parts.iter_mut().rev() {
            sum += mine.permits;
            let least = taken.max(sum.saturating_sub(rest).min(share.permits));
            let most = share.permits.min(taken + mine.permits);
            let permits = (proportion(sum as i64, part) as u64).clamp(least, most) - taken;
            taken += permits;
            mine.permits -= permits;
            if permits > 0 {
                its.parts.push_front(Part { start: mine.start, permits });
            }
        }
        self.parts.retain(|mine| mine.permits > 0);
        (self.used, its.used) = (self.used - taken, taken);
        its
    }
}
