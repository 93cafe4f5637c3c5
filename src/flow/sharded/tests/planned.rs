//! A key with a plan is packed, and goes on where it was: by the same ids, to the same shards.

use std::time::Duration;

use proptest::prelude::*;

use crate::clock::Micros;
use crate::flow::sharded::SharedLimit;
use crate::flow::sharded::ceiling::Shut;
use crate::flow::sharded::entry::{Entry, Word};
use crate::flow::sharded::meter::Meter;
use crate::flow::sharded::planned::{Kept, Warmth};
use crate::flow::sharded::view::View;
use crate::plan::{Definition, SET_KEY, Shards, common_cost};
use crate::sync::Arc;
use crate::wire::tests::ledger::any_ledger;
use crate::wire::{GrantId, Ledger, Status};
use crate::{FakeClock, Limiter};

/// All of its shares are where they should be.
fn any_settled() -> impl Strategy<Value = Ledger> {
    any_ledger().prop_map(|mut ledger| {
        ledger.next = None;
        ledger.grants.iter_mut().for_each(|grant| grant.status = Status::Live);
        ledger
    })
}

/// Mostly close to each other, as they are; and any.
fn any_moment() -> impl Strategy<Value = Micros> {
    const NOW: Micros = 1_790_000_000_000_000;
    prop_oneof![4 => NOW..NOW + 100_000_000, 1 => 0..u64::MAX / 2]
}

fn any_meter() -> impl Strategy<Value = Meter> {
    let permits = || prop_oneof![Just(0), 0u32..100, any::<u32>()];
    (1_789_999_990u32..1_790_000_100, permits(), permits()).prop_map(|(number, present, before)| {
        if present == 0 && before == 0 { Meter::default() } else { Meter { number, present, before } }
    })
}

