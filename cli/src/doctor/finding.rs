//! What is wrong, and what to do about it.

use serde::Serialize;

use self::Level::{Advice, Wrong};
use super::diagnosis::{Diagnosis, Master, range_texts};
use super::probe::Facts;

/// Clocks kept by NTP differ by less than a millisecond or two; a share that moves takes its time along.
const MOST_CLOCK_SPREAD_US: f64 = 100_000.0;
/// The oldest that the scripts are meant for.
const OLDEST: (u32, u32) = (6, 2);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    /// Limits are not kept, or calls fail, now or at the next fault.
    Wrong,
    /// Worth knowing.
    Advice,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Finding {
    pub level: Level,
    /// For code.
    pub kind: &'static str,
    pub what: String,
    #[serde(rename = "do")]
    pub remedy: String,
}

/// Worst first.
pub(super) fn findings(diagnosis: &Diagnosis) -> Vec<Finding> {
    let mut findings = Findings(Vec::new());
    reach(diagnosis, &mut findings);
    slots(diagnosis, &mut findings);
    permissions(diagnosis, &mut findings);
    replicas(diagnosis, &mut findings);
    memory(diagnosis, &mut findings);
    versions(diagnosis, &mut findings);
    clocks(diagnosis, &mut findings);
    findings.0.sort_by_key(|finding| finding.level == Advice);
    findings.0
}

struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, level: Level, kind: &'static str, what: impl Into<String>, remedy: impl Into<String>) {
        self.0.push(Finding { level, kind, what: what.into(), remedy: remedy.into() });
    }
}

/// The addresses of those masters that answer and for which this holds.
fn those(diagnosis: &Diagnosis, holds: impl Fn(&Master, &Facts) -> bool) -> Option<String> {
    let those = diagnosis.answering().filter(|(master, facts)| holds(master, facts));
    let addresses: Vec<&str> = those.map(|(master, _)| master.address.as_str()).collect();
    (!addresses.is_empty()).then(|| addresses.join(", "))
}

fn reach(diagnosis: &Diagnosis, findings: &mut Findings) {
    for master in &diagnosis.masters {
        let Err(why) = &master.facts else { continue };
        let what = format!("master {} does not answer: {why}", master.address);
        if diagnosis.cluster && !diagnosis.blind && master.slots.is_empty() {
            findings.add(
                Advice,
                "unreachable",
                what,
                "it has no slots: start it again, or CLUSTER FORGET it everywhere",
            );
        } else {
            findings.add(
                Wrong,
                "unreachable",
                what,
                "start it again, or let a replica of it take over (CLUSTER FAILOVER)",
            );
        }
    }
    if let Some(masters) = those(diagnosis, |master, _| master.failed && !master.slots.is_empty()) {
        let what = format!("the cluster holds {masters} for dead, though it answers here");
        findings.add(Wrong, "held_for_dead", what, "see that the nodes reach each other on their bus ports");
    }
    if let Some(masters) = those(diagnosis, |_, facts| !diagnosis.cluster && facts.is_replica) {
        let what = format!("{masters} is a replica, which refuses writes");
        findings.add(Wrong, "is_replica", what, "give the URL of its master");
    }
    let silent =
        |id: &str| diagnosis.masters.iter().any(|master| master.id.as_deref() == Some(id) && master.facts.is_err());
    for replica in &diagnosis.replicas {
        let trouble = match &replica.facts {
            Err(why) => format!("does not answer: {why}"),
            // With a dead master nobody is in step, and that is told already.
            Ok(facts) if !facts.in_step && !silent(&replica.master) => "is not in step with its master".into(),
            Ok(_) => continue,
        };
        let what = format!("replica {} {trouble}", replica.address);
        findings.add(Advice, "replica", what, "until it is back, it can't take over from its master");
    }
    for (address, why) in &diagnosis.odd_urls {
        let what = format!("{address} is of no use here: {why}");
        findings.add(Advice, "url", what, "take it out of the URLs, or put it right");
    }
}

fn slots(diagnosis: &Diagnosis, findings: &mut Findings) {
    let unowned = diagnosis.unowned();
    if !unowned.is_empty() {
        let what = format!("no master has these slots: {}", range_texts(&unowned).join(", "));
        findings.add(Wrong, "uncovered", what, "give them to a master: `redis-cli --cluster fix`, or CLUSTER ADDSLOTS");
    }
    let silent = diagnosis.masters.iter().filter(|master| master.facts.is_err()).map(Master::slot_count).sum::<usize>();
    if silent > 0 {
        let what = format!("{silent} slots are on masters that do not answer");
        findings.add(Wrong, "uncovered", what, "calls that need them get errors until their masters are back");
    }
    if let Some(masters) = those(diagnosis, |_, facts| facts.state.as_deref() == Some("fail")) {
        let what = format!("{masters} says that the cluster is down, and answers CLUSTERDOWN");
        findings.add(Wrong, "cluster_down", what, "cover all slots, or set cluster-require-full-coverage to no");
    }
    let empty = |master: &Master, _: &Facts| diagnosis.cluster && !diagnosis.blind && master.slots.is_empty();
    if let Some(masters) = those(diagnosis, empty) {
        let what = format!("{masters} has no slots, so it carries no part of any limit");
        findings.add(
            Advice,
            "no_slots",
            what,
            "move slots to it: `redis-cli --cluster rebalance --cluster-use-empty-masters`",
        );
    }
}

