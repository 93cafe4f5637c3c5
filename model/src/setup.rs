//! What is explored: how many clients, which plans and limits, and what may go wrong.

use crate::clock::Micros;
use crate::key::Slot;
use crate::limit::Limit;
use crate::plan::{Definition, Shards, shards_for};
use crate::wire::Ledger;

/// A tick of the model's clock.
pub(super) const TICK: Micros = 1_000;
/// What servers' clocks show at first: some of them may be behind the others.
const START: Micros = 10 * TICK;

/// A world to explore. Whatever is not said is not there.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Processes that use the key.
    pub clients: usize,
    /// The limit, and those that are defined after it. All have a period of 2 or 3 ms: then every share is exact in the books.
    pub limits: &'static [&'static str],
    /// The slots of the key's shards besides home, and those after a change of the cluster, and so on.
    pub plans: &'static [&'static [u16]],
    /// The key is split already when the world begins, and everybody knows.
    pub split: bool,
    /// Ticks that the clock makes.
    pub ticks: u8,
    /// Ticks after a grant in which it may be installed.
    pub install_within: u8,
    /// How far the clock of each shard is ahead of home's, in ticks.
    pub ahead: &'static [i8],
    /// What may go wrong, and how often in all.
    pub faults: &'static [Fault],
    /// How many faults there may be in one history.
    pub most_faults: u8,
    /// Faults may cost nothing, not even what is documented.
    pub strict: bool,
    /// What is done wrong on purpose.
    pub broken: Option<Broken>,
}

/// Something that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// A request never arrives.
    Lose,
    /// A client does not wait any longer; what it sent may still arrive.
    Late,
    /// A request arrives twice, the second time at any later moment.
    Repeat,
    /// A client ends, and begins again knowing nothing.
    Crash,
    /// A client ends, and one begins in its place that was told the first limit. So does one that ends while it sets a limit:
    /// whether that comes into force depends on how far it has come.
    Replace,
    /// A shard can't be reached by those who would move its share, until it is back. Calls may still use it: others than those
    /// may reach it.
    Cut,
    /// The answer to a call is heard after anything else has happened.
    LateCall,
    /// A share's sub-key is gone, later than anybody may install it.
    WipeShare,
    /// It is gone while it may still be installed once more.
    WipeNewShare,
    /// Home is gone.
    WipeHome,
    /// A replica takes over from a shard's master that has not seen the last write.
    FailShard,
    /// And from home's.
    FailHome,
}

/// A mistake that the protocol exists to avoid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// Shards install whatever comes, however late.
    InstallsLate,
    /// A share that is not there when it is closed counts as full.
    AbsentIsFull,
    /// Home takes a share back without looking whether its ledger is still the one that the client knows.
    ReturnsUncompared,
    /// A share that has come back stays in the ledger.
    KeepsReturned,
    /// Whoever finds that another limit is to come into force takes the shares that were recalled for it for closed.
    TakesRecalledForClosed,
    /// When another limit comes into force, shares that are out of reach are struck off the ledger.
    DropsOutOfReach,
    /// Home has the whole next limit while shares of the one before are on their way back.
    RaisesFirst,
    /// Home keeps the burst that it had under a larger limit.
    KeepsBurst,
    /// A home that forgot another limit is told that its shares are in use, as if they were of the limit that it has.
    AssertsOtherLimit,
    /// A call whose deadline has passed is admitted, though what it was granted goes back.
    AdmitsLate,
    /// Home's ledger is taken for the latest, also if another was heard of since home was asked.
    HeedsOldWords,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            clients: 2,
            limits: &["token-bucket 3/3ms burst 3"],
            plans: &[&[1]],
            split: false,
            ticks: 2,
            install_within: 1,
            ahead: &[0, 0],
            faults: &[],
            most_faults: 0,
            strict: false,
            broken: None,
        }
    }
}

impl Setup {
    pub(super) fn home_clock(now: u8) -> Micros {
        START + Micros::from(now) * TICK
    }

    /// Of the server of a shard, by the shard's index.
    pub(super) fn clock(&self, shard: usize, now: u8) -> Micros {
        let ahead = self.ahead.get(shard).copied().unwrap_or(0);
        Self::home_clock(now).saturating_add_signed(i64::from(ahead) * TICK as i64)
    }

    pub(super) fn shards(&self) -> usize {
        self.plans.iter().flat_map(|plan| plan.iter().copied()).max().unwrap_or(0).into()
    }

    pub(super) fn limit(&self, told: u8) -> Limit {
        self.limits[usize::from(told)].parse().expect("limits of a setup are good")
    }

    pub(super) fn definition(&self, told: u8) -> Definition {
        Definition::new(self.limit(told), u64::from(told) + 1, Shards::PerMaster)
    }

    /// On which slots the shards should lie under this ledger: as many as its limit has permits for.
    pub(super) fn slots(&self, plan: u8, ledger: &Ledger) -> Vec<Slot> {
        let plan = self.plans[usize::from(plan)];
        let mut slots: Vec<Slot> = [0].iter().chain(plan).filter_map(|number| Slot::new(*number)).collect();
        let count = u16::try_from(slots.len()).ok().and_then(std::num::NonZeroU16::new).expect("home is one");
        slots.truncate(shards_for(ledger.limit(), Shards::Exactly(count), slots.len()));
        slots
    }
}
