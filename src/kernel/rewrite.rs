//! Home writes another ledger: it takes back what shares had left, carries that over to another definition, and hands
//! parts of it over to new shares. Whatever moves stays exactly what it was.
//!
//! The scripts `lua/home_*.lua` do the same; this is their oracle, and what the model of the protocol computes with.
//!
//! Proportions are floating-point numbers, as in Lua; what makes the outcome exact are the bounds around them. Neither
//! side gets more than it can hold, and a debt stays at home.

use std::mem::discriminant;

use super::bucket::Bucket;
use super::fixed_window::FixedWindow;
use super::sliding_window::{Part, SlidingWindow};
use super::state::run;
use super::{Batch, State};
use crate::clock::Micros;
use crate::limit::{BucketShare, Carry, Share, WindowShare};

/// What a new ledger does to home.
#[derive(Clone, Debug)]
pub(crate) struct Rewrite<'a> {
    /// Home's share afterwards.
    pub home: Share,
    /// Another definition: what becomes of the level, and the burst of the whole limit before and after.
    pub carry: Option<(Carry, u64, u64)>,
    /// Permits that home has, and that others may have spent.
    pub deduct: u64,
    pub back: &'a [Back],
    /// Shares to hand over.
    pub lent: &'a [Share],
}

/// A share that comes back.
#[derive(Clone, Debug)]
pub(crate) struct Back {
    pub permits: u64,
    /// None: it was gone, and nobody knows what was left.
    pub left: Option<(Share, State)>,
}

