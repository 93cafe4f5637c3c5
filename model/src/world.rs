//! The states of the world, and what can happen in them.

use stateright::{Model, Property};

use super::account::Account;
use super::calls::Answer;
use super::client::{Around, Client, Heard};
use super::forward::Ends;
use super::laws::Law;
use super::message::{Flying, Message, Request};
use super::scripts;
use super::server::{Home, Server, SubKey};
use super::setup::{Fault, Setup};
use crate::sync::Arc;
use crate::wire::GrantId;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct World {
    /// Ticks since it began.
    pub now: u8,
    pub home: Server<Home>,
    /// By slot. The first is home's, and stays empty.
    pub shards: Vec<Server<SubKey>>,
    pub clients: Vec<Client>,
    pub flying: Flying,
    /// Answers to calls that are late.
    pub answers: Vec<Answer>,
    /// Shards that nobody can reach who would move their shares, a bit each.
    pub away: u8,
    /// Which of the plans the cluster is in.
    pub plan: u8,
    pub faults: u8,
    pub account: Account,
    /// A ledger was written that no client can read.
    pub unreadable: Option<String>,
}

/// Something that happens. Clients by their index, shards by their slot, messages by their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Tick,
    /// A client's calls take all that home, or a shard, has.
    AcquireHome(usize),
    Acquire(usize, usize),
    Step(usize),
    Deliver(usize),
    /// A late answer comes, before its call's deadline or after it.
    Answer(usize, bool),
    /// A shard that was out of reach can be reached again.
    Back(usize),
    /// A client learns of the next limit.
    Define(usize),
    /// The cluster changes: the key's shards should lie elsewhere.
    Replan,
    Fault(Fault, usize),
}

impl World {
    pub(super) fn new(setup: &Setup) -> Self {
        let mut clients: Vec<Client> =
            (0..setup.clients).map(|client| Client::new(setup, 0, (client as u16 + 1) << 8)).collect();
        // Somebody has used the key before.
        let home = scripts::new_home(setup.definition(0), Setup::home_clock(0));
        clients[0].hear_home(Some(&home.known), true);
        let mut world = Self {
            now: 0,
            home: Server::new(Some(home)),
            shards: vec![Server::new(None); setup.shards() + 1],
            clients,
            flying: Flying::default(),
            answers: Vec::new(),
            away: 0,
            plan: 0,
            faults: 0,
            account: Account::new(setup),
            unreadable: None,
        };
        if setup.split {
            world.split(setup);
        }
        world
    }

    /// When it is, if something has to be remembered for a failover that may come.
    pub(super) fn may_fail(&self, setup: &Setup, fault: Fault) -> Option<u8> {
        (setup.faults.contains(&fault) && self.faults < setup.most_faults).then_some(self.now)
    }

    /// Whether anything changed.
    pub(super) fn happen(&mut self, setup: &Setup, event: Event) -> bool {
        let known: Vec<GrantId> = self.clients.iter().map(|client| client.view.id).collect();
        let changed = self.change(setup, event);
        for (client, known) in known.into_iter().enumerate() {
            self.end_attempt(setup, client);
            if self.clients[client].view.id != known {
                self.answers
                    .iter_mut()
                    .filter(|answer| answer.client == client)
                    .for_each(|answer| answer.is_old = true);
            }
        }
        changed
    }

    pub(super) fn is_away(&self, slot: usize) -> bool {
        self.away >> slot & 1 == 1
    }

    /// Whether anything becomes of a request: one that nobody waits for stays on its way until its shard can be reached.
    pub(super) fn can_arrive(&self, message: &Message) -> bool {
        message.awaited || !message.request.slot().is_some_and(|slot| self.is_away(slot))
    }

    fn change(&mut self, setup: &Setup, event: Event) -> bool {
        match event {
            Event::Tick => {
                self.account.tick(self.rates(setup));
                self.now += 1;
                self.refill(setup);
                true
            }
            Event::AcquireHome(client) => self.acquire_home(setup, client),
            Event::Acquire(client, slot) => self.acquire(setup, client, slot),
            Event::Step(client) => {
                let around = Around { plan: self.plan, now: self.now, away: self.away };
                let requests = self.clients[client].step(setup, around, self.home.key.as_ref());
                for request in requests {
                    self.flying.send(Message { client, awaited: true, request });
                }
                true
            }
            Event::Deliver(index) => {
                let message = self.flying.take(index);
                if message.request.slot().is_some_and(|slot| self.is_away(slot)) {
                    self.unheard(&message);
                    self.flying.leave(message);
                } else {
                    self.deliver(setup, &message);
                }
                true
            }
            Event::Answer(index, in_time) => {
                let answer = self.answers.remove(index);
                self.hear(setup, answer, in_time);
                true
            }
            Event::Back(slot) => {
                self.away &= !(1 << slot);
                true
            }
            Event::Define(client) => {
                self.clients[client].told += 1;
                if self.home.key.is_none() {
                    // Whoever makes home anew may make it by this one.
                    self.account.allow(setup.limit(self.clients[client].told).burst());
                }
                true
            }
            Event::Replan => {
                self.plan += 1;
                true
            }
            Event::Fault(fault, of) => {
                self.faults += 1;
                self.fail(setup, fault, of);
                true
            }
        }
    }

