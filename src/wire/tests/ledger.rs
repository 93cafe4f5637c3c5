//! Ledgers: as they are written, as scripts append to them, and damaged in every way.

use proptest::prelude::*;

use crate::key::Slot;
use crate::limit::{Carry, Limit, Share};
use crate::plan::{Definition, Shards, common_cost, split};
use crate::wire::{BadLedger, Grant, GrantId, Kind, Ledger, Status, pack};

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        (8u64..5_000, 8u64..5_000).prop_map(|(permits, burst)| format!("token-bucket {permits}/s burst {burst}")),
        (8u64..5_000, 8u64..5_000).prop_map(|(permits, burst)| format!("leaky-bucket {permits}/min capacity {burst}")),
        (8u64..5_000).prop_map(|permits| format!("fixed-window {permits}/h")),
        (8u64..5_000, 1u32..200).prop_map(|(permits, parts)| format!("sliding-window {permits}/h precision {parts}")),
    ]
}

fn any_definition() -> impl Strategy<Value = Definition> {
    let shards = prop_oneof![
        Just(Shards::PerMaster),
        Just(Shards::Off),
        Just(Shards::Auto),
        (2u16..=16_384).prop_map(|count| Shards::Exactly(count.try_into().expect("above zero")))
    ];
    let carry = prop_oneof![Just(Carry::Keep), Just(Carry::Proportional), Just(Carry::Reset)];
    (any_text(), any::<u64>(), shards, carry).prop_map(|(text, revision, shards, carry)| {
        let limit = text.parse().expect("a limit in range");
        Definition { limit, revision, shards, carry }
    })
}

/// Any ledger with some of its shares lent, some of them pending and some recalled.
pub(crate) fn any_ledger() -> impl Strategy<Value = Ledger> {
    let grants = prop::collection::vec((any::<bool>(), 0u8..4, 0u64..1 << 53, any::<u64>(), 0u64..1 << 53), 0..8);
    let next = prop::option::weighted(0.2, any_definition());
    (any_definition(), next, grants, 0u16..16_000).prop_map(|(definition, next, grants, slot)| {
        let limit = definition.limit;
        let shares = split(&limit, grants.len() + 1);
        let mut ledger = Ledger { next, ..Ledger::new(definition) };
        ledger.cost = common_cost(&limit, shares.len());
        for (number, (lent, status, stamp, random, not_after)) in (1..).zip(grants) {
            let (permits, burst) = shares[usize::from(number)];
            let id = GrantId { stamp, random };
            let slot = Slot::new(slot + number).expect("in range");
            let mut grant = Grant { slot, id, permits, burst, cost: ledger.cost, status: Status::Live };
            match status {
                0 => {}
                1 => grant.status = Status::RECALLED,
                _ => {
                    let state = pack(Kind::Lent, id, &ledger.share_of(&grant), None, b"");
                    grant.status = Status::Pending { not_after, state };
                    if status == 3 {
                        grant.status = grant.status.recalled();
                    }
                }
            }
            ledger.grants.extend(lent.then_some(grant));
        }
        ledger
    })
}

fn parts(ledger: &Ledger) -> (u64, u64) {
    let sum = |of: fn(&Grant) -> u64| ledger.grants.iter().map(of).sum::<u64>();
    let (permits, burst) = ledger.home_parts();
    (permits + sum(|grant| grant.permits), burst + sum(|grant| grant.burst))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn a_ledger_is_read_back(ledger in any_ledger()) {
        prop_assert_eq!(Ledger::decode(&ledger.encode()), Ok(ledger));
    }

    /// A script has only the bytes without the new states, and appends those.
    #[test]
    fn states_can_be_appended(mut ledger in any_ledger(), new in 0usize..8) {
        let old = ledger.grants.len().saturating_sub(new);
        for grant in ledger.grants[old..].iter_mut().filter(|grant| grant.status.is_recalled()) {
            // One that is new was not recalled yet.
            grant.status = Status::RECALLED;
        }
        let mut bare = ledger.clone();
        let mut appended = Vec::new();
        for grant in &mut bare.grants[old..] {
            if let Status::Pending { state, .. } = &mut grant.status {
                appended.extend((state.len() as u32).to_le_bytes());
                appended.append(state);
            }
        }
        let bytes = [bare.encode(), appended.clone()].concat();
        prop_assert_eq!(&bytes, &ledger.encode());
        prop_assert_eq!(Ledger::decode(&bare.encode()).is_ok(), appended.is_empty(), "a pending grant has its state");
    }

    #[test]
    fn a_ledger_cut_short_or_with_more_behind_is_refused(ledger in any_ledger(), cut: prop::sample::Index, byte: u8) {
        let mut bytes = ledger.encode();
        prop_assert!(Ledger::decode(&bytes[..cut.index(bytes.len())]).is_err());
        bytes.push(byte);
        prop_assert!(Ledger::decode(&bytes).is_err());
    }

    /// Whatever comes out of damaged bytes still adds up, and is written as it was read.
    #[test]
    fn a_damaged_ledger_is_refused_or_adds_up(
        ledger in any_ledger(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
    ) {
        let mut bytes = ledger.encode();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(read) = Ledger::decode(&bytes) {
            read.home_share();
            let (lent, recalled): (Vec<_>, Vec<_>) =
                read.grants.iter().partition(|grant| !grant.status.is_recalled());
            if recalled.is_empty() {
                prop_assert_eq!(parts(&read), (read.limit().permits(), read.limit().burst()));
                prop_assert!(read.home_parts().0 > 0 && read.home_parts().1 > 0);
            }
            prop_assert!(lent.into_iter().all(|grant| read.share_of(grant).rate() > 0));
            prop_assert_eq!(Ledger::decode(&read.encode()), Ok(read));
        }
    }

    #[test]
    fn bytes_that_are_no_ledger_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(Ledger::decode(&bytes).is_err());
    }
}

