//! What home hands over and takes back: nothing is lost, nothing is made, now and at any later time.

use proptest::prelude::*;

use super::{Bench, START, any_limit, any_pause, can_be_split, scaled};
use crate::clock::Micros;
use crate::kernel::rewrite::{Back, Rewrite, rewrite};
use crate::kernel::{Ask, Batch, State};
use crate::limit::{Carry, Limit, Share};
use crate::plan::{common_cost, split};

/// A home with a history, and shares to hand over from it.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub limit: Limit,
    /// Pause in thousandths of a refill, permits, count, debt.
    pub history: Vec<(u64, u64, u64, u64)>,
    /// Steps of the clock before the hand-over, in thousandths of a refill.
    pub jump: i64,
    /// The slots' shares: handed over or not.
    pub shares: Vec<bool>,
}

pub(super) fn any_scene() -> impl Strategy<Value = Scene> {
    any_scene_of(any_limit())
}

pub(super) fn any_scene_of(limit: impl Strategy<Value = Limit>) -> impl Strategy<Value = Scene> {
    let debt = prop_oneof![6 => Just(0u64), 1 => 1u64..90];
    let history = prop::collection::vec((any_pause(), 1u64..9, 0u64..9, debt), 1..12);
    let jump = prop_oneof![4 => Just(0i64), 6 => 0i64..900, 2 => -900i64..0, 1 => -4_000i64..4_000];
    let shares = prop::collection::vec(prop::bool::weighted(0.8), 1..7);
    (limit, history, jump, shares)
        .prop_map(|(limit, history, jump, shares)| Scene { limit, history, jump, shares })
        .prop_filter("a limit of one permit can't be split", |scene| can_be_split(&scene.limit))
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
    pub(super) fn parts(&self) -> (Share, Vec<Share>) {
        let cost = common_cost(&self.limit, self.shards());
        let shares = split(&self.limit, self.shards());
        let (mut permits, mut burst) = (self.limit.permits(), self.limit.burst());
        let mut lent = Vec::new();
        for ((its_permits, its_burst), handed) in shares[1..].iter().zip(&self.shares) {
            if *handed {
                (permits, burst) = (permits - its_permits, burst - its_burst);
                lent.push(Share::part(&self.limit, cost, *its_permits, *its_burst));
            }
        }
        (Share::part(&self.limit, cost, permits, burst), lent)
    }
}

/// What a state has available at `now`: units of a bucket, permits of a window.
fn level(state: &State, share: &Share, now: Micros) -> i64 {
    let mut bench = Bench { share: share.clone(), state: Some(state.clone()) };
    bench.run(now, &Batch::default()).0.level
}

/// Home hands over `lent` and keeps `home`.
fn lend(old: &Bench, now: Micros, home: &Share, lent: &[Share]) -> (State, Vec<State>) {
    let old = (old.share.clone(), old.state.clone().expect("it has a history"));
    rewrite(Some(old), now, &Rewrite { home: home.clone(), carry: None, deduct: 0, back: &[], lent })
}

