//! Whether a call whose connection was cut after its request was delivered is ever charged twice.
//!
//! Every call has a key of its own, of a window that does not end meanwhile. So what each single call was charged can be read
//! from the servers afterwards. A second key is shared by all calls, so that they travel in batches, and its sum is held
//! against what they were told. `split`: the same for keys that are split.

pub(crate) mod split;

use std::fmt;
use std::ops::AddAssign;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use shardlimit::{BreakerSettings, Builder, FailurePolicy, NamedLimit, Shards};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::Failure;
use crate::fault::{Needs, Place};
use crate::folder::Folder;
use crate::limiter::Settings;
use crate::options::Suite;
use crate::proxy::Cut;
use crate::record::Outcome;
use crate::stage::Stage;

pub(crate) const NAME: &str = "once";
pub(crate) const ABOUT: &str = "1,000 connections are cut after delivery: no call is charged twice";

const CUTS: u64 = 1_000;
/// Both are whole for years: nothing comes back meanwhile.
const OWN: &str = "fixed-window 10/365days";
const SHARED: &str = "fixed-window 100000000/365days";
/// Calls that are out at once.
const CALLERS: u64 = 8;
/// It ends, whatever happens.
const PATIENCE: Duration = Duration::from_secs(60);

/// What calls were told, and what they were charged.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    cuts: u64,
    allowed: u64,
    unknown: u64,
    other: u64,
    /// Keys of single calls that have more on them than one permit.
    twice: u64,
    /// Allowed calls that were not charged, and calls that were surely not sent and are charged.
    wrong: u64,
    shared: Sum,
}

/// What the calls of a key were told, and what it was charged.
#[derive(Debug, Default)]
struct Sum {
    allowed: u64,
    unknown: u64,
    other: u64,
    charged: u64,
}

impl Sum {
    fn of(told: &[Outcome], charged: u64) -> Self {
        let count = |wanted: Outcome| told.iter().filter(|outcome| **outcome == wanted).count() as u64;
        let (allowed, unknown) = (count(Outcome::Allowed), count(Outcome::Unknown));
        Self { allowed, unknown, other: told.len() as u64 - allowed - unknown, charged }
    }

    /// What was allowed is charged, and beside it at most what is unknown.
    fn is_well(&self) -> bool {
        (self.allowed..=self.allowed + self.unknown).contains(&self.charged)
    }
}

impl AddAssign for Sum {
    fn add_assign(&mut self, other: Self) {
        self.allowed += other.allowed;
        self.unknown += other.unknown;
        self.other += other.other;
        self.charged += other.charged;
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { allowed, unknown, other, charged } = self;
        write!(f, "{allowed} allowed, {unknown} unknown, {other} other, {charged} charged")
    }
}

impl Counts {
    pub(crate) fn is_well(&self) -> bool {
        self.cuts >= CUTS && self.twice + self.wrong == 0 && self.shared.is_well()
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cuts, allowed, unknown, other, twice, wrong, shared } = self;
        let verdict = if self.is_well() { "ok" } else { "NOT OK" };
        write!(
            f,
            "{verdict:6} {cuts} cuts after delivery; single keys: {allowed} allowed, {unknown} unknown, {other} other, \
             {twice} charged twice, {wrong} charged otherwise than told; one key: {shared}"
        )
    }
}

pub(crate) fn run(suite: &Suite) -> Result<Counts, Failure> {
    let folder = Folder::temporary(NAME)?;
    let stage = Stage::build(suite, Needs::only(Place::Proxied), &folder.path)?;
    let define = || -> Result<_, Failure> {
        // On one master a look at a key is exact, also where steps were cut.
        let limiter = builder(suite, &stage).shards(Shards::Off).build()?;
        Ok((limiter.define("own", OWN.parse()?)?, limiter.define("shared", SHARED.parse()?)?))
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let (own, shared) = define()?;
    let (cuts, told) = runtime.block_on(call(&stage, &own, &shared));
    // Who reads has no broken connections, and trusts every master.
    let (own, shared) = define()?;
    runtime.block_on(count(cuts, told, &own, &shared))
}

fn builder(suite: &Suite, stage: &Stage) -> Builder {
    // The policy must not decide: a call is to say what is known of it. And a breaker would keep calls from being cut.
    let settings = Settings { policy: FailurePolicy::Error, deadline: 500, ..suite.settings.clone() };
    let mut breaker = BreakerSettings::default();
    breaker.least = u32::MAX;
    settings.builder(&stage.cluster.urls()).breaker(breaker)
}

/// What single calls were told by their keys, and what the calls of the shared key were.
#[derive(Default)]
struct Told {
    singles: Vec<(String, Outcome)>,
    together: Vec<Outcome>,
}

async fn call(stage: &Stage, own: &NamedLimit, shared: &NamedLimit) -> (u64, Told) {
    let next = Arc::new(AtomicU64::new(0));
    let over = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..CALLERS {
        let (own, shared, next, over) = (own.clone(), shared.clone(), Arc::clone(&next), Arc::clone(&over));
        tasks.spawn(async move {
            let mut told = Told::default();
            while over.load(Ordering::Relaxed) == 0 {
                let key = format!("call:{}", next.fetch_add(1, Ordering::Relaxed));
                let outcome = Outcome::of(&own.acquire(&key).await);
                told.singles.push((key, outcome));
                told.together.push(Outcome::of(&shared.acquire("all").await));
                // A master that is given a rest answers at once that it was not asked.
                sleep(Duration::from_millis(if outcome == Outcome::NotSent { 10 } else { 1 })).await;
            }
            told
        });
    }
    let cuts = cut(stage, PATIENCE).await;
    over.store(1, Ordering::Relaxed);
    let mut all = Told::default();
    for told in tasks.join_all().await {
        all.singles.extend(told.singles);
        all.together.extend(told.together);
    }
    (cuts, all)
}

/// Cuts connections of all masters, and says how many.
async fn cut(stage: &Stage, patience: Duration) -> u64 {
    let cuts = || stage.proxies.iter().map(crate::proxy::Proxy::cuts).sum::<u64>();
    let begin = Instant::now();
    while cuts() < CUTS && begin.elapsed() < patience {
        stage.proxies.iter().for_each(|proxy| proxy.cut_next(Cut::After));
        sleep(Duration::from_millis(10)).await;
    }
    stage.proxies.iter().for_each(crate::proxy::Proxy::let_be);
    cuts()
}

async fn count(cuts: u64, told: Told, own: &NamedLimit, shared: &NamedLimit) -> Result<Counts, Failure> {
    let Told { singles, together } = told;
    let shared = Sum::of(&together, charged(shared, "all").await?);
    let mut counts = Counts { cuts, shared, ..Counts::default() };
    for (key, outcome) in singles {
        let charged = charged(own, &key).await?;
        counts.twice += u64::from(charged > 1);
        match outcome {
            Outcome::Allowed => {
                counts.allowed += 1;
                counts.wrong += u64::from(charged == 0);
            }
            Outcome::Unknown => counts.unknown += 1,
            _ => {
                counts.other += 1;
                counts.wrong += u64::from(charged > 0);
            }
        }
    }
    Ok(counts)
}

/// What is gone from a key. The last connections may still be cut: it is asked again until it answers.
async fn charged(limit: &NamedLimit, key: &str) -> Result<u64, Failure> {
    let patience = Instant::now();
    loop {
        match limit.peek(key).await {
            Ok(peek) => return Ok(limit.limit().burst() - peek.remaining().permits),
            Err(error) if patience.elapsed() > PATIENCE => return Err(error.into()),
            Err(_) => sleep(Duration::from_millis(20)).await,
        }
    }
}
