//! Calls on a shared store: from a key's plan to the shards that decide.
//!
//! * `call`: one call, from its check to the first shard's answer; `further`: what few come to after that. `in_process`: what needs no
//!   store. `gather`: asks above one share.
//! * `settle`: what a call did cost in the end. `look`: what concerns all shards of a key at once.
//! * `waits`, `serve`: the line of calls that wait for a key, and the task that asks for them.
//! * `held`: what is charged and not handed out yet, and goes back if its caller goes away.
//! * `keys`, `tracked`: the keys that this process knows. `entry`: one that is in use, with a `view` of its plan and the `lane`s to its
//!   shards. `planned`: what is kept of a plan while nobody uses it; `packer`: the task that has it kept so (`one_task`, as that of `debts`).
//! * `lane`, `queue`, `round`, `row`, `seat`, `job`, `drive`: calls that wait together go out together. `stripes`: where threads join them
//!   side by side. `ceiling`: what a shard can have at the most. `counts`: what this process had of it.
//! * `turn`: which lane is next. `watch`: the deadlines of those who wait. `ahead`, `crowd`: how much is under way, in a lane and
//!   in all.
//! * `health`, `fallback`, `local`, `meter`: a shard that does not answer, and how its calls are decided without it. `debts`: what it is charged for
//!   them when it is back. `losses`: what came to nothing.
//! * `purse`, `lease`: permits taken ahead.
//! * `tally`: how far the limit was exceeded, as all processes together see it.
//! * `defined`: what the limit is. `escrow`, `moves`: how a key's shares come to lie where they should.

mod ahead;
mod call;
mod ceiling;
mod counts;
mod crowd;
mod debts;
mod defined;
mod drive;
mod entry;
mod escrow;
mod fallback;
mod further;
mod gather;
mod health;
mod heat;
mod held;
mod in_process;
mod job;
mod keys;
mod lane;
mod lease;
mod local;
mod look;
mod losses;
mod meter;
mod moves;
mod one_task;
mod packer;
mod plan_view;
mod planned;
mod purse;
mod queue;
#[cfg(races)]
#[path = "../../../races/src/mod.rs"]
pub(crate) mod races;
mod round;
mod row;
mod seat;
mod serve;
mod settle;
mod stripes;
mod tally;
#[cfg(test)]
mod tests;
mod tracked;
mod turn;
mod view;
mod waits;
mod watch;

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Poll, Waker};
use std::time::Duration;

use futures_util::FutureExt;

use crate::clock::{Clock, Micros};
use crate::flow::shadow::Shadow;
use crate::kernel::Refund;
use crate::leases::Leases;
use crate::limit::Algorithm;
use crate::observe::{self, Sample};
use crate::plan::{Definition, Shards};
use crate::policy::{Failures, PolicyCell};
use crate::selector::Selector;
use crate::store::cluster::{Engine, Fault};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use arc_swap::ArcSwap;
use debts::Debts;
use defined::Defined;
use escrow::Movers;
use job::Work;
use keys::Keys;
use lease::Leasing;
use losses::Losses;
use one_task::OneTask;
use queue::{Drive, Load, Sending, Start};
use seat::Seat;
use tally::Tallies;

pub(crate) use call::Acquiring;
pub(crate) use crowd::{Crowd, MOST_ROUNDS};
pub(crate) use defined::moment;
pub(crate) use entry::Entry;
pub(crate) use lane::Lane;
pub(crate) use losses::Lost;

/// Calls that no shard decided, or not in time.
#[derive(Default)]
pub(crate) struct FailureCounts {
    /// Decided by the policy.
    pub allowed: AtomicU64,
    pub denied: AtomicU64,
    /// Not answered by their deadline.
    pub late: AtomicU64,
    /// Not taken, because too many waited already.
    pub crowded: AtomicU64,
}

impl FailureCounts {
    fn read(&self, losses: &Losses) -> Failures {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let mut failures = Failures::default();
        (failures.allowed, failures.denied) = (read(&self.allowed), read(&self.denied));
        (failures.late, failures.crowded) = (read(&self.late), read(&self.crowded));
        (failures.unreturned, failures.uncharged) = (read(&losses.unreturned), read(&losses.uncharged));
        failures
    }
}

/// Denials of one limit are told of so often at the most, and faults: a limit under attack must not fill the log, nor one whose master
/// is away.
const TELL: Micros = 1_000_000;

/// Requests that ended without an answer.
#[derive(Default)]
struct Faults {
    /// How many there were since they were last told of,
    untold: AtomicU64,
    /// and when that was, by this process's clock.
    told: AtomicU64,
}

