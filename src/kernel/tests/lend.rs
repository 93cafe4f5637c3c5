//! What home hands over: nothing is lost, nothing is made, now and at any later time.

use proptest::prelude::*;

use super::{Bench, START, any_limit, any_pause, scaled};
use crate::clock::Micros;
use crate::kernel::lend::{Lent, burst, lend};
use crate::kernel::{Ask, Batch, State};
use crate::limit::{Limit, Share};
use crate::plan::{common_cost, split};

/// A home with a history, and shares to hand over from it.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub limit: Limit,
    /// Pause in thousandths of a refill, permits, count, debt.
    pub history: Vec<(u64, u64, u64, u64)>,
    /// Steps of the clock before the hand-over, in thousandths of a refill.
    pub jump: i64,
    /// The slots' shares: handed over or not, empty or not.
    pub shares: Vec<(bool, bool)>,
}

pub(super) fn any_scene() -> impl Strategy<Value = Scene> {
    let debt = prop_oneof![6 => Just(0u64), 1 => 1u64..90];
    let history = prop::collection::vec((any_pause(), 1u64..9, 0u64..9, debt), 1..12);
    let jump = prop_oneof![4 => Just(0i64), 6 => 0i64..900, 2 => -900i64..0, 1 => -4_000i64..4_000];
    let shares = prop::collection::vec((prop::bool::weighted(0.8), prop::bool::weighted(0.15)), 1..7);
    (any_limit(), history, jump, shares)
        .prop_map(|(limit, history, jump, shares)| Scene { limit, history, jump, shares })
        .prop_filter("a limit of one permit can't be split", |scene| scene.limit.permits().min(scene.limit.burst()) > 1)
}

impl Scene {
    /// The number of shares that the limit has permits for, home's among them.
    pub(super) fn shards(&self) -> usize {
        (self.shares.len() + 1).min(self.limit.permits().min(self.limit.burst()) as usize)
    }

    /// Home as its history left it, and the time of the hand-over.
    pub(super) fn home(&self) -> (Bench, Micros) {
        let mut bench = Bench::new(&self.limit);
        let mut now = START;
        for (pause, permits, count, debt) in &self.history {
            now += scaled(bench.refill(), *pause);
            let asks = [Ask { permits: *permits, count: *count }];
            bench.run(now, &Batch { debt: *debt, asks: &asks, ..Batch::default() });
        }
        let by = scaled(bench.refill(), self.jump.unsigned_abs());
        (bench, if self.jump < 0 { now - by } else { now + by })
    }

    /// What home keeps, and what goes out.
    fn parts(&self) -> (Share, Vec<Lent>) {
        let cost = common_cost(&self.limit, self.shards());
        let shares = split(&self.limit, self.shards());
        let (mut permits, mut burst) = (self.limit.permits(), self.limit.burst());
        let mut lent = Vec::new();
        for ((its_permits, its_burst), (handed, empty)) in shares[1..].iter().zip(&self.shares) {
            if *handed {
                (permits, burst) = (permits - its_permits, burst - its_burst);
                lent.push(Lent { share: Share::part(&self.limit, cost, *its_permits, *its_burst), empty: *empty });
            }
        }
        (Share::part(&self.limit, cost, permits, burst), lent)
    }
}