fn permissions(diagnosis: &Diagnosis, findings: &mut Findings) {
    for (optional, level) in [(false, Wrong), (true, Advice)] {
        let (names, rules) = missing(diagnosis, optional);
        if names.is_empty() {
            continue;
        }
        let lacks = |_: &Master, facts: &Facts| facts.missing.iter().any(|missing| missing.optional == optional);
        let masters = those(diagnosis, lacks).unwrap_or_default();
        let what = format!("the user lacks {} on {masters}", names.join(", "));
        let remedy = format!("on every node: ACL SETUSER <user> {}", rules.join(" "));
        findings.add(level, "permission", what, remedy);
    }
}

/// Over all masters, since each has its own users: the names, and the rules that would permit them.
pub(super) fn missing(diagnosis: &Diagnosis, optional: bool) -> (Vec<String>, Vec<String>) {
    let mut found: Vec<(String, String)> = Vec::new();
    for missing in diagnosis.answering().flat_map(|(_, facts)| &facts.missing) {
        let pair = (missing.name.clone(), missing.rule.clone());
        if missing.optional == optional && !found.contains(&pair) {
            found.push(pair);
        }
    }
    found.into_iter().unzip()
}

fn replicas(diagnosis: &Diagnosis, findings: &mut Findings) {
    let alone = |master: &Master| diagnosis.cluster && !master.slots.is_empty() && diagnosis.replicas_of(master) == 0;
    if let Some(masters) = those(diagnosis, |master, facts| alone(master) && facts.full_coverage == Some(true)) {
        let what =
            format!("{masters} has no replica, and full coverage is required: one dead master stops the whole cluster");
        findings.add(
            Wrong,
            "no_replica",
            what,
            "give each master a replica, or set cluster-require-full-coverage to no",
        );
    }
    if let Some(masters) = those(diagnosis, |master, facts| alone(master) && facts.full_coverage.is_none()) {
        let what = format!("{masters} has no replica, and the user may not ask whether full coverage is required");
        findings.add(
            Advice,
            "no_replica",
            what,
            "see that cluster-require-full-coverage is no: else one dead master stops all",
        );
    }
}

fn memory(diagnosis: &Diagnosis, findings: &mut Findings) {
    let evicts = |policy: &str| {
        let limited = move |facts: &Facts| facts.maxmemory.is_some_and(|bytes| bytes > 0);
        let policy = policy.to_owned();
        move |_: &Master, facts: &Facts| {
            limited(facts) && facts.maxmemory_policy.as_ref().is_some_and(|own| own.starts_with(&policy))
        }
    };
    let remedy = "set maxmemory-policy to noeviction, or keep limits on servers of their own";
    for (policy, what) in [
        ("allkeys-", "evicts any key when memory is full (allkeys-*), limits too: an evicted one is as new"),
        (
            "volatile-",
            "evicts keys with a TTL when memory is full (volatile-*), which every limit has: an evicted one is as new",
        ),
    ] {
        if let Some(masters) = those(diagnosis, evicts(policy)) {
            findings.add(Wrong, "eviction", format!("{masters} {what}"), remedy);
        }
    }
}

fn versions(diagnosis: &Diagnosis, findings: &mut Findings) {
    let old = |_: &Master, facts: &Facts| facts.version.as_ref().is_some_and(|version| version.compatible < OLDEST);
    if let Some(masters) = those(diagnosis, old) {
        let what = format!("{masters} is older than {}.{}", OLDEST.0, OLDEST.1);
        findings.add(Wrong, "version", what, "run a newer Redis or Valkey");
    }
    let mut versions: Vec<&str> = Vec::new();
    for version in diagnosis.answering().filter_map(|(_, facts)| facts.version.as_ref()) {
        if !versions.contains(&version.text.as_str()) {
            versions.push(&version.text);
        }
    }
    if versions.len() > 1 {
        let what = format!("the masters are of several versions: {}", versions.join(", "));
        findings.add(Advice, "mixed_versions", what, "fine while one is being replaced; finish it");
    }
}

fn clocks(diagnosis: &Diagnosis, findings: &mut Findings) {
    let spread = diagnosis.clock_spread_us();
    if spread > MOST_CLOCK_SPREAD_US {
        let what = format!("the masters' clocks differ by {:.0} ms", spread / 1_000.0);
        findings.add(Wrong, "clock", what, "keep them by NTP: each master's clock decides for its share");
    }
}
