//! What must hold in every state.

use stateright::Property;

use super::setup::Setup;
use super::world::{Event, Explored, World};
use crate::wire::Status;

/// A law of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Law {
    /// What was admitted, and all that anybody could still spend, is no more than the limit and the faults allow.
    Permits,
    /// Home and all that it has lent refill no faster than the limit.
    Rate,
    /// A share comes back once.
    Once,
    /// Every ledger can be read.
    Readable,
    /// Without more faults the key comes to rest as it should be.
    Forward,
}

impl Law {
    pub(super) const ALL: &'static [Self] = &[Self::Permits, Self::Rate, Self::Once, Self::Readable, Self::Forward];

    pub(super) fn alone(self) -> &'static [Self] {
        let index = Self::ALL.iter().position(|law| *law == self).expect("all are there");
        &Self::ALL[index..=index]
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Permits => "no more is admitted and left to spend than the limit and the faults allow",
            Self::Rate => "home and all that it has lent refill no faster than the limit",
            Self::Once => "a share comes back once",
            Self::Readable => "every ledger can be read",
            Self::Forward => "without more faults the key comes to rest as it should be",
        }
    }

    pub(super) fn property(self) -> Property<Explored> {
        match self {
            Self::Permits => Property::always(self.name(), |model: &Explored, world| permits(&model.setup, world)),
            Self::Rate => Property::always(self.name(), |model: &Explored, world: &World| {
                let rates = world.rates(&model.setup);
                let forgotten = if world.account.forgot { 0 } else { rates.forgotten };
                rates.in_ledger + forgotten <= rates.limit
            }),
            Self::Once => Property::always(self.name(), |_, world| once(world)),
            Self::Readable => Property::always(self.name(), |_, world: &World| world.unreadable.is_none()),
            Self::Forward => {
                Property::always(self.name(), |model: &Explored, world| comes_to_rest(&model.setup, world))
            }
        }
    }
}

fn permits(setup: &Setup, world: &World) -> bool {
    let account = &world.account;
    let allowed = if setup.strict { 0 } else { account.allowed };
    account.admitted + world.spendable(setup) <= account.budget + allowed
}

fn once(world: &World) -> bool {
    let returned = world.home.key.as_ref().map_or(&[][..], |home| &home.returned);
    returned.iter().enumerate().all(|(index, id)| !returned[..index].contains(id))
}

/// Calls to every shard by every client, and what follows from them: enough for a plan and a limit that change at once, with
/// all that faults have left behind.
const ROUNDS: usize = 40;

/// Everything that is on its way arrives, and then clients go on without faults. Requests take no time, as long as anybody
/// sends any.
fn comes_to_rest(setup: &Setup, world: &World) -> bool {
    let mut world = world.clone();
    for _ in 0..ROUNDS {
        for client in 0..world.clients.len() {
            world.happen(setup, Event::AcquireHome(client));
            for slot in 1..world.shards.len() {
                world.happen(setup, Event::Acquire(client, slot));
            }
            world.go_on(setup, client);
        }
        if world.is_at_rest(setup) {
            return true;
        }
        world.happen(setup, Event::Tick);
    }
    false
}

/// Steps that a client takes one after the other, at the most, before others do.
const STEPS: usize = 60;

impl World {
    /// Everything arrives, and a client takes its steps until it comes to an end, or gives up.
    fn go_on(&mut self, setup: &Setup, client: usize) {
        for _ in 0..STEPS {
            while self.flying.len() > 0 {
                self.happen(setup, Event::Deliver(0));
            }
            if !self.clients[client].has_errand(setup, self.plan) {
                return;
            }
            self.happen(setup, Event::Step(client));
            while self.flying.len() > 0 {
                self.happen(setup, Event::Deliver(0));
            }
            if self.clients[client].attempt.is_none() {
                return;
            }
        }
    }

    /// Whether the latest definition is in force, every share that there should be is lent, and everybody knows.
    fn is_at_rest(&self, setup: &Setup) -> bool {
        let Some(home) = &self.home.key else { return false };
        let ledger = &home.known.ledger;
        let told = self.clients.iter().map(|client| client.told).max().unwrap_or(0);
        let mut slots = setup.slots(self.plan, ledger).split_off(1);
        slots.sort_unstable();
        let mut lent: Vec<_> = ledger.grants.iter().map(|grant| grant.slot).collect();
        lent.sort_unstable();
        ledger.definition.says(&setup.definition(told))
            && ledger.next.is_none()
            && ledger.grants.iter().all(|grant| grant.status == Status::Live)
            && lent == slots
            && self.flying.len() == 0
            && self.clients.iter().all(|client| client.view.id == home.known.id)
    }
}