/// What all limits of a limiter on a shared store have in common.
#[derive(Clone)]
pub(crate) struct Shared {
    pub engine: Arc<Engine>,
    pub prefix: Arc<str>,
    pub shards: Shards,
    pub selector: Arc<dyn Selector>,
    pub clock: Clock,
    pub timeout: Duration,
    /// The longest that a call may take.
    pub deadline: Duration,
    /// Decides for shards that can't, unless a limit has a policy of its own.
    pub policy: Arc<PolicyCell>,
    /// How many processes share the limits; zero: nobody knows.
    pub gateways: u32,
    /// For how long a ceiling counts at the most; zero: not at all.
    pub ceiling: Duration,
    pub max_keys: usize,
    /// What is under way, of all limits together.
    pub crowd: Arc<Crowd>,
    /// Runs a second from which a key is hot.
    pub hot: u64,
    /// Whether its limits begin in shadow mode.
    pub shadow: bool,
    /// How many split keys of a limit have their overshoot watched.
    pub watched: usize,
    /// Of which allowed calls is told.
    pub sample: Sample,
}

/// A named limit on a shared store.
pub(crate) struct SharedLimit {
    pub name: Box<str>,
    defined: ArcSwap<Defined>,
    /// The largest burst that a key of it is known to have.
    largest: AtomicU64,
    /// How often a key was found under another definition than this process has.
    mismatches: AtomicU64,
    prefix: Arc<str>,
    engine: Arc<Engine>,
    selector: Arc<dyn Selector>,
    clock: Clock,
    timeout: Duration,
    deadline: Micros,
    /// Its own, and that of all limits without.
    policy: PolicyCell,
    policy_of_all: Arc<PolicyCell>,
    gateways: u32,
    failures: FailureCounts,
    faults: Faults,
    losses: Losses,
    pub shadow: Shadow,
    tallies: Arc<Tallies>,
    ceiling: Micros,
    crowd: Arc<Crowd>,
    /// Runs a second from which a key is hot.
    hot: u64,
    keys: Keys,
    debts: Debts,
    movers: Movers,
    packer: OneTask,
    /// Of a leased limit.
    leasing: Option<Leasing>,
    /// Of which allowed calls is told.
    sample: Sample,
    /// When a denial was last told of, by this process's clock.
    told: AtomicU64,
    /// When somebody last looked whether another limit was set for all keys.
    watched: AtomicU64,
    /// The number of masters for which it was last judged whether to split keys, and the answer in the lowest bit.
    split: AtomicUsize,
}

/// How a call was put into a lane.
enum Put {
    InLine,
    /// The same, and the lane has as many as go together.
    Full,
    /// It sends by itself.
    Alone(Drive),
}

impl SharedLimit {
    pub(crate) fn new(shared: &Shared, name: &str, definition: Definition, leases: Option<&Leases>) -> Self {
        let Shared { engine, prefix, selector, clock, timeout, deadline, policy, gateways, .. } = shared.clone();
        let limit = definition.limit;
        Self {
            name: name.into(),
            defined: ArcSwap::from_pointee(Defined::new(definition)),
            largest: AtomicU64::new(limit.burst()),
            mismatches: AtomicU64::new(0),
            prefix,
            engine,
            selector,
            clock,
            timeout,
            deadline: deadline.as_micros() as Micros,
            policy: PolicyCell::new(None),
            policy_of_all: policy,
            gateways,
            failures: FailureCounts::default(),
            faults: Faults::default(),
            losses: Losses::default(),
            shadow: Shadow::new(shared.shadow),
            tallies: Arc::new(Tallies::new(shared.watched)),
            ceiling: shared.ceiling.as_micros() as Micros,
            crowd: Arc::clone(&shared.crowd),
            hot: shared.hot,
            keys: Keys::new(shared.max_keys),
            debts: Debts::default(),
            movers: Movers::new(),
            packer: OneTask::default(),
            // Who comes when is the whole point of a pacing queue: nobody may take its turns ahead.
            leasing: leases
                .filter(|_| !matches!(limit.algorithm(), Algorithm::PacingQueue | Algorithm::Composite))
                .map(Leasing::new),
            sample: shared.sample,
            told: AtomicU64::new(0),
            watched: AtomicU64::new(0),
            split: AtomicUsize::new(0),
        }
    }

    pub(crate) fn failures(&self) -> Failures {
        self.failures.read(&self.losses)
    }

    /// Tells of a denial, once in a while.
    #[inline(always)]
    fn tell_denied(&self, key: &[u8], permits: u64, now: Micros) {
        if observe::tells_of_denials() {
            self.tell(key, permits, now);
        }
    }

    #[cold]
    #[inline(never)]
    fn tell(&self, key: &[u8], permits: u64, now: Micros) {
        if lane::is_due(&self.told, now, TELL) {
            observe::denied(&self.name, key, permits);
        }
    }

    /// Tells of a fault, once in a while.
    fn tell_fault(&self, key: &[u8], fault: &Fault) {
        let Faults { untold, told } = &self.faults;
        untold.fetch_add(1, Ordering::Relaxed);
        if lane::is_due(told, self.clock.now(), TELL) {
            observe::fault(&self.name, key, fault, untold.swap(0, Ordering::Relaxed));
        }
    }

    /// From the moment a shard's clock was read until an install must have reached it: a second, or two requests at their
    /// slowest if that is longer.
    fn install_within(&self) -> Micros {
        (2 * self.timeout.as_micros() as Micros).max(1_000_000)
    }