/// A home that never lent has the whole limit; what it lends it no longer has.
#[test]
fn shares_follow_from_the_ledger() {
    let limit: Limit = "token-bucket 100/s burst 60".parse().unwrap();
    let mut ledger = Ledger::new(Definition::new(limit, 1, Shards::PerMaster));
    assert_eq!(ledger.home_share(), Share::whole(&limit));
    ledger.cost = common_cost(&limit, 3);
    let grant = |slot, permits, burst| {
        let id = GrantId { stamp: 1, random: u64::from(slot) };
        Grant { slot: Slot::new(slot).unwrap(), id, permits, burst, cost: 1_000_000, status: Status::Live }
    };
    ledger.grants = vec![grant(1, 33, 20), grant(2, 33, 20)];
    assert_eq!(ledger.home_parts(), (34, 20));
    let Share::Bucket(home) = ledger.home_share() else { unreachable!() };
    let Share::Bucket(lent) = ledger.share_of(&ledger.grants[0]) else { unreachable!() };
    assert_eq!((home.rate, lent.rate, home.cost, lent.cost), (34, 33, 1_000_000, 1_000_000));
}

#[test]
fn a_refusal_says_what_is_wrong() {
    let limit: Limit = "fixed-window 10/s".parse().unwrap();
    let grant = |slot, permits, burst| {
        let id = GrantId { stamp: 1, random: 2 };
        Grant { slot: Slot::new(slot).unwrap(), id, permits, burst, cost: 1, status: Status::Live }
    };
    let ledger = Ledger::new(Definition::new(limit, 1, Shards::PerMaster));
    let with = |grants: &[Grant], cost| Ledger { grants: grants.to_vec(), cost, ..ledger.clone() };
    let mut version = with(&[], 1).encode();
    version[0] = 9;
    let mut status = with(&[grant(1, 2, 2)], 1).encode();
    let at = status.len() - 9;
    status[at] = 7;
    let mut slot = with(&[grant(1, 2, 2)], 1).encode();
    let at = slot.len() - 50;
    slot[at] = 0x40;
    let mut foreign = with(&[grant(1, 2, 2)], 1);
    let state = pack(Kind::Lent, GrantId { stamp: 1, random: 3 }, &foreign.share_of(&foreign.grants[0]), None, b"");
    foreign.grants[0].status = Status::Pending { not_after: 5, state };
    for (bytes, why) in [
        (version, "version 9, this client knows 1"),
        (status, "status 7"),
        (slot, "slot 16385 does not exist"),
        (vec![], "ends within its version"),
        (with(&[grant(1, 2, 2), grant(2, 2, 2), grant(1, 2, 2)], 1).encode(), "slot 1 has two shares"),
        (with(&[grant(1, 5, 5), grant(2, 5, 5)], 1).encode(), "more of fixed-window 10/s is lent than there is"),
        (with(&[Grant { cost: 2, ..grant(1, 2, 2) }], 1).encode(), "of 2 and 2 is no share"),
        (with(&[grant(1, 2, 3)], 1).encode(), "of 2 and 3 is no share"),
        (with(&[grant(1, 0, 0)], 1).encode(), "of 0 and 0 is no share"),
        (with(&[grant(1, u64::MAX, u64::MAX), grant(2, 2, 2)], 1).encode(), "more of"),
        (with(&[grant(1, 2, 2)], 2).encode(), "can't cost 2 units at home"),
        (foreign.encode(), "a sub-key that is not its own"),
    ] {
        let error: BadLedger = Ledger::decode(&bytes).unwrap_err();
        assert!(error.to_string().starts_with("malformed ledger: "), "{error}");
        assert!(error.to_string().contains(why), "{error}, not {why}");
    }
}
