//! One fault after the other, each on a cluster of its own.

use std::thread::sleep;
use std::time::Duration;

use shardlimit::FailurePolicy;

use crate::Failure;
use crate::clock::{Nanos, SECOND, now, sleep_until};
use crate::fault::{ALL, Extra, Fault, Place};
use crate::fleet::{Fleet, Orders};
use crate::folder::Folder;
use crate::judge::{Case, Figures, Promise, judge};
use crate::network;
use crate::options::Suite;
use crate::stage::{Marks, Stage};
use crate::{agree, counted, distinct, gone, once, report};
use once::split;

/// The first burst, and the first look at everything, are over by then.
const WARM: Duration = Duration::from_secs(1);
/// What a fault is compared with.
const BEFORE: Duration = Duration::from_secs(2);
/// Calls go on for so long after a fault, so that there is something to recover.
const AFTER: Nanos = 4 * SECOND;
/// Calls in pulses: longer silence than a server's patience.
const PULSE: (u64, u64) = (500, 2_500);

/// What is no fault and has a judge of its own.
const OTHERS: [(&str, &str); 5] = [
    (once::NAME, once::ABOUT),
    (split::NAME, split::ABOUT),
    (gone::NAME, gone::ABOUT),
    (counted::NAME, counted::ABOUT),
    (distinct::NAME, distinct::ABOUT),
];

/// Runs what was asked for; says whether nothing was wrong.
pub(crate) fn suite(suite: &Suite) -> Result<bool, Failure> {
    if suite.list {
        for fault in ALL {
            println!("{:16} {}", fault.name, fault.about);
        }
        for (name, about) in OTHERS.into_iter().chain(agree::ALL.iter().map(|run| (run.name, run.about))) {
            println!("{name:16} {about}");
        }
        return Ok(true);
    }
    if suite.processes < 2 {
        return Err(Failure::new("there must be at least two processes"));
    }
    let known = |name: &&String| {
        let faults = ALL.iter().map(|fault| fault.name);
        let others = OTHERS.iter().map(|(other, _)| *other);
        faults.chain(others).chain(agree::ALL.iter().map(|run| run.name)).any(|known| known == *name)
    };
    if let Some(stranger) = suite.faults.iter().find(|name| !known(name)) {
        return Err(Failure::new(format!("there is no fault {stranger:?}; see --list")));
    }
    let wanted = |name: &str| suite.faults.is_empty() || suite.faults.iter().any(|one| one == name);
    let faults: Vec<&Fault> = ALL.iter().filter(|fault| wanted(fault.name)).collect();
    let runs: Vec<_> = agree::ALL.iter().filter(|run| suite.faults.iter().any(|name| name == run.name)).collect();
    let places = faults.iter().map(|fault| fault.needs.place).chain(runs.iter().map(|run| run.place));
    if places.into_iter().any(|place| place == Place::Network) {
        network::enter_own_world()?;
        network::settle()?;
    }
    if suite.markdown {
        println!("{}", report::HEAD);
    }
    let mut well = true;
    for fault in faults {
        if fault.needs.replicas && suite.replicas == 0 {
            if !suite.faults.is_empty() {
                return Err(Failure::new(format!("{} needs --replicas 1", fault.name)));
            }
            continue;
        }
        match run(suite, fault) {
            Ok(figures) => {
                well &= figures.wrongs().is_empty();
                let show = if suite.markdown { report::row } else { report::line };
                println!("{}", show(fault.name, &figures));
            }
            Err(failure) => {
                well = false;
                println!("{:16} could not be judged: {failure}", fault.name);
            }
        }
    }
    if wanted(once::NAME) {
        let counts = once::run(suite)?;
        well &= counts.is_well();
        println!("{:16} {counts}", once::NAME);
    }
    if wanted(split::NAME) {
        let counts = split::run(suite)?;
        well &= counts.is_well();
        println!("{:16} {counts}", split::NAME);
    }
    if wanted(gone::NAME) {
        let decided = gone::run(suite)?;
        well &= decided.is_well();
        println!("{:16} {decided}", gone::NAME);
    }
    if wanted(counted::NAME) {
        let counts = counted::run(suite)?;
        well &= counts.is_well();
        println!("{:16} {counts}", counted::NAME);
    }
    if wanted(distinct::NAME) {
        let counts = distinct::run(suite)?;
        well &= counts.is_well();
        println!("{:16} {counts}", distinct::NAME);
    }
    for run in runs {
        let verdict = (run.show)(suite)?;
        well &= verdict.is_well();
        println!("{:16} {verdict}", run.name);
    }
    Ok(well)
}