    /// Has a shard asked, without waiting for what comes of it.
    fn nudge(self: &Arc<Self>, entry: &Arc<Entry>, lane: &Arc<Lane>) {
        drop(self.put_until(entry, lane, Work::Make, self.clock.now() + self.timeout.as_micros() as Micros));
    }

    /// When a call that begins now is to end: `within` so many microseconds, or within the limiter's deadline if it says none.
    fn due(&self, within: Option<Micros>) -> Micros {
        self.clock.now() + within.unwrap_or(self.deadline)
    }

    /// What `work` comes to before `due`, on any runtime; none if it takes longer.
    async fn before<T>(&self, due: Micros, work: impl Future<Output = T>) -> Option<T> {
        let (mut work, mut alarm) = (pin!(work), None);
        poll_fn(|context| {
            if let Poll::Ready(done) = work.as_mut().poll(context) {
                return Poll::Ready(Some(done));
            }
            if self.clock.now() >= due {
                return Poll::Ready(None);
            }
            alarm = Some(self.clock.wake_at(due, context.waker()));
            Poll::Pending
        })
        .await
    }

    /// Puts work into a lane that is no call's, and sends it if the lane was idle. A refund or a debt has no deadline: who goes by what
    /// became of it has to know.
    fn put(self: &Arc<Self>, entry: &Arc<Entry>, lane: &Arc<Lane>, work: Work) -> Seat {
        let due = match work {
            Work::Refund(_) | Work::Debt(_) => Micros::MAX,
            // A little longer than its request may take: that says what happened, a deadline only that it was late.
            _ => self.clock.now() + self.timeout.as_micros() as Micros * 9 / 8,
        };
        self.put_until(entry, lane, work, due)
    }

    /// The same, to be answered before `due`.
    fn put_until(self: &Arc<Self>, entry: &Arc<Entry>, lane: &Arc<Lane>, work: Work, due: Micros) -> Seat {
        let (seat, put) = self.put_alone(entry, lane, work, (self.clock.now(), due), &mut None);
        if let Put::Alone(drive) = put {
            self.spawn(drive);
        }
        seat
    }

    /// As [`put_until`](Self::put_until); but if the lane was idle, and the caller lives where our tasks do, he sends by himself: a task
    /// less between him and the connection. If `waker` is taken, it wakes him when he is answered.
    fn put_alone(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        lane: &Arc<Lane>,
        work: Work,
        (now, due): (Micros, Micros),
        waker: &mut Option<Waker>,
    ) -> (Seat, Put) {
        let back = if let Work::Refund(refund) = &work { refund.permits } else { 0 };
        let (seat, start) = lane.put(work, (now, due), waker);
        match start {
            Start::Nothing => {}
            Start::Full => return (seat, Put::Full),
            Start::Crowded => {
                self.failures.crowded.fetch_add(1, Ordering::Relaxed);
                // Its receipt is spent.
                self.lose(&entry.key, Lost::unreturned(back));
            }
            Start::Gather => self.spawn(self.drive(entry, lane, None)),
            Start::Send(load) if self.engine.is_here() => {
                return (seat, Put::Alone(self.drive_alone(entry, lane, load)));
            }
            Start::Send(load) => self.spawn(self.drive(entry, lane, Some(load))),
            Start::Spawn(drive, waker) => {
                self.spawn(drive);
                waker.wake();
            }
        }
        (seat, Put::InLine)
    }

    /// Returns permits that nobody waits for.
    fn give_back(self: &Arc<Self>, entry: &Arc<Entry>, lane: &Arc<Lane>, refund: Refund) {
        if let Some(load) = lane.give_back(refund) {
            self.spawn(self.drive(entry, lane, Some(load)));
        }
    }

    /// Without a load, what waits is sent when everybody who is about to come is in.
    ///
    /// Never a part of its callers: it is made on the stack first, and each call would have 12 kB of that, for what one of a round needs.
    #[inline(never)]
    fn drive(self: &Arc<Self>, entry: &Arc<Entry>, lane: &Arc<Lane>, load: Option<Load>) -> Drive {
        let sending = Sending::new(Arc::clone(lane), load.as_ref());
        Box::pin(drive::drive(Arc::clone(self), Arc::clone(entry), sending, load))
    }

    /// The same by a caller, who is no task: what ends those has to end him.
    #[inline(never)]
    fn drive_alone(self: &Arc<Self>, entry: &Arc<Entry>, lane: &Arc<Lane>, load: Load) -> Drive {
        let sending = Sending::new(Arc::clone(lane), Some(&load));
        let drive = drive::drive(Arc::clone(self), Arc::clone(entry), sending, Some(load));
        Box::pin(self.engine.until_the_end(drive).map(drop))
    }

    /// If it can't be spawned it is dropped, and that answers everybody.
    #[inline(never)]
    fn spawn(&self, drive: Drive) {
        let _ = self.engine.spawn(drive);
    }
}
