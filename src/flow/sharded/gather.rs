//! Asks above one share: parts from several shards, all or nothing.
//!
//! Shards are asked one after the other, by slot: the same order for all clients, so of two that want the same permits
//! one gets them. What was taken is given back if the rest is not there, also when the caller goes away.

use super::SharedLimit;
use super::entry::Entry;
use super::held::Parts;
use super::job::{Miss, Work};
use super::lane::Lane;
use super::view::View;
use crate::clock::Micros;
use crate::decision::{Decision, Receipt};
use crate::limit::Share;
use crate::sync::Arc;

/// # Cancel safety
/// What was taken is given back.
pub(super) async fn gather(
    limit: &Arc<SharedLimit>,
    entry: &Arc<Entry>,
    permits: u64,
    due: Micros,
) -> Result<Decision, Miss> {
    let view = &*entry.view();
    let mut lanes: Vec<&Arc<Lane>> = view.lanes.iter().collect();
    lanes.sort_unstable_by_key(|lane| lane.slot);
    // A look first: a part that is not there would be a run in vain, and one to take back.
    let looks: Vec<_> = lanes.iter().map(|lane| limit.put_until(entry, lane, Work::Look, due)).collect();
    let mut there = Vec::with_capacity(lanes.len());
    for look in looks {
        there.push(look.await?.free());
    }
    let all: u64 = there.iter().sum();
    if all < permits {
        return Ok(denied(limit, view, permits - all));
    }

    let mut held = Parts::new(limit, entry);
    let (mut left, mut ahead) = (permits, all);
    for (lane, there) in lanes.into_iter().zip(there) {
        // In proportion to what is there, and no less than what the shards behind can't give.
        ahead -= there;
        let part = (u128::from(left) * u128::from(there) / u128::from((ahead + there).max(1))) as u64;
        let part = part.max(left.saturating_sub(ahead)).min(left);
        left -= take(&mut held, lane, part, due).await?;
    }
    if left > 0 {
        return Ok(denied(limit, view, left));
    }
    let facts = view.facts(None, limit.clock.now());
    Ok(Decision::allowed_by_store(facts, 0, Receipt::of_shards(entry.owner, &held.keep())))
}

/// Takes `part` from a shard, or what it still has if somebody took some since the look. Says how much.
async fn take(held: &mut Parts<'_>, lane: &Arc<Lane>, part: u64, due: Micros) -> Result<u64, Miss> {
    let mut part = part;
    for _ in 0..2 {
        if part == 0 {
            break;
        }
        let found = held.limit.ask(held.entry, lane, Work::Ask(part), (held.limit.clock.now(), due)).await?;
        if found.verdict.granted > 0 {
            held.add(lane, found.charge(part));
            return Ok(part);
        }
        part = found.free().min(part - 1);
    }
    Ok(0)
}

/// So many permits are lacking in all: not before the whole limit could have brought them, or a window has passed on.
fn denied(limit: &SharedLimit, view: &View, lacking: u64) -> Decision {
    let now = limit.clock.now();
    Decision::denied_by_store(view.facts(None, now), view.brings_in(lacking, now))
}

impl View {
    /// How long until all shards together could have so many permits; zero if they could now. None where their answers do
    /// not tell: a sliding window does not say when what was used comes back, and a plan by which they can't have so many may
    /// be another by now.
    pub(super) fn opens_together_in(&self, permits: u64, now: Micros) -> Option<Micros> {
        let is_known = self.lanes.iter().any(|lane| lane.ceiling.known().counts(now));
        if !is_known || matches!(self.home().share, Share::Sliding(_) | Share::Composite(_)) {
            return None;
        }
        let most: u64 = self.lanes.iter().map(|lane| lane.ceiling.known().most(&lane.share, now)).sum();
        Some(if most >= permits { 0 } else { self.brings_in(permits - most, now) })
    }

    /// Not before this could so many permits have come back.
    fn brings_in(&self, lacking: u64, now: Micros) -> Micros {
        let time = match &self.home().share {
            Share::Bucket(_) => {
                let whole = self.ledger.limit();
                (u128::from(lacking) * whole.period().as_micros() / u128::from(whole.permits())) as u64
            }
            Share::Fixed(_) => {
                self.lanes.iter().map(|lane| lane.ceiling.known().window_ends_in(now)).min().unwrap_or(0)
            }
            // When its next part goes is not known: soon, but not so soon that asking again is all one does.
            Share::Sliding(window) => window.step.min(1_000),
            Share::Composite(_) => 1_000,
        };
        time.max(1)
    }
}
