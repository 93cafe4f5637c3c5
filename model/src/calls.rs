//! Calls: they take all that home, or a shard, has. Most answers are heard at once. Those that are late are heard after anything else
//! has happened: by then the client may know of another plan, and the caller may wait no more.

use super::message::{HOME, Message, Request};
use super::scripts;
use super::server::{Known, SubKey};
use super::setup::{Broken, Fault, Setup};
use super::world::World;
use crate::sync::Arc;
use crate::wire::GrantId;

/// What a server has said to a call whose client has not heard it yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Answer {
    pub client: usize,
    pub slot: usize,
    /// What it was asked under.
    pub id: GrantId,
    pub said: Said,
    pub granted: u64,
    /// The client has heard of another ledger since it sent the call.
    pub is_old: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Said {
    /// A shard has decided.
    Decided,
    /// The grant is not there.
    Stale,
    /// Home's ledger; none if there is no home.
    Home(Option<Arc<Known>>),
}

impl World {
    /// Whether anything changed.
    pub(super) fn acquire_home(&mut self, setup: &Setup, client: usize) -> bool {
        let its = &self.clients[client];
        let before = (its.view.id, its.attempt.clone(), its.heard, its.failed);
        let (known, granted) = self.charge_home(setup, client);
        let its = &mut self.clients[client];
        its.hear_home(known.as_ref(), true);
        granted > 0 || before != (its.view.id, its.attempt.clone(), its.heard, its.failed)
    }

    /// Home's ledger, and what was granted.
    fn charge_home(&mut self, setup: &Setup, client: usize) -> (Option<Arc<Known>>, u64) {
        let (now, its) = (Setup::home_clock(self.now), &self.clients[client]);
        let home = match &self.home.key {
            Some(home) => Some(home.clone()),
            None => its.may_make_home().then(|| scripts::new_home(setup.definition(its.told), now)),
        };
        let Some(mut home) = home else { return (None, 0) };
        let known = Arc::clone(&home.known);
        let (held, granted) = scripts::acquire(home.held, now);
        if granted > 0 {
            home.held = held;
            self.account.admit(granted);
            let remember = self.may_fail(setup, Fault::FailHome);
            self.home.write(Some(home), remember);
        }
        (Some(known), granted)
    }

    /// Whether anything changed.
    pub(super) fn acquire(&mut self, setup: &Setup, client: usize, slot: usize) -> bool {
        let Some(id) = self.clients[client].lane_at(slot) else { return false };
        match self.charge(setup, slot, id) {
            Some(granted) => granted > 0,
            None => self.clients[client].find_stale(id),
        }
    }

    /// What was granted; none if the grant is not there.
    fn charge(&mut self, setup: &Setup, slot: usize, id: GrantId) -> Option<u64> {
        let Some(SubKey::Lent(there, held)) = self.shards[slot].key else { return None };
        if there != id {
            return None;
        }
        let (held, granted) = scripts::acquire(held, setup.clock(slot, self.now));
        if granted > 0 {
            self.account.admit(granted);
            self.write_shard(setup, slot, Some(SubKey::Lent(id, held)));
        }
        Some(granted)
    }

    /// A call is carried out whose answer is late. Until it is heard, what was granted counts as admitted.
    pub(super) fn answer_late(&mut self, setup: &Setup, client: usize, slot: usize) {
        let (id, said, granted) = if slot == HOME {
            let id = self.clients[client].view.id;
            let (known, granted) = self.charge_home(setup, client);
            (id, Said::Home(known), granted)
        } else {
            let id = self.clients[client].lane_at(slot).expect("it was asked by its plan");
            let granted = self.charge(setup, slot, id);
            (id, if granted.is_some() { Said::Decided } else { Said::Stale }, granted.unwrap_or(0))
        };
        self.answers.push(Answer { client, slot, id, said, granted, is_old: false });
    }

    /// Whether a late answer would say anything: if not, it makes no difference when it is heard.
    pub(super) fn says_something(&self, setup: &Setup, client: usize, slot: usize) -> bool {
        let its = &self.clients[client];
        if slot != HOME && its.lane_at(slot).is_none() {
            return false;
        }
        let mut after = self.clone();
        after.answer_late(setup, client, slot);
        let answer = after.answers.last().expect("it was just given");
        answer.granted > 0
            || match &answer.said {
                Said::Decided => false,
                Said::Stale => true,
                Said::Home(known) => known.as_ref().is_none_or(|known| known.id != its.view.id),
            }
    }

    /// A late answer is heard: as `answered` of `src/flow/sharded/drive.rs`. What was granted to a caller that waits no more
    /// goes back.
    pub(super) fn hear(&mut self, setup: &Setup, answer: Answer, in_time: bool) {
        let Answer { client, slot, id, said, granted, is_old } = answer;
        let is_after = !is_old || setup.broken == Some(Broken::HeedsOldWords);
        match said {
            Said::Decided => {}
            Said::Stale => {
                self.clients[client].find_stale(id);
            }
            Said::Home(known) => self.clients[client].hear_home(known.as_ref(), is_after),
        }
        if granted > 0 && !in_time {
            if setup.broken != Some(Broken::AdmitsLate) {
                self.account.refund(granted);
            }
            let request = Request::Refund { slot, id, permits: granted };
            self.flying.send(Message { client, awaited: false, request });
        }
    }

    /// It comes back to home under any plan; what a grant that is no more was charged is void.
    pub(super) fn refund(&mut self, setup: &Setup, slot: usize, id: GrantId, permits: u64) {
        if slot == HOME {
            let Some(mut home) = self.home.key.clone() else { return };
            home.held = scripts::refund(home.held, permits, Setup::home_clock(self.now));
            let remember = self.may_fail(setup, Fault::FailHome);
            self.home.write(Some(home), remember);
        } else if let Some(SubKey::Lent(there, held)) = self.shards[slot].key
            && there == id
        {
            let held = scripts::refund(held, permits, setup.clock(slot, self.now));
            self.write_shard(setup, slot, Some(SubKey::Lent(id, held)));
        }
    }
}
