//! Laws that hold for every algorithm.

use proptest::prelude::*;

use super::{Bench, START, any_kind, any_pause, scaled};
use crate::kernel::{Ask, Batch, Refund, Verdict, batch::NEVER};
use crate::limit::{Algorithm, Limit, Share};

/// What one step of a random history does.
#[derive(Clone, Debug)]
enum Step {
    Ask { permits: u64, count: u64 },
    Debt(u64),
    Refund { which: usize },
    Reset,
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (1u64..8, 1u64..5).prop_map(|(permits, count)| Step::Ask { permits, count }),
        2 => (1u64..50).prop_map(Step::Debt),
        4 => (0usize..100).prop_map(|which| Step::Refund { which }),
        1 => Just(Step::Reset),
    ]
}

/// Applies a step, and remembers what could be refunded later.
fn apply(bench: &mut Bench, burst: u64, now: u64, step: &Step, charged: &mut Vec<Refund>) {
    match *step {
        Step::Ask { permits, count } => {
            let permits = permits.min(burst);
            let (header, verdict) = bench.ask(now, permits, count);
            let need = permits as i64 * bench.share.cost();
            charged.extend((0..verdict.granted as i64).map(|call| Refund {
                permits,
                at: header.at,
                line: verdict.line + (call + 1) * need,
            }));
        }
        Step::Debt(debt) => drop(bench.run(now, &Batch { debt, ..Batch::default() })),
        Step::Refund { which } if !charged.is_empty() => {
            let refund = charged.swap_remove(which % charged.len());
            bench.run(now, &Batch { refunds: &[refund], ..Batch::default() });
        }
        Step::Refund { .. } => {}
        Step::Reset => {
            charged.clear();
            bench.run(now, &Batch { reset: true, ..Batch::default() });
        }
    }
}

fn history() -> impl Strategy<Value = (Limit, Vec<(u64, Step)>)> {
    (any_kind(), prop::collection::vec((any_pause(), any_step()), 0..60))
}

/// A key with a random past, and the time it is there.
fn lived(limit: &Limit, steps: &[(u64, Step)]) -> (Bench, u64, Vec<Refund>) {
    let mut bench = Bench::new(limit);
    let (mut now, mut charged) = (START, Vec::new());
    for (pause, step) in steps {
        now += scaled(bench.refill(), *pause);
        apply(&mut bench, limit.burst(), now, step, &mut charged);
    }
    (bench, now, charged)
}