/// What a state has available at `now`: units of a bucket, permits of a window.
fn level(state: &State, share: &Share, now: Micros) -> i64 {
    let mut bench = Bench { share: *share, state: Some(state.clone()) };
    bench.run(now, &Batch::default()).0.level
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6_000))]

    /// Together they have what home had; each has what it can hold, in proportion; a debt is home's.
    #[test]
    fn what_is_handed_over_was_there(scene in any_scene()) {
        let (old, now) = scene.home();
        let (share, lent) = scene.parts();
        let (home, states) = lend(old.state.clone(), &old.share, now, &share, &lent);

        let moved: u64 = lent.iter().filter(|lent| !lent.empty).map(|lent| burst(&lent.share)).sum();
        let room = burst(&share) + moved;
        let before = level(old.state.as_ref().unwrap(), &old.share, now) * (share.cost() / old.share.cost());
        // Shares that begin empty make the limit smaller until they have filled up.
        let before = match share {
            Share::Bucket(share) => before.min(room as i64 * share.cost),
            Share::Fixed(_) | Share::Sliding(_) => before - (burst(&old.share) - room) as i64,
        };
        let mut after = level(&home, &share, now);
        let mut whole = after / share.cost();
        prop_assert!(after <= burst(&share) as i64 * share.cost());
        for (lent, state) in lent.iter().zip(&states) {
            let has = level(state, &lent.share, now);
            after += has;
            if lent.empty {
                prop_assert_eq!(has, 0);
                continue;
            }
            prop_assert!(has >= 0 && has <= burst(&lent.share) as i64 * share.cost());
            let fair = before.max(0) as f64 * burst(&lent.share) as f64 / room as f64;
            // Each hand-over is rounded to a permit, and what it leaves over comes to those after it.
            let rounded = share.cost() as f64 * (1 + states.len()) as f64;
            prop_assert!((has as f64 - fair).abs() <= rounded, "{} of {}, fair were {}", has, before, fair);
            whole += has / share.cost();
        }
        prop_assert_eq!(after, before);
        if before >= 0 {
            prop_assert_eq!(whole, before / share.cost(), "parts of permits that nobody can have");
        }
    }

    /// As time goes on, they never have more than the undivided share would have. Windows never have less either. Home
    /// alone pays a debt, while the others fill up: there it counts against what they have.
    #[test]
    fn nothing_is_made_later(scene in any_scene(), later in prop::collection::vec(0u64..2_500, 1..8)) {
        let (old, now) = scene.home();
        let (share, mut lent) = scene.parts();
        for lent in &mut lent {
            lent.empty = false;
        }
        let (home, states) = lend(old.state.clone(), &old.share, now, &share, &lent);
        let (undivided, _) = lend(old.state.clone(), &old.share, now, &old.share, &[]);
        let factor = share.cost() / old.share.cost();

        // Shares of a bucket differ in how far a clock must step back to be followed: from where time stands still, on.
        let from = match home { State::Bucket(bucket) => bucket.seen, _ => now };
        let mut instants: Vec<Micros> = later.iter().map(|part| from + scaled(old.refill(), *part)).collect();
        if let (State::Sliding(window), Share::Sliding(share)) = (&undivided, &old.share) {
            // Just before and when a sub-window leaves.
            let gone = window.parts.iter().map(|part| part.start + share.step - 1 + share.window);
            instants.extend(gone.flat_map(|gone| [gone - 1, gone]).filter(|instant| *instant >= now));
        }
        for instant in instants {
            let whole = level(&undivided, &old.share, instant) * factor;
            let kept = level(&home, &share, instant);
            let lent = lent.iter().zip(&states).map(|(lent, state)| level(state, &lent.share, instant)).sum::<i64>();
            match share {
                Share::Bucket(_) => {
                    prop_assert!(kept + lent <= whole, "{} and {} of {} at {}", kept, lent, whole, instant - now);
                }
                Share::Fixed(_) | Share::Sliding(_) => {
                    prop_assert_eq!(kept.max(0) + lent, whole.max(0), "at {}", instant - now);
                }
            }
        }
    }
}

/// 49 · (1/49) is less than 1 in floating point: rounded down, a share would have a permit that home owes.
#[test]
fn proportions_that_round_make_no_permit() {
    for text in ["fixed-window 49/s", "sliding-window 49/s", "token-bucket 49/s burst 49"] {
        let limit: Limit = text.parse().unwrap();
        for taken in 0..=49 {
            let mut old = Bench::new(&limit);
            old.ask(START, 1, taken);
            let cost = common_cost(&limit, 49);
            let home = Share::part(&limit, cost, 48, 48);
            let lent = Lent { share: Share::part(&limit, cost, 1, 1), empty: false };
            let (state, states) = lend(old.state, &old.share, START, &home, &[lent]);
            let (kept, given) = (level(&state, &home, START), level(&states[0], &lent.share, START));
            assert!(kept >= 0 && given >= 0, "{text}: {kept} and {given} of {taken} taken");
            assert_eq!(kept + given, (49 - taken as i64) * home.cost(), "{text}");
        }
    }
}
