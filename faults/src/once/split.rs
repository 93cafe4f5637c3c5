//! The same for keys that are split: what all shards of a key were charged, as the servers have it, against what its calls were
//! told.
//!
//! The keys are split before the first cut, and nothing moves afterwards. So each permit that is gone from a shard is a charge.

use std::fmt;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use shardlimit::{NamedLimit, Shards};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::{CALLERS, CUTS, PATIENCE, Sum, builder, charged, cut};
use crate::Failure;
use crate::fault::{Needs, Place};
use crate::folder::Folder;
use crate::options::Suite;
use crate::record::Outcome;
use crate::stage::{MASTERS, Stage};

pub(crate) const NAME: &str = "once-split";
pub(crate) const ABOUT: &str = "the same for keys with a share on each of three masters";

/// Some of them, so that calls travel alone and together.
const KEYS: u64 = 64;
/// Whole for years: nothing comes back meanwhile.
const LIMIT: &str = "fixed-window 90000000/365days";

/// What calls were told, and what their keys were charged.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    cuts: u64,
    all: Sum,
    /// Keys that were charged less than was allowed, or more than was allowed and is unknown.
    wrong: u64,
    /// Keys whose shares did not stay where they were: of those nothing can be said.
    moved: u64,
}

impl Counts {
    pub(crate) fn is_well(&self) -> bool {
        self.cuts >= CUTS && self.wrong + self.moved == 0 && self.all.is_well()
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cuts, all, wrong, moved } = self;
        let verdict = if self.is_well() { "ok" } else { "NOT OK" };
        write!(
            f,
            "{verdict:6} {cuts} cuts after delivery; {KEYS} keys with {MASTERS} shards each: {all}; {wrong} charged otherwise than \
             told, {moved} moved"
        )
    }
}

pub(crate) fn run(suite: &Suite) -> Result<Counts, Failure> {
    let folder = Folder::temporary(NAME)?;
    let stage = Stage::build(suite, Needs::only(Place::Proxied), &folder.path)?;
    let shards = Shards::Exactly(NonZeroU16::new(MASTERS as u16).ok_or_else(|| Failure::new("there are no masters"))?);
    let define = || -> Result<_, Failure> {
        let limiter = builder(suite, &stage).shards(shards).build()?;
        Ok(limiter.define_revision("split", LIMIT.parse()?, 1)?)
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let split = define()?;
    let before = runtime.block_on(plans(&split))?;
    let (cuts, told) = runtime.block_on(call(&stage, &split));
    // Who reads has no broken connections.
    let split = define()?;
    runtime.block_on(async {
        let mut counts = Counts { cuts, ..Counts::default() };
        for (key, told) in (0..KEYS).map(name).zip(&told) {
            let sum = Sum::of(told, charged(&split, &key).await?);
            counts.wrong += u64::from(!sum.is_well());
            counts.all += sum;
        }
        let after = plans(&split).await?;
        counts.moved = before.iter().zip(&after).filter(|(before, after)| before != after).count() as u64;
        Ok(counts)
    })
}

fn name(key: u64) -> String {
    format!("split:{key}")
}

/// The grants of each key. All keys are split then, and nothing of them is gone.
async fn plans(limit: &NamedLimit) -> Result<Vec<Vec<String>>, Failure> {
    let mut plans = Vec::new();
    for key in (0..KEYS).map(name) {
        let plan = limit.plan(&key).await?;
        if plan.shards.len() != MASTERS {
            return Err(Failure::new(format!("{key} has {} shards", plan.shards.len())));
        }
        plans.push(plan.shards.into_iter().map(|shard| shard.grant).collect());
    }
    Ok(plans)
}

/// What the calls of each key were told.
async fn call(stage: &Stage, limit: &NamedLimit) -> (u64, Vec<Vec<Outcome>>) {
    let (next, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let mut tasks = JoinSet::new();
    for _ in 0..CALLERS {
        let (limit, next, over) = (limit.clone(), Arc::clone(&next), Arc::clone(&over));
        tasks.spawn(async move {
            let mut told = vec![Vec::new(); KEYS as usize];
            while !over.load(Ordering::Relaxed) {
                let key = next.fetch_add(1, Ordering::Relaxed) % KEYS;
                let outcome = Outcome::of(&limit.acquire(name(key)).await);
                told[key as usize].push(outcome);
                sleep(Duration::from_millis(1)).await;
            }
            told
        });
    }
    let cuts = cut(stage, PATIENCE).await;
    over.store(true, Ordering::Relaxed);
    let mut all = vec![Vec::new(); KEYS as usize];
    for told in tasks.join_all().await {
        all.iter_mut().zip(told).for_each(|(all, told)| all.extend(told));
    }
    (cuts, all)
}