    /// Buckets refill when somebody looks at them. Here they do at once, so that it makes no difference who looked when.
    fn refill(&mut self, setup: &Setup) {
        let now = Setup::home_clock(self.now);
        let before = self.home.before.iter_mut().filter_map(|before| before.as_mut().as_mut());
        for home in self.home.key.iter_mut().chain(before) {
            home.held = home.held.at(now);
        }
        for (slot, shard) in self.shards.iter_mut().enumerate() {
            let before = shard.before.iter_mut().filter_map(|before| before.as_mut().as_mut());
            for key in shard.key.iter_mut().chain(before) {
                if let SubKey::Lent(_, held) = key {
                    *held = held.at(setup.clock(slot, self.now));
                }
            }
        }
    }

    /// A request is carried out, and its client hears of it if it still waits.
    pub(super) fn deliver(&mut self, setup: &Setup, message: &Message) {
        let (now, client) = (self.now, &mut self.clients[message.client]);
        match &message.request {
            Request::Install { slot, id, state, not_after } => {
                let shard = &mut self.shards[*slot];
                let clock = setup.clock(*slot, now);
                let (reply, written) = scripts::install(shard.key.as_ref(), state, *not_after, clock, setup.broken);
                if message.awaited {
                    client.hear_shard(*id, Some(Client::installed(reply)));
                }
                self.write_shard(setup, *slot, written);
            }
            Request::Close { slot, id } => {
                let (reply, written) = scripts::close(self.shards[*slot].key.as_ref(), *id, setup.clock(*slot, now));
                if message.awaited {
                    let report = client.closed(*id, reply, setup.broken);
                    client.hear_shard(*id, Some(report));
                }
                self.write_shard(setup, *slot, written);
            }
            Request::Refund { slot, id, permits } => self.refund(setup, *slot, *id, *permits),
            Request::Home(run) => {
                let definition = setup.definition(client.told);
                match scripts::home(self.home.key.as_ref(), run, Setup::home_clock(now), setup.broken) {
                    Some(Ok(home)) => {
                        let known = Arc::clone(&home.known);
                        let remember = self.may_fail(setup, Fault::FailHome);
                        self.home.write(Some(home), remember);
                        if message.awaited {
                            self.clients[message.client].hear_written(definition, run, &Heard::Written(&known));
                        }
                    }
                    Some(Err(bad)) => self.unreadable = Some(bad),
                    None => {
                        let there = Heard::Refused(self.home.key.as_ref().map(|home| &home.known));
                        if message.awaited {
                            client.hear_written(definition, run, &there);
                        }
                    }
                }
            }
        }
    }

    pub(super) fn write_shard(&mut self, setup: &Setup, slot: usize, written: Option<SubKey>) {
        if written.is_some() {
            let remember = self.may_fail(setup, Fault::FailShard);
            self.shards[slot].write(written, remember);
        }
    }

    /// A client that has heard all it asked for, and finds nothing more to do, is at nothing.
    fn end_attempt(&mut self, setup: &Setup, client: usize) {
        if !self.flying.awaited_by(client) && !self.clients[client].has_errand(setup, self.plan) {
            self.clients[client].attempt = None;
        }
    }
}

/// What a checker explores.
pub(super) struct Explored {
    pub setup: Setup,
    pub laws: &'static [Law],
    pub ends: Ends,
}

impl Model for Explored {
    type State = World;
    type Action = Event;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(&self.setup)]
    }

    fn actions(&self, world: &World, events: &mut Vec<Event>) {
        let setup = &self.setup;
        if world.now < setup.ticks {
            events.push(Event::Tick);
        }
        for (index, client) in world.clients.iter().enumerate() {
            events.push(Event::AcquireHome(index));
            events.extend(client.lanes().map(|grant| Event::Acquire(index, grant.slot.number().into())));
            if !world.flying.awaited_by(index) && client.has_errand(setup, world.plan) {
                events.push(Event::Step(index));
            }
        }
        // One client is told, and the others follow home: whoever it is, they hear of it in any order.
        let last = world.clients.len() - 1;
        if usize::from(world.clients[last].told) + 1 < setup.limits.len() {
            events.push(Event::Define(last));
        }
        let arrive = world.flying.iter().enumerate().filter(|(_, message)| world.can_arrive(message));
        events.extend(arrive.map(|(index, _)| Event::Deliver(index)));
        for index in 0..world.answers.len() {
            events.extend([true, false].map(|in_time| Event::Answer(index, in_time)));
        }
        events.extend((1..world.shards.len()).filter(|slot| world.is_away(*slot)).map(Event::Back));
        if usize::from(world.plan) + 1 < setup.plans.len() {
            events.push(Event::Replan);
        }
        if world.faults < setup.most_faults {
            world.faults(setup, events);
        }
    }

    fn next_state(&self, world: &World, event: Event) -> Option<World> {
        let mut next = world.clone();
        next.happen(&self.setup, event).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        self.laws.iter().map(|law| law.property()).collect()
    }
}
