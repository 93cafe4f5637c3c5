//! The plan of a key as this process goes by it: lanes to home and to every share that is live.

use std::time::Duration;

use super::SharedLimit;
use super::ceiling::Shut;
use super::counts::Counts;
use super::job::{free, reset_after};
use super::lane::Lane;
use super::meter::Meter;
use super::turn::STAY;
use crate::clock::Micros;
use crate::decision::{DecidedBy, StoreFacts};
use crate::kernel::Header;
use crate::key::{Slot, sub_key};
use crate::limit::{Limit, Share};
use crate::plan::{SET, SET_KEY};
use crate::sync::Arc;
use crate::wire::{GrantId, Ledger, Status};

/// A sub-key lives for at least so long after its last use: ten minutes, so that what was lent is still there after
/// any pause that a client may make between two steps.
pub(super) const LEAST_LIFE: u64 = 600_000;
/// Home outlives what it lent by so much and some time-outs: more than the time between two touches, the longest that
/// one of them may take, and what clocks drift in ten minutes.
const OUTLIVES: u64 = 10_000;
/// A limit that was set while it was in use lives on for a day after the key's last use.
const SET_LIFE: u64 = 86_400_000;

/// What this process had of the shard in a slot.
type Counted = (Slot, Arc<Counts>);

/// The plan in force, as far as it is known here.
pub(crate) struct View {
    /// The id of home's ledger.
    pub id: GrantId,
    pub ledger: Ledger,
    /// When it became known, by this process's clock.
    pub since: Micros,
    /// To home, then to each share that is live.
    pub lanes: Box<[Arc<Lane>]>,
    /// Permits that the least of them holds.
    pub least_burst: u64,
    /// For how long calls may share a turn.
    pub stay: Micros,
    /// Of each slot that the key ever had a lane to: a share that was lost comes back, and its counts go on.
    pub counts: Box<[Counted]>,
}

impl View {
    /// How long until one of the shards that answer could have so many permits; none if there is none that could.
    pub(super) fn opens_elsewhere_in(&self, permits: u64, now: Micros) -> Option<Micros> {
        let well = self.lanes.iter().filter(|lane| !lane.is_sick(now) && lane.burst >= permits);
        // Calls on their way may well be denied.
        well.filter_map(|lane| lane.ceiling.known().opens_in(&lane.share, permits, 0, now)).min()
    }

    /// The next one of a key: lanes to shares that stay as they are go on, and so do all counts.
    pub(super) fn next(&self, limit: &SharedLimit, key: (&[u8], Slot), id: GrantId, ledger: Ledger) -> Self {
        Self::new(limit, key, id, ledger, (&self.lanes, self.counts.to_vec()))
    }

    /// Of a key and its home that had these lanes, and these counts.
    pub(super) fn new(
        limit: &SharedLimit,
        (key, home): (&[u8], Slot),
        id: GrantId,
        ledger: Ledger,
        (before, mut counts): (&[Arc<Lane>], Vec<Counted>),
    ) -> Self {
        let kept = |slot: Slot, id: GrantId| {
            before.iter().find(|lane| lane.slot == slot && lane.id == id && !lane.is_home).cloned()
        };
        let (home_life, lent_life) = lives(key, &ledger, limit.timeout);
        let mut lane = |slot, id, share, parts, is_home, life| {
            let sub_key = sub_key(&limit.prefix, slot, &limit.name, key);
            let counted = counts.iter().find(|(of, _)| *of == slot).map(|(_, counts)| Arc::clone(counts));
            let counts = counted.unwrap_or_else(|| {
                let fresh = Counts::new(&limit.crowd, ledger.limit().period(), Meter::default());
                counts.push((slot, Arc::new(fresh)));
                Arc::clone(&counts[counts.len() - 1].1)
            });
            Arc::new(Lane::new(slot, sub_key, id, share, parts, is_home, life, counts))
        };
        let mut lanes = vec![lane(home, id, ledger.home_share(), ledger.home_parts(), true, home_life)];
        for grant in ledger.grants.iter().filter(|grant| grant.status == Status::Live) {
            let parts = (grant.permits, grant.burst);
            lanes.push(
                kept(grant.slot, grant.id)
                    .unwrap_or_else(|| lane(grant.slot, grant.id, ledger.share_of(grant), parts, false, lent_life)),
            );
        }
        let least_burst = lanes.iter().map(|lane| lane.burst).min().unwrap_or(0);
        let stay = stay(ledger.limit(), least_burst);
        Self { id, ledger, since: limit.clock.now(), lanes: lanes.into(), least_burst, stay, counts: counts.into() }
    }