fn any_kept() -> impl Strategy<Value = Kept> {
    let warmth = (any::<bool>(), any_moment(), any_moment(), any_moment())
        .prop_map(|(is_hot, cooling, cooled, since)| Warmth { is_hot, cooling, cooled, since });
    let next_step = prop_oneof![Just(0), any_moment()];
    let id = (any_moment(), any::<u64>()).prop_map(|(moment, random)| GrantId { stamp: moment / 1_000, random });
    (id, any_moment(), any_moment(), any::<u64>(), next_step, 0u64..1 << 60, warmth).prop_map(
        |(id, asked, home_time, planned_for, next_step, turn, warmth)| Kept {
            id,
            asked,
            home_time: home_time / 1_000,
            planned_for,
            next_step,
            turn,
            warmth: Some(warmth),
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn what_is_kept_is_read_back(ledger in any_settled(), kept in any_kept(), lately in prop::collection::vec(any_meter(), 9)) {
        let warmth = kept.warmth.filter(|_| ledger.definition.shards == Shards::Auto);
        let (kept, lately) = (Kept { warmth, ..kept }, lately[..=ledger.grants.len()].to_vec());
        let mut bytes = Vec::new();
        kept.write(&ledger, lately.iter().copied(), &mut bytes);
        prop_assert_eq!(Kept::read(&ledger.definition, &bytes), (kept, ledger, lately));
    }

    /// Whatever the plan: the entry that comes out asks the same shards under the same ids as the one that went in.
    #[test]
    fn an_entry_goes_on_where_it_was_packed(
        ledger in any_settled(),
        random: u64,
        ago in 0u64..4_000_000,
        granted in prop::collection::vec(0u64..1_000, 9),
        turns in 0usize..9,
    ) {
        let (limit, clock) = limit(ledger.definition);
        let before = Entry::new(&limit, b"key", 7, None, true);
        let id = GrantId { stamp: limit.clock.now() / 1_000, random };
        before.adopt(&limit, id, ledger, Word::InsteadOf(limit.defined().alone));
        before.heard(limit.clock.now(), limit.clock.now() + 5_000);
        for (lane, granted) in before.load().lanes.iter().zip(&granted) {
            lane.counts.fallback.granted(*granted, limit.clock.now());
        }
        before.planned_for.store(3, crate::sync::atomic::Ordering::Relaxed);
        let view = before.view();
        (0..turns).for_each(|_| { before.next_turn(&view, limit.clock.now()); });
        clock.advance(Duration::from_micros(ago));
        let now = limit.clock.now();
        prop_assert!(before.is_plain(now));

        let mut bytes = Vec::new();
        before.pack(now, &mut bytes);
        let after = Entry::unpack(&limit, (b"key", 7), &view.ledger.definition, &bytes, Shut::default());
        prop_assert_eq!((&after.key, after.owner, after.home), (&before.key, 7, before.home));
        prop_assert_eq!(plan(&after.load()), plan(&view));
        prop_assert_eq!(&after.load().ledger, &view.ledger);
        prop_assert_eq!(after.silence(now), ago, "it waits for home's word no sooner and no later");
        prop_assert_eq!(after.next_id(&view).stamp, before.next_id(&view).stamp);
        prop_assert_eq!(after.planned_for.load(crate::sync::atomic::Ordering::Relaxed), 3);
        prop_assert_eq!(after.is_hot(), before.is_hot());
        let lanes = view.lanes.len();
        prop_assert_eq!(after.turns.place(lanes), before.turns.place(lanes));
        for (one, other) in view.lanes.iter().zip(&after.load().lanes) {
            let span = crate::flow::sharded::fallback::span(view.ledger.limit().period());
            let lately = one.counts.fallback.lately_by(span, now);
            prop_assert_eq!(other.counts.fallback.lately_by(span, now), lately);
        }
        // Home's word that it has this ledger is no news, and an older one is one that was forgotten.
        let old = GrantId { stamp: id.stamp - 1, random };
        prop_assert!(after.is_later(old, now, now) && !after.is_later(id, now, now));
    }
}

/// Of a limiter that asks nobody.
fn limit(definition: Definition) -> (Arc<SharedLimit>, FakeClock) {
    let clock = FakeClock::new();
    let limiter = Limiter::builder().redis(["127.0.0.1:1"]).clock(&clock).build().unwrap();
    let limit = limiter.define("api", definition.limit).unwrap();
    (limit.on_shared().expect("a shared store"), clock)
}

/// What calls go by.
fn plan(view: &View) -> Vec<String> {
    let of = |lane: &Arc<crate::flow::sharded::Lane>| {
        let sub_key = lane.sub_key.escape_ascii();
        let (id, share, parts) = (lane.id, &lane.share, (lane.permits, lane.burst));
        format!("{sub_key} {id} {share:?} {parts:?} {} {}", lane.is_home, lane.least_ttl)
    };
    assert_eq!(view.home().id, view.id);
    view.lanes.iter().map(of).collect()
}

/// With three shares of a limit as users have it, and a second's use, beside 48 bytes and those of the key.
#[test]
fn a_plan_of_three_shares_takes_70_bytes() {
    let definition = Definition::new("token-bucket 1000/s burst 100".parse().unwrap(), SET_KEY - 1, Shards::PerMaster);
    let (limit, clock) = limit(definition);
    let entry = Entry::new(&limit, b"key", 7, None, true);
    let now = limit.clock.now();
    let mut ledger = Ledger { cost: common_cost(&definition.limit, 3), ..Ledger::new(definition) };
    for (number, permits, burst) in [(5, 333, 33), (6, 333, 33)] {
        let id = GrantId { stamp: now / 1_000 - 40, random: u64::MAX };
        let (slot, cost, status) = (crate::key::Slot::new(16_000 + number).unwrap(), ledger.cost, Status::Live);
        ledger.grants.push(crate::wire::Grant { slot, id, permits, burst, cost, status });
    }
    let id = GrantId { stamp: now / 1_000 - 30, random: u64::MAX };
    entry.adopt(&limit, id, ledger, Word::InsteadOf(limit.defined().alone));
    clock.advance(Duration::from_secs(60));
    let now = limit.clock.now();
    entry.heard(now, now + 700);
    entry.load().lanes.iter().for_each(|lane| lane.counts.fallback.granted(3, now));
    let mut bytes = Vec::new();
    entry.pack(now, &mut bytes);
    assert!(bytes.len() <= 70, "{}", bytes.len());
}