fn copy(bench: &Bench) -> Bench {
    Bench { share: bench.share.clone(), state: bench.state.clone() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_batch_equals_its_calls_one_after_another(
        (limit, steps) in history(),
        asks in prop::collection::vec((1u64..8, 0u64..6), 0..10),
        debt in prop_oneof![Just(0u64), 1u64..20],
    ) {
        let (mut together, now, charged) = lived(&limit, &steps);
        let mut alone = copy(&together);
        let asks: Vec<Ask> = asks.iter().map(|&(permits, count)| Ask { permits: permits.min(limit.burst()), count }).collect();
        let refunds: Vec<Refund> = charged.into_iter().rev().take(3).collect();

        let batch = Batch { refunds: &refunds, debt, asks: &asks, ..Batch::default() };
        let (header, verdicts) = together.run(now, &batch);

        for refund in refunds {
            alone.run(now, &Batch { refunds: &[refund], ..Batch::default() });
        }
        alone.run(now, &Batch { debt, ..Batch::default() });
        let (mut last, _) = alone.run(now, &Batch::default());
        for (ask, verdict) in asks.iter().zip(verdicts) {
            let mut expected = Verdict::default();
            for call in 0..ask.count {
                let (header, single) = alone.ask(now, ask.permits, 1);
                if call == 0 {
                    expected.line = single.line;
                }
                expected.granted += single.granted;
                last = header;
            }
            if expected.granted < ask.count || ask.count == 0 {
                let (header, lacking) = alone.ask(now, ask.permits, 0);
                expected.lack = lacking.lack;
                if ask.count == 0 || limit.algorithm() == Algorithm::Composite {
                    expected.line = lacking.line;
                }
                last = header;
            }
            prop_assert_eq!(verdict, expected, "{}: {:?}", limit, ask);
        }
        prop_assert_eq!(header, last);
        prop_assert_eq!(together.state, alone.state);
    }

    /// "Not before" means: not a microsecond before, and not a microsecond later if nobody else comes.
    #[test]
    fn a_wait_is_exact((limit, steps) in history(), permits in 1u64..60) {
        let (mut bench, now, _) = lived(&limit, &steps);
        let permits = permits.min(limit.burst());
        let (_, verdict) = bench.ask(now, permits, 0);
        prop_assert_ne!(verdict.lack, NEVER);
        let wait = bench.time_for(verdict.lack);
        if wait > 0 {
            prop_assert_eq!(copy(&bench).ask(now + wait - 1, permits, 1).1.granted, 0, "{}: too early", limit);
        }
        prop_assert_eq!(bench.ask(now + wait, permits, 1).1.granted, 1, "{}: too late", limit);
    }

    /// Refill is never lost: after the time that is said to be missing, everything can be had again.
    #[test]
    fn a_state_is_as_new_when_it_says((limit, steps) in history()) {
        let (mut bench, now, _) = lived(&limit, &steps);
        let (header, _) = bench.run(now, &Batch::default());
        let full = now + bench.time_for(header.missing);
        if header.missing > 0 {
            let (before, _) = copy(&bench).run(full - 1, &Batch::default());
            prop_assert!(before.missing > 0, "{}: as new before its time", limit);
        }
        let (after, _) = bench.run(full, &Batch::default());
        prop_assert_eq!(after.missing, 0);
        prop_assert_eq!(bench.ask(full, 1, limit.burst()).1.granted, limit.burst());
    }

    #[test]
    fn a_refund_gives_back_at_most_what_was_charged((limit, steps) in history(), which in 0usize..100) {
        let (mut bench, now, charged) = lived(&limit, &steps);
        prop_assume!(!charged.is_empty());
        let refund = charged[which % charged.len()];
        let (before, _) = bench.run(now, &Batch::default());
        let (after, _) = bench.run(now, &Batch { refunds: &[refund], ..Batch::default() });
        let capacity = limit.burst() as i64 * bench.share.cost();
        prop_assert!(after.level <= capacity, "{}: lifted above its capacity", limit);
        prop_assert!(after.level >= before.level);
        prop_assert!(after.level - before.level <= refund.permits as i64 * bench.share.cost());
        if let Share::Fixed(share) = bench.share && refund.at / share.window != now / share.window {
            prop_assert_eq!(after.level, before.level, "a refund into another window");
        }
        if let Share::Sliding(share) = bench.share && refund.at + share.step + share.window <= now {
            prop_assert_eq!(after.level, before.level, "a refund of what left the window");
        }
    }

    /// A charge that comes back at once leaves no trace.
    #[test]
    fn an_immediate_refund_undoes_the_charge((limit, steps) in history(), permits in 1u64..8) {
        let (mut bench, now, _) = lived(&limit, &steps);
        let permits = permits.min(limit.burst());
        let (before, _) = bench.run(now, &Batch::default());
        let state = bench.state.clone();
        let (header, verdict) = bench.ask(now, permits, 1);
        if verdict.granted == 0 {
            return Ok(()); // nothing to undo
        }
        let line = verdict.line + permits as i64 * bench.share.cost();
        let (after, _) = bench.run(now, &Batch { refunds: &[Refund { permits, at: header.at, line }], ..Batch::default() });
        prop_assert_eq!(after, before);
        prop_assert_eq!(bench.state, state);
    }

    /// In a line, nobody but the last can step out: behind all others somebody was promised a turn.
    #[test]
    fn a_pacing_queue_takes_back_only_its_tail(permits in 1u64..9, behind in 1u64..9) {
        let limit: Limit = "pacing-queue 10/s capacity 20".parse().unwrap();
        let mut bench = Bench::new(&limit);
        let refund = |permits: u64, at: u64, verdict: Verdict, bench: &Bench| {
            Refund { permits, at, line: verdict.line + permits as i64 * bench.share.cost() }
        };
        let (_, first) = bench.ask(START, permits, 1);
        let (_, second) = bench.ask(START + 7, behind, 1);
        let first = refund(permits, START, first, &bench);
        let second = refund(behind, START + 7, second, &bench);
        let level = |bench: &mut Bench, refund| bench.run(START + 9, &Batch { refunds: &[refund], ..Batch::default() }).0.level;
        let (before, _) = bench.run(START + 9, &Batch::default());
        prop_assert_eq!(level(&mut bench, first), before.level);
        prop_assert_eq!(level(&mut bench, second), before.level + behind as i64 * bench.share.cost());
        // Now the first one is the tail again.
        prop_assert!(level(&mut bench, first) > before.level + behind as i64 * bench.share.cost());
    }

    #[test]
    fn a_debt_is_held_to_one_burst((limit, steps) in history(), debt in prop_oneof![1u64..200, Just(u64::MAX)]) {
        let (mut bench, now, _) = lived(&limit, &steps);
        let (before, _) = bench.run(now, &Batch::default());
        let (after, _) = bench.run(now, &Batch { debt, ..Batch::default() });
        let cost = i128::from(bench.share.cost());
        let floor = -i128::from(limit.burst()) * cost;
        let expected = (i128::from(before.level) - i128::from(debt) * cost).max(floor);
        if limit.algorithm() == Algorithm::Composite {
            // Each part to its own.
            let largest = limit.parts().map(|part| part.burst()).max().expect("a part");
            prop_assert!(i128::from(after.level) <= expected && after.level >= -(largest as i64), "{}", limit);
        } else {
            prop_assert_eq!(i128::from(after.level), expected, "{}", limit);
        }
    }

    /// What is put together from two states grants nothing that one of the two would not.
    #[test]
    fn an_absorbed_state_is_no_better_than_either(
        limit in any_kind(),
        first in prop::collection::vec((any_pause(), any_step()), 0..30),
        second in prop::collection::vec((any_pause(), any_step()), 0..30),
        later in prop::collection::vec((any_pause(), 1u64..8, 1u64..5), 1..20),
    ) {
        let (first, one, _) = lived(&limit, &first);
        let (second, other, _) = lived(&limit, &second);
        let mut now = one.max(other);
        let mut both = copy(&first);
        crate::kernel::state::absorb(&mut both.state, second.state.clone(), &first.share, now);
        let mut alone = [first, second];
        for (pause, permits, count) in later {
            now += scaled(both.refill(), pause);
            let permits = permits.min(limit.burst());
            let (_, verdict) = both.ask(now, permits, count);
            for state in &mut alone {
                let (_, own) = state.ask(now, permits, verdict.granted);
                prop_assert_eq!(own.granted, verdict.granted, "{}: more than it had alone", limit);
            }
        }
    }

    #[test]
    fn more_than_ever_fits_is_never_granted((limit, steps) in history(), more in 1u64..u64::from(u32::MAX)) {
        let (mut bench, now, _) = lived(&limit, &steps);
        let (_, verdict) = bench.ask(now, limit.burst() + more, 1);
        prop_assert_eq!((verdict.granted, verdict.lack), (0, NEVER));
    }
}
