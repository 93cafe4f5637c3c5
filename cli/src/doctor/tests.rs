//! Findings that no test cluster shows: old and mixed servers, clocks that differ.

use std::ops::RangeInclusive;

use super::diagnosis::{Diagnosis, Master, Replica, range_texts};
use super::finding::{Finding, Level, findings, missing};
use super::permission::Missing;
use super::probe::{Facts, Version};

fn facts() -> Facts {
    Facts {
        version: Some(Version { compatible: (7, 0), text: "7.0.15".into() }),
        maxmemory: Some(0),
        maxmemory_policy: Some("noeviction".into()),
        full_coverage: Some(true),
        state: Some("ok".into()),
        in_step: true,
        clock_us: Some(0.0),
        ..Facts::default()
    }
}

fn master(id: &str, slots: RangeInclusive<u16>) -> Master {
    let address = format!("{id}:1");
    Master { id: Some(id.into()), address, slots: vec![slots], failed: false, facts: Ok(facts()) }
}

fn replica(id: &str, master: &str) -> Replica {
    Replica { id: id.into(), address: format!("{id}:1"), master: master.into(), facts: Ok(facts()) }
}

fn healthy() -> Diagnosis {
    Diagnosis {
        cluster: true,
        blind: false,
        masters: vec![master("a", 0..=9_999), master("b", 10_000..=16_383)],
        replicas: vec![replica("c", "a"), replica("d", "b")],
        odd_urls: vec![],
    }
}

/// What is found after a change to what is healthy.
fn found(change: impl FnOnce(&mut Diagnosis)) -> Vec<(Level, &'static str)> {
    let mut diagnosis = healthy();
    change(&mut diagnosis);
    findings(&diagnosis).iter().map(|Finding { level, kind, .. }| (*level, *kind)).collect()
}

/// After a change to what the second master says.
fn found_of(change: impl FnOnce(&mut Facts)) -> Vec<(Level, &'static str)> {
    found(|diagnosis| change(diagnosis.masters[1].facts.as_mut().unwrap()))
}

#[test]
fn nothing_is_wrong_with_what_is_healthy() {
    assert_eq!(found(|_| {}), []);
}

#[test]
fn versions() {
    let version = |compatible, text: &str| Some(Version { compatible, text: text.into() });
    let mixed = (Level::Advice, "mixed_versions");
    assert_eq!(found_of(|facts| facts.version = version((7, 2), "valkey 8.1.0")), [mixed]);
    assert_eq!(found_of(|facts| facts.version = version((6, 0), "6.0.9")), [(Level::Wrong, "version"), mixed]);
    assert_eq!(found_of(|facts| facts.version = None), []);
}

#[test]
fn clocks_may_differ_by_a_tenth_of_a_second() {
    assert_eq!(found_of(|facts| facts.clock_us = Some(-100_000.0)), []);
    assert_eq!(found_of(|facts| facts.clock_us = Some(-100_001.0)), [(Level::Wrong, "clock")]);
    assert_eq!(found_of(|facts| facts.clock_us = None), []);
}

#[test]
fn only_a_bounded_memory_evicts() {
    let policy = |bytes, policy: &str| {
        let policy = policy.to_owned();
        found_of(move |facts| (facts.maxmemory, facts.maxmemory_policy) = (bytes, Some(policy)))
    };
    let evicts = (Level::Wrong, "eviction");
    assert_eq!(policy(Some(1), "allkeys-lru"), [evicts]);
    assert_eq!(policy(Some(1), "volatile-ttl"), [evicts]);
    assert_eq!(policy(Some(1), "noeviction"), []);
    assert_eq!(policy(Some(0), "allkeys-lru"), []);
    assert_eq!(policy(None, "allkeys-lru"), []);
}

#[test]
fn a_master_alone_is_wrong_only_where_full_coverage_is_required() {
    let alone = |full| {
        found(move |diagnosis| {
            diagnosis.masters[1].facts.as_mut().unwrap().full_coverage = full;
            diagnosis.replicas[1].facts = Err("refused".into());
        })
    };
    let replica = (Level::Advice, "replica");
    assert_eq!(alone(Some(true)), [(Level::Wrong, "no_replica"), replica]);
    assert_eq!(alone(Some(false)), [replica]);
    assert_eq!(alone(None), [replica, (Level::Advice, "no_replica")]);
}

#[test]
fn slots_that_nobody_has() {
    let mut diagnosis = healthy();
    diagnosis.masters[0].slots = vec![1..=99, 101..=9_999];
    assert_eq!(range_texts(&diagnosis.uncovered()), ["0", "100"]);
    diagnosis.masters[1].facts = Err("silence".into());
    assert_eq!(range_texts(&diagnosis.uncovered()), ["0", "100", "10000-16383"]);
    assert_eq!(range_texts(&diagnosis.unowned()), ["0", "100"]);
    diagnosis.blind = true;
    assert!(diagnosis.uncovered().is_empty(), "who may not ask does not know");
}

#[test]
fn masters_that_are_gone_or_held_for_dead() {
    let empty = |diagnosis: &mut Diagnosis| {
        let mut third = master("e", 0..=0);
        third.slots.clear();
        diagnosis.masters.push(third);
    };
    assert_eq!(found(empty), [(Level::Advice, "no_slots")]);
    let gone = |diagnosis: &mut Diagnosis| {
        empty(diagnosis);
        diagnosis.masters[2].facts = Err("refused".into());
    };
    assert_eq!(found(gone), [(Level::Advice, "unreachable")], "a dead master that was replaced");
    assert_eq!(found(|diagnosis| diagnosis.masters[0].failed = true), [(Level::Wrong, "held_for_dead")]);
}

#[test]
fn an_optional_permission_is_advice() {
    let mut diagnosis = healthy();
    let lacks = |name: &str, optional| Missing { name: name.into(), rule: format!("+{name}"), optional };
    diagnosis.masters[0].facts.as_mut().unwrap().missing = vec![lacks("client|setinfo", true)];
    assert_eq!(findings(&diagnosis)[0].level, Level::Advice);
    assert!(missing(&diagnosis, false).0.is_empty());
    diagnosis.masters[1].facts.as_mut().unwrap().missing = vec![lacks("eval", false)];
    assert_eq!(missing(&diagnosis, false).0, ["eval"]);
    let finding = &findings(&diagnosis)[0];
    assert_eq!((finding.level, finding.kind), (Level::Wrong, "permission"));
    assert!(finding.what.contains("eval on b:1") && finding.remedy.ends_with("+eval"), "{finding:?}");
}