/// One master that stops takes its part of the limit, and no more; one that is replaced is missed for as long as that takes. Where no
/// process reaches a shard, all of them together admit a part of what it would have.
fn promise(suite: &Suite, fault: &Fault, stage: &Stage, marks: &Marks) -> Promise {
    let no_errors = suite.settings.policy != FailurePolicy::Error;
    let by_policy = match (fault.name, suite.settings.policy) {
        ("kill-one" | "kill-home" | "kill-two" | "kill-all" | "kill-migrating" | "stop" | "maxmemory", policy) => {
            policy_rate(policy, suite, stage, marks)
        }
        _ => None,
    };
    let promise = Promise { no_errors, by_policy, ..Promise::default() };
    match fault.name {
        "stop" if !suite.full_coverage && suite.replicas == 0 => {
            Promise { least: 2.0 / 3.0, p99: Some(2.0), ..promise }
        }
        "kill-one" | "kill-home" | "lag" if suite.replicas > 0 => Promise { normal_within: Some(SECOND), ..promise },
        _ => promise,
    }
}

/// Permits a second that the policy may admit in place of the shards that nobody reaches, as the documentation states it.
fn policy_rate(policy: FailurePolicy, suite: &Suite, stage: &Stage, marks: &Marks) -> Option<f64> {
    let FailurePolicy::Local { ratio } = policy else { return None };
    let period = suite.settings.limit.period().as_secs_f64();
    let span = period.clamp(1.0, 60.0);
    // A cluster that has lost more than one of three, or wants all slots covered, answers for none.
    let is_down = suite.full_coverage || marks.sick.len() > 1;
    let away = stage.shards.iter().filter(|shard| is_down || marks.sick.contains(&shard.node));
    Some(ratio * away.map(|shard| shard.permits as f64 / period + shard.burst as f64 / span).sum::<f64>())
}

fn run(suite: &Suite, fault: &Fault) -> Result<Figures, Failure> {
    let folder = Folder::of_run(suite.keep.as_deref(), fault.name)?;
    let build = || Stage::build(suite, fault.needs, &folder.path);
    // Somebody else may have taken a port between our look and the server's.
    let mut stage = build().or_else(|_| build())?;
    let namespaces = |index| (fault.needs.place == Place::Network).then(|| network::caller(index));
    let namespaces: Vec<Option<String>> = (0..suite.processes).map(namespaces).collect();
    let settings = &suite.settings;
    let rate = settings.limit.permits() as f64 / settings.limit.period().as_secs_f64();
    let mut fleet = Fleet::launch(&Orders {
        settings,
        urls: &stage.cluster.urls(),
        rate: suite.rate.unwrap_or((2.0 * rate) as u64),
        pulse: if fault.needs.silence { PULSE } else { (1_000, 0) },
        folder: &folder.path,
        namespaces: &namespaces,
    })?;
    stage.look_up_shards(settings)?;
    fleet.start()?;
    sleep(WARM + BEFORE);
    let marks = (fault.inject)(&mut stage)?;
    sleep_until(now().max(marks.end + AFTER));
    let records = fleet.stop()?;

    let healthy: Vec<u16> =
        stage.shards.iter().filter(|shard| !marks.sick.contains(&shard.node)).map(|shard| shard.slot).collect();
    Ok(judge(
        &records,
        &Case {
            limit: &settings.limit,
            deadline: settings.deadline(),
            marks: &marks,
            healthy: &healthy,
            extra: fault.extra.permits(&stage, settings, &marks, &records),
            by_own_clock: fault.extra == Extra::Clock,
            steady: !fault.needs.silence,
            promise: promise(suite, fault, &stage, &marks),
        },
    ))
}
