//! Whether a key comes to rest as it should be, from whatever state, when nothing more goes wrong.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::account::Account;
use super::setup::Setup;
use super::world::{Event, World};
use crate::sync::{Arc, Mutex, lock};
use crate::wire::Status;

/// Calls to every shard by every client, and what follows from them: enough for a plan and a limit that change at once, with
/// all that faults have left behind.
const ROUNDS: usize = 40;

/// Steps that a client takes one after the other, at the most, before others do.
const STEPS: usize = 60;

/// States that are known to come to rest, by their prints: most ways to rest have been gone before.
#[derive(Default)]
pub(super) struct Ends(Mutex<HashSet<u64>>);

impl Ends {
    /// Everything that is on its way arrives, and then clients go on without faults. Requests take no time, as long as anybody
    /// sends any.
    pub(super) fn comes_to_rest(&self, setup: &Setup, world: &World) -> bool {
        let mut world = world.bare();
        // The latest limit comes into force without what is out of reach.
        if world.away != 0 && !self.is_reached(setup, &mut world, World::is_in_force) {
            return false;
        }
        world.away = 0;
        self.is_reached(setup, &mut world, World::is_at_rest)
    }

    fn is_reached(&self, setup: &Setup, world: &mut World, is_so: fn(&World, &Setup) -> bool) -> bool {
        let mut passed = Vec::new();
        for _ in 0..ROUNDS {
            passed.push(world.bare().print());
            if lock(&self.0).contains(&passed[passed.len() - 1]) {
                break;
            }
            world.go_round(setup);
            if is_so(world, setup) {
                break;
            }
            if passed.len() == ROUNDS {
                return false;
            }
            world.happen(setup, Event::Tick);
        }
        lock(&self.0).extend(passed);
        true
    }
}

impl World {
    /// All that matters for what happens next, if nothing goes wrong.
    fn bare(&self) -> Self {
        let mut bare = Self { faults: 0, account: Account::default(), ..self.clone() };
        (bare.home.before, bare.home.written) = (None, 0);
        bare.shards.iter_mut().for_each(|shard| (shard.before, shard.written) = (None, 0));
        bare.home.key.iter_mut().for_each(|home| home.returned.clear());
        bare
    }

    fn print(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }

    /// Each client calls every shard, and does what follows from that.
    fn go_round(&mut self, setup: &Setup) {
        while !self.answers.is_empty() {
            self.happen(setup, Event::Answer(0, false));
        }
        for client in 0..self.clients.len() {
            self.happen(setup, Event::AcquireHome(client));
            for slot in 1..self.shards.len() {
                self.happen(setup, Event::Acquire(client, slot));
            }
            self.go_on(setup, client);
        }
    }

    /// The key comes to rest before anybody has called.
    pub(super) fn split(&mut self, setup: &Setup) {
        for client in 0..self.clients.len() {
            let known = self.home.key.as_ref().map(|home| Arc::clone(&home.known));
            self.clients[client].hear_home(known.as_ref(), true);
            self.go_on(setup, client);
        }
        let known = self.home.key.as_ref().map(|home| &home.known);
        self.clients.iter_mut().for_each(|client| client.hear_home(known, true));
        (self.home.before, self.home.written) = (None, 0);
        self.shards.iter_mut().for_each(|shard| (shard.before, shard.written) = (None, 0));
        assert!(self.is_at_rest(setup), "nothing goes wrong yet");
    }

    /// Everything arrives that can, and a client takes its steps until it comes to an end, or gives up.
    fn go_on(&mut self, setup: &Setup, client: usize) {
        for _ in 0..STEPS {
            self.arrive(setup);
            if !self.clients[client].has_errand(setup, self.plan) {
                return;
            }
            self.happen(setup, Event::Step(client));
            self.arrive(setup);
            if self.clients[client].attempt.is_none() {
                return;
            }
        }
    }

    fn arrive(&mut self, setup: &Setup) {
        loop {
            let Some(index) = self.flying.iter().position(|message| self.can_arrive(message)) else { return };
            self.happen(setup, Event::Deliver(index));
        }
    }

    /// Whether no client wants another limit than the one that is in force.
    fn is_in_force(&self, setup: &Setup) -> bool {
        self.home.key.as_ref().is_some_and(|home| {
            let ledger = &home.known.ledger;
            let wanted = |told| setup.definition(told).replaces(&ledger.definition);
            ledger.next.is_none() && !self.clients.iter().any(|client| wanted(client.told))
        })
    }

    /// Whether every share that there should be is lent besides, and everybody knows.
    fn is_at_rest(&self, setup: &Setup) -> bool {
        let Some(home) = &self.home.key else { return false };
        let ledger = &home.known.ledger;
        let mut slots = setup.slots(self.plan, ledger).split_off(1);
        slots.sort_unstable();
        let mut lent: Vec<_> = ledger.grants.iter().map(|grant| grant.slot).collect();
        lent.sort_unstable();
        self.is_in_force(setup)
            && ledger.grants.iter().all(|grant| grant.status == Status::Live)
            && lent == slots
            && self.flying.len() == 0
            && self.clients.iter().all(|client| client.view.id == home.known.id)
    }
}