/// What a share that was closed at `now` has left.
fn close(share: &Share, state: &State, now: Micros) -> Back {
    let mut bench = Bench { share: share.clone(), state: Some(state.clone()) };
    bench.run(now, &Batch::default());
    Back { permits: share.burst(), left: Some((share.clone(), bench.state.expect("a run leaves a state"))) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6_000))]

    /// Together they have what home had; each has what it can hold, in proportion; a debt is home's.
    #[test]
    fn what_is_handed_over_was_there(scene in any_scene()) {
        let (old, now) = scene.home();
        let (share, lent) = scene.parts();
        let (home, states) = lend(&old, now, &share, &lent);

        let room = old.share.burst();
        let before = level(old.state.as_ref().unwrap(), &old.share, now) * (share.cost() / old.share.cost());
        let mut after = level(&home, &share, now);
        let mut whole = after / share.cost();
        prop_assert!(after <= share.burst() as i64 * share.cost());
        for (lent, state) in lent.iter().zip(&states) {
            let has = level(state, lent, now);
            after += has;
            prop_assert!(has >= 0 && has <= lent.burst() as i64 * share.cost());
            let fair = before.max(0) as f64 * lent.burst() as f64 / room as f64;
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
        let (share, lent) = scene.parts();
        let (home, states) = lend(&old, now, &share, &lent);
        let (undivided, _) = lend(&old, now, &old.share, &[]);
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
            let lent = lent.iter().zip(&states).map(|(lent, state)| level(state, lent, instant)).sum::<i64>();
            match &share {
                Share::Bucket(_) => {
                    prop_assert!(kept + lent <= whole, "{} and {} of {} at {}", kept, lent, whole, instant - now);
                }
                Share::Composite(_) => unreachable!("it is not split"),
                Share::Fixed(_) | Share::Sliding(_) => {
                    prop_assert_eq!(kept.max(0) + lent, whole.max(0), "at {}", instant - now);
                }
            }
        }
    }

    /// Shares that went out, were used, and come back: home has just what all of them together had, at that moment and, for
    /// windows, at any later one.
    #[test]
    fn what_comes_back_is_what_was_left(
        scene in any_scene(),
        used in prop::collection::vec((0u64..40, 0u64..900), 7),
        later in prop::collection::vec(0u64..2_500, 1..6),
    ) {
        let (old, mut now) = scene.home();
        let (share, lent) = scene.parts();
        let (home, mut states) = lend(&old, now, &share, &lent);
        // Time does not go back from here on.
        let home = Bench { share: share.clone(), state: Some(home) };
        now = now.max(match &home.state { Some(State::Bucket(bucket)) => bucket.seen, _ => now });
        for ((state, share), (permits, pause)) in states.iter_mut().zip(&lent).zip(&used) {
            now += scaled(old.refill(), *pause) / 10;
            let mut bench = Bench { share: share.clone(), state: Some(state.clone()) };
            bench.run(now, &Batch { asks: &[Ask { permits: 1, count: *permits }], ..Batch::default() });
            *state = bench.state.unwrap();
        }
        let Some(out) = lent.last() else { return Ok(()) };
        let whole = Share::part(&scene.limit, share.cost(), scene.limit.permits(), scene.limit.burst());
        let back: Vec<Back> = lent.iter().zip(&states).map(|(share, state)| close(share, state, now)).collect();
        let before = home.state.clone().unwrap();
        let expected = level(&before, &share, now)
            + lent.iter().zip(&states).map(|(share, state)| level(state, share, now)).sum::<i64>();
        let to = Rewrite { home: whole.clone(), carry: None, deduct: 0, back: &back, lent: &[] };
        let (after, _) = rewrite(Some((share.clone(), before.clone())), now, &to);
        prop_assert_eq!(level(&after, &whole, now), expected);

        // All but the last, and that one gone without a trace: nobody knows what it had.
        let mut lost = back.clone();
        lost.last_mut().unwrap().left = None;
        let (after, _) = rewrite(Some((share.clone(), before.clone())), now, &Rewrite { back: &lost, ..to.clone() });
        let had = level(states.last().unwrap(), out, now);
        prop_assert_eq!(level(&after, &whole, now), expected - had);

        if !matches!(share, Share::Bucket(_)) {
            let (after, _) = rewrite(Some((share.clone(), before.clone())), now, &to);
            for part in later {
                let instant = now + scaled(old.refill(), part);
                let apart = level(&before, &share, instant).max(0)
                    + lent.iter().zip(&states).map(|(share, state)| level(state, share, instant).max(0)).sum::<i64>();
                prop_assert!(level(&after, &whole, instant) <= apart);
            }
        }
    }

    /// Another definition: nobody gets more than it allows, and nobody is locked out for longer than it takes to refill.
    #[test]
    fn a_new_limit_is_never_exceeded_and_locks_nobody_out(scene in any_scene(), to in any_limit(), carry in 0usize..3) {
        let (old, now) = scene.home();
        let carry = [Carry::Keep, Carry::Proportional, Carry::Reset][carry];
        let share = Share::whole(&to);
        let arguments = Rewrite {
            home: share.clone(),
            carry: Some((carry, scene.limit.burst(), to.burst())),
            deduct: 0,
            back: &[],
            lent: &[],
        };
        let (state, _) = rewrite(Some((old.share.clone(), old.state.clone().unwrap())), now, &arguments);
        let has = level(&state, &share, now);
        prop_assert!(has <= share.burst() as i64 * share.cost());
        let same_kernel = std::mem::discriminant(&share) == std::mem::discriminant(&old.share);
        let had = level(old.state.as_ref().unwrap(), &old.share, now);
        match carry {
            Carry::Reset => prop_assert_eq!(has, share.burst() as i64 * share.cost()),
            _ if !same_kernel => prop_assert!(has <= 0),
            Carry::Keep if matches!(share, Share::Bucket(_)) => {
                prop_assert!(has.div_euclid(share.cost()) <= had.div_euclid(old.share.cost()).max(0));
            }
            _ => {}
        }
        let mut bench = Bench { share: share.clone(), state: Some(state) };
        // Where time stands still, it is counted from there.
        let at = bench.run(now, &Batch::default()).0.at;
        let full = bench.refill() * 2 + match share { Share::Sliding(share) => share.step, _ => 1 };
        let (header, _) = bench.run(at + full, &Batch::default());
        prop_assert_eq!(header.missing, 0);
        prop_assert!(header.level >= share.cost());
    }
}

/// A home that is made anew has nothing: what it lent may have all there was.
#[test]
fn a_home_made_anew_begins_with_nothing() {
    for text in ["fixed-window 49/s", "sliding-window 49/s", "token-bucket 49/s burst 49"] {
        let home = Share::whole(&text.parse().unwrap());
        let to = Rewrite { home: home.clone(), carry: None, deduct: 0, back: &[], lent: &[] };
        let (state, _) = rewrite(None, START, &to);
        assert_eq!(level(&state, &home, START), 0, "{text}");
    }
}

/// What home may have and others have spent is deducted, but makes no debt; and a debt stays what it is.
#[test]
fn a_deduction_makes_no_debt() {
    let home = Share::whole(&"token-bucket 49/s burst 49".parse().unwrap());
    for (debt, deduct, left) in [(0, 10, 39), (0, 49, 0), (0, 90, 0), (60, 10, -11), (60, 0, -11)] {
        let mut bench = Bench { share: home.clone(), state: None };
        bench.run(START, &Batch { debt, ..Batch::default() });
        let to = Rewrite { home: home.clone(), carry: None, deduct, back: &[], lent: &[] };
        let (state, _) = rewrite(Some((home.clone(), bench.state.unwrap())), START, &to);
        assert_eq!(level(&state, &home, START), left * home.cost(), "{debt} and {deduct}");
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
            let lent = Share::part(&limit, cost, 1, 1);
            let (state, states) = lend(&old, START, &home, std::slice::from_ref(&lent));
            let (kept, given) = (level(&state, &home, START), level(&states[0], &lent, START));
            assert!(kept >= 0 && given >= 0, "{text}: {kept} and {given} of {taken} taken");
            assert_eq!(kept + given, (49 - taken as i64) * home.cost(), "{text}");
        }
    }
}