/// What home and each new share are after that. `old` is home as it was: none if it is to be made anew.
pub(crate) fn rewrite(old: Option<(Share, State)>, now: Micros, to: &Rewrite<'_>) -> (State, Vec<State>) {
    if let Share::Composite(parts) = &to.home {
        return (composite(old, now, parts, to), Vec::new());
    }
    let (mut state, at, known) = start(old, now, &to.home);
    // Nothing is nothing under any definition.
    let carry = to.carry.map(|(carry, before, after)| match carry {
        Carry::Proportional if !known => (Carry::Keep, before, after),
        carry => (carry, before, after),
    });
    for back in to.back {
        take_back(&mut state, back, &to.home, at);
    }
    let rest = to.home.burst() + to.lent.iter().map(Share::burst).sum::<u64>();
    let mut state = match (state, &to.home) {
        ((State::Bucket(bucket), cost), Share::Bucket(home)) => {
            State::Bucket(bucket.deduct(to.deduct as i64 * cost).carry(carry, cost, home.cost, rest))
        }
        ((State::Fixed(window), _), Share::Fixed(home)) => State::Fixed(window.carry(carry, home, at)),
        ((State::Sliding(window), _), Share::Sliding(_)) => State::Sliding(Box::new(window.carry(carry))),
        other => panic!("two algorithms: {other:?}"),
    };
    let mut rest = rest;
    let states = to
        .lent
        .iter()
        .map(|share| {
            let part = share.burst() as f64 / rest as f64;
            rest -= share.burst();
            match (&mut state, share) {
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

/// Each part by itself, where home had the same parts before and nothing of another limit comes back; else all of them begin
/// with nothing.
fn composite(old: Option<(Share, State)>, now: Micros, parts: &[Share], to: &Rewrite<'_>) -> State {
    let alike = |shares: &[Share]| {
        let same = |(old, new): (&Share, &Share)| discriminant(old) == discriminant(new) && old.burst() > 0;
        shares.len() == parts.len() && shares.iter().zip(parts).all(same)
    };
    let before = match old {
        Some((Share::Composite(shares), State::Composite(states))) if to.back.is_empty() && alike(&shares) => {
            shares.iter().cloned().zip(states).map(|(share, state)| Some((share, state?))).collect()
        }
        _ => vec![None; parts.len()],
    };
    let rewritten = parts.iter().zip(before).map(|(part, before)| {
        let most = before.as_ref().map_or(1, |(share, _)| share.burst());
        let carry = to.carry.map(|(carry, ..)| (carry, most, part.burst()));
        rewrite(before, now, &Rewrite { home: part.clone(), carry, deduct: 0, back: &[], lent: &[] }).0
    });
    State::Composite(rewritten.map(Some).collect())
}

/// Home as it is now, with what a permit costs in it; when that is; and whether it was known. One that is made anew, or was another kernel's, begins with nothing:
/// what is lent may have all there was.
fn start(old: Option<(Share, State)>, now: Micros, home: &Share) -> ((State, i64), Micros, bool) {
    use Share::{Bucket as B, Fixed as F, Sliding as S};
    match old {
        Some((share, state)) if matches!((&share, home), (B(_), B(_)) | (F(_), F(_)) | (S(_), S(_))) => {
            let mut state = Some(state);
            let header = run(&mut state, &share, now, &Batch::default(), &mut []);
            let state = match (state.expect("a run leaves a state"), home) {
                (State::Sliding(mut window), S(home)) => {
                    window.follow_clock(header.at - header.at % home.step);
                    State::Sliding(window)
                }
                (state, _) => state,
            };
            ((state, share.cost()), header.at, true)
        }
        _ => ((drained(home, now), home.cost()), now, false),
    }
}

/// A share with nothing available, for as long as it takes to come back by itself.
fn drained(share: &Share, at: Micros) -> State {
    match share {
        Share::Bucket(_) => State::Bucket(Bucket { level: 0, seen: at }),
        Share::Fixed(share) => State::Fixed(FixedWindow { start: at - at % share.window, used: share.permits }),
        Share::Composite(_) => unreachable!("its parts are drained one by one"),
        Share::Sliding(share) => {
            let mut window = SlidingWindow { seen: at, ..SlidingWindow::default() };
            window.charge(at - at % share.step, share.permits);
            State::Sliding(Box::new(window))
        }
    }
}

/// Where nobody knows what was left, a window's permits count as used.
fn take_back((state, cost): &mut (State, i64), back: &Back, home: &Share, at: Micros) {
    match (state, &back.left) {
        (State::Bucket(mine), Some((Share::Bucket(share), State::Bucket(its)))) => {
            mine.level += convert(its.level, share.cost, *cost);
        }
        (State::Bucket(_), _) => {}
        (State::Fixed(mine), Some((Share::Fixed(share), State::Fixed(its)))) => {
            mine.used += if its.start + share.window > at { its.used } else { 0 };
        }
        (State::Fixed(mine), _) => mine.used += back.permits,
        (State::Composite(_), _) => unreachable!("a composite lends nothing"),
        (State::Sliding(mine), left) => {
            let Share::Sliding(home) = home else { panic!("two algorithms: {home:?}") };
            let current = at - at % home.step;
            let parts: Vec<Part> = match left {
                Some((Share::Sliding(share), State::Sliding(its))) => {
                    its.parts.iter().filter(|part| share.gone_at(part.start) > at).copied().collect()
                }
                _ => vec![Part { start: current, permits: back.permits }],
            };
            for Part { start, permits } in parts.into_iter().filter(|part| part.permits > 0) {
                mine.insert(Part { start: start.min(current), permits });
            }
        }
    }
}

/// Units of one cost in units of another: where that does not come out even, whole permits.
fn convert(units: i64, from: i64, to: i64) -> i64 {
    if to % from == 0 { units * (to / from) } else { units.div_euclid(from) * to }
}

fn proportion(whole: i64, part: f64) -> i64 {
    (whole as f64 * part).floor() as i64
}

impl Bucket {
    /// No debt for what others may have spent.
    fn deduct(self, units: i64) -> Self {
        Self { level: self.level.min((self.level - units).max(0)), ..self }
    }

    fn carry(self, carry: Option<(Carry, u64, u64)>, from: i64, to: i64, rest: u64) -> Self {
        let rest = rest as i64;
        let level = match carry {
            Some((Carry::Proportional, before, after)) => proportion(self.level, after as f64 / before as f64),
            _ => self.level,
        };
        let most = i128::from(rest) * i128::from(from);
        let level = if matches!(carry, Some((Carry::Reset, ..))) || i128::from(level) >= most {
            rest * to
        } else if carry.is_some() && i128::from(level) <= -most {
            // Nobody is locked out for longer than the new limit takes to refill.
            -rest * to
        } else {
            convert(level, from, to)
        };
        Self { level, ..self }
    }

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
    fn carry(self, carry: Option<(Carry, u64, u64)>, home: &WindowShare, at: Micros) -> Self {
        Self { start: at - at % home.window, used: carried(self.used, carry) }
    }

    fn hand_over(&mut self, share: &WindowShare, part: f64, rest: u64) -> Self {
        let free = (share.permits + rest) as i64 - self.used as i64;
        let least = share.permits.saturating_sub(self.used) as i64;
        let most = free.max(0).min(share.permits as i64);
        let used = share.permits - proportion(free, part).clamp(least, most) as u64;
        self.used -= used;
        Self { start: self.start, used }
    }
}

/// What counts as used under another definition.
fn carried(used: u64, carry: Option<(Carry, u64, u64)>) -> u64 {
    match carry {
        Some((Carry::Proportional, before, after)) => (used as f64 * (after as f64 / before as f64)).ceil() as u64,
        Some((Carry::Reset, ..)) => 0,
        Some((Carry::Keep, ..)) | None => used,
    }
}

impl SlidingWindow {
    fn carry(mut self, carry: Option<(Carry, u64, u64)>) -> Self {
        for part in &mut self.parts {
            part.permits = carried(part.permits, carry);
        }
        self.parts.retain(|part| part.permits > 0);
        self.used = self.parts.iter().map(|part| part.permits).sum();
        self
    }

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
