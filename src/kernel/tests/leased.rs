//! What leases add to an interval, whatever is held, spent late or given back when. Nothing, of a bucket that keeps room for them;
//! of any other what was held when it began.

use proptest::prelude::*;

use super::{START, any_limit_of, any_pause, scaled};
use crate::clock::Micros;
use crate::kernel::bucket::{self, Bucket};
use crate::kernel::leased::{Leased, take};
use crate::kernel::{Ask, Batch, Header, Refund, UNSPENT, Verdict};
use crate::limit::{BucketShare, Share};

#[derive(Clone, Debug)]
enum Step {
    Ask(u64),
    Lease(u64),
    /// All that this one of the leases holds, as long as it may.
    Spend(usize),
    /// Of a lease; also of what has expired.
    GiveBack(usize),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1u64..60).prop_map(Step::Ask),
        4 => (1u64..60).prop_map(Step::Lease),
        3 => (0usize..8).prop_map(Step::Spend),
        3 => (0usize..8).prop_map(Step::GiveBack),
    ]
}

struct Scene {
    share: BucketShare,
    state: Option<(Bucket, Leased)>,
    held_for: Micros,
}

impl Scene {
    fn run(&mut self, now: Micros, batch: &Batch<'_>) -> (Header, u64) {
        let mut verdicts = vec![Verdict::default(); batch.asks.len()];
        let (state, header) = take(self.state, &self.share, now, batch, &mut verdicts);
        self.state = Some(state);
        (header, verdicts.first().map_or(0, |verdict| verdict.granted))
    }