    pub(super) fn is_split(&self) -> bool {
        !self.ledger.grants.is_empty()
    }

    pub(super) fn home(&self) -> &Arc<Lane> {
        &self.lanes[0]
    }

    /// What is left on all shards: exact where one shard is all there is, else what they can have at the most.
    pub(super) fn facts(&self, latest: Option<(&Lane, &Header, &Share)>, now: Micros) -> StoreFacts {
        let exact = self.lanes.len() == 1 && latest.is_some();
        let mut facts = StoreFacts { remaining: 0, reset_after: 0, exact, decided_by: DecidedBy::Store, part: 0 };
        for lane in &self.lanes {
            match latest {
                Some((asked, header, share)) if asked.slot == lane.slot => {
                    facts.remaining += free(header, share);
                    facts.reset_after = facts.reset_after.max(reset_after(header, share));
                }
                _ => {
                    let known = lane.ceiling.known();
                    facts.remaining += if lane.is_sick(now) { 0 } else { known.most(&lane.share, now) };
                    facts.reset_after = facts.reset_after.max(known.reset_after(now));
                }
            }
        }
        facts
    }

    /// Until when no shard can grant anything, as far as their answers tell; and when some could, 0 if one can.
    pub(super) fn shut(&self, now: Micros) -> Shut {
        let holds = |lane: &Arc<Lane>| lane.ceiling.known().shut_until(&lane.share, now);
        let opens_at = |lane: &Arc<Lane>| lane.ceiling.known().opens_at(&lane.share, now);
        Shut {
            holds: self.lanes.iter().map(holds).min().unwrap_or(0),
            opens_at: self.lanes.iter().map(opens_at).min().unwrap_or(0),
        }
    }

    /// Whether some share is on its way, or all are to come home for another definition.
    pub(super) fn is_moving(&self) -> bool {
        self.ledger.next.is_some() || self.ledger.grants.iter().any(|grant| grant.status != Status::Live)
    }
}

/// How long home and the shares that it lent live after their last use, at the least, in ms.
pub(super) fn lives(key: &[u8], ledger: &Ledger, timeout: Duration) -> (u64, u64) {
    let is_set = ledger.wanted().revision >= if is_record(key) { SET } else { SET_KEY };
    let set = if is_set { SET_LIFE } else { 0 };
    if ledger.grants.is_empty() && ledger.next.is_none() {
        return (set, LEAST_LIFE);
    }
    let lent = ledger.grants.iter().filter(|grant| !grant.status.is_recalled());
    let longest = lent.map(|grant| refill(&ledger.share_of(grant))).max().unwrap_or(0);
    let longest = longest.max(refill(&ledger.home_share())) / 1_000;
    // Twice a refill: a debt may be as large as a full bucket.
    let lent = LEAST_LIFE.max(2 * longest + 1_000);
    (set.max(lent + OUTLIVES + 4 * timeout.as_millis() as u64), lent)
}

/// The key that nobody can ask for: its home records what was set for all keys of the limit.
pub(super) fn is_record(key: &[u8]) -> bool {
    key.is_empty()
}

/// For how long calls may stay with one shard: at the limit's rate they take a quarter of what the least of them holds.
fn stay(limit: &Limit, least_burst: u64) -> Micros {
    let quarter = u128::from(least_burst) * limit.period().as_micros() / (4 * u128::from(limit.permits()));
    Micros::try_from(quarter).unwrap_or(STAY).min(STAY)
}

/// How long until a share is as new, at the most.
fn refill(share: &Share) -> Micros {
    match share {
        Share::Bucket(bucket) => bucket.refill,
        Share::Fixed(window) | Share::Sliding(window) => 2 * window.window,
        Share::Composite(shares) => shares.iter().map(refill).max().unwrap_or(0),
    }
}