    fn ask(&mut self, now: Micros, count: u64, held_for: Micros) -> (Header, u64) {
        self.run(now, &Batch { asks: &[Ask { permits: 1, count }], held_for, ..Batch::default() })
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn what_is_here_and_what_is_held_is_never_more_than_the_burst(
        limit in prop_oneof![any_limit_of(0), any_limit_of(1)],
        // How long leases are held, in thousandths of a refill.
        held_for in 1u64..2_000,
        steps in prop::collection::vec((any_pause(), any_step()), 1..80),
    ) {
        let Share::Bucket(share) = Share::whole(&limit) else { unreachable!() };
        let held_for = scaled(share.refill, held_for).max(1);
        let mut scene = Scene { share, state: None, held_for };
        let (mut now, mut admitted) = (START, Vec::new());
        let mut held: Vec<Refund> = Vec::new();
        for (pause, step) in steps {
            now += scaled(share.refill, pause);
            let spendable = |lease: &Refund| now < lease.at + held_for;
            match step {
                Step::Ask(count) => admitted.push((now, scene.ask(now, count, 0).1)),
                Step::Lease(count) => {
                    let (header, permits) = scene.ask(now, count, scene.held_for);
                    held.push(Refund { permits, at: header.at, line: UNSPENT });
                }
                Step::Spend(which) => {
                    if let Some(lease) = held.get_mut(which).filter(|lease| spendable(lease)) {
                        admitted.push((now, std::mem::take(&mut lease.permits)));
                    }
                }
                Step::GiveBack(which) if which < held.len() => {
                    let refund = held.swap_remove(which);
                    scene.run(now, &Batch { refunds: &[refund], ..Batch::default() });
                }
                Step::GiveBack(_) => {}
            }
            let left: u64 = held.iter().filter(|lease| spendable(lease)).map(|lease| lease.permits).sum();
            let level = scene.state.map_or(0, |(bucket, _)| bucket.level);
            prop_assert!(level + left as i64 * share.cost <= share.capacity, "{level} here, {left} held");
        }
        for (first, (from, _)) in admitted.iter().enumerate() {
            let mut total = 0;
            for (to, permits) in &admitted[first..] {
                total += permits;
                let most = share.capacity + share.rate * (to - from) as i64;
                prop_assert!(total as i64 * share.cost <= most, "{total} in [{from}, {to}]");
            }
        }
    }
}

/// All of the burst is lent, spent and lent again at the rate at which it comes back: room for leases costs nobody anything if the
/// burst is worth twice the time for which room is kept, and the time from one lease to the next. That is the least that is accepted; with
/// less, some of what comes back finds no room.
#[test]
fn room_for_leases_takes_nothing_of_the_rate() {
    for (burst, lost) in [(110, false), (109, true), (100, true)] {
        let limit = format!("token-bucket 1/us burst {burst}").parse().unwrap();
        let Share::Bucket(share) = Share::whole(&limit) else { unreachable!() };
        let mut scene = Scene { share, state: None, held_for: 50 };
        let mut leased = 0;
        for time in (0..10_000).step_by(10) {
            let granted = scene.ask(START + time, 100, 50).1;
            // All of the burst was out at first: until that is forgotten, nothing comes back.
            leased += if time < 500 { 0 } else { granted };
        }
        assert!(leased <= 9_500 && (leased < 9_500) == lost, "of a burst of {burst}: {leased}");
    }
}

/// What a process holds of a bucket that keeps no room for it.
struct Held {
    permits: u64,
    at: Micros,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    /// The two bounds for leases that the bucket keeps no room for, over every interval.
    #[test]
    fn what_is_given_back_adds_no_more_than_was_held(
        limit in prop_oneof![any_limit_of(0), any_limit_of(1)],
        ttl in 1u64..2_000,
        steps in prop::collection::vec((any_pause(), any_step()), 1..80),
    ) {
        let Share::Bucket(share) = Share::whole(&limit) else { unreachable!() };
        let ttl = scaled(share.refill, ttl).max(1);
        let mut state = None;
        let mut run = |now, batch: &Batch<'_>| {
            let mut verdicts = vec![Verdict::default(); batch.asks.len()];
            let (next, header) = bucket::take(state, &share, now, batch, &mut verdicts);
            state = Some(next);
            (header.at, verdicts.first().map_or(0, |verdict| verdict.granted))
        };
        let (mut now, mut held) = (START, Vec::<Held>::new());
        // When, and by how many units that may widen an interval: what came back, or what refilled while it was out.
        let mut backs: Vec<(Micros, i64)> = Vec::new();
        // When, how many, and what was held just before.
        let mut admitted = Vec::new();
        for (pause, step) in steps {
            now += scaled(share.refill, pause);
            let all: u64 = held.iter().map(|lease| lease.permits).sum();
            match step {
                Step::Ask(count) => {
                    let asks = [Ask { permits: 1, count }];
                    admitted.push((now, run(now, &Batch { asks: &asks, ..Batch::default() }).1, all));
                }
                Step::Lease(count) => {
                    let (at, permits) = run(now, &Batch { asks: &[Ask { permits: 1, count }], ..Batch::default() });
                    held.push(Held { permits, at });
                }
                Step::Spend(which) => {
                    if let Some(lease) = held.get_mut(which).filter(|lease| now < lease.at + ttl) {
                        admitted.push((now, std::mem::take(&mut lease.permits), all));
                    }
                }
                Step::GiveBack(which) if which < held.len() => {
                    let Held { permits, at } = held.swap_remove(which);
                    let refund = Refund { permits, at, line: 0 };
                    run(now, &Batch { refunds: &[refund], ..Batch::default() });
                    let units = (permits as i64 * share.cost).min(share.rate * (now - at) as i64);
                    backs.push((now, units));
                }
                Step::GiveBack(_) => {}
            }
        }
        for (first, (from, _, all)) in admitted.iter().enumerate() {
            let mut total = 0;
            for (to, permits, _) in &admitted[first..] {
                total += permits;
                let units = total as i64 * share.cost;
                let plain = share.capacity + share.rate * (to - from) as i64;
                prop_assert!(units <= plain + *all as i64 * share.cost, "{total} in [{from}, {to}], {all} held at first");
                // Also what came back before: it may have made up for what came back later, and was out then.
                let wider: i64 = backs.iter().filter(|(at, _)| at <= to).map(|(_, units)| units).sum();
                let most = plain + share.rate * ttl as i64 + wider;
                prop_assert!(units <= most, "{total} in [{from}, {to}], which is wider by {wider} units");
            }
        }
    }
}
