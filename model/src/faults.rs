//! What goes wrong, and what that may cost.

use super::client::Client;
use super::message::{Message, Request};
use super::server::Server;
use super::setup::{Fault, Setup};
use super::world::{Event, World};

impl World {
    /// The server, client or message that a fault befalls is `of`.
    pub(super) fn fail(&mut self, setup: &Setup, fault: Fault, of: usize) {
        self.account.forgot |=
            matches!(fault, Fault::WipeNewShare | Fault::WipeHome | Fault::FailShard | Fault::FailHome);
        match fault {
            Fault::Lose => {
                let message = self.flying.take(of);
                self.unheard(&message);
            }
            Fault::Late => {
                for message in self.flying.give_up(of) {
                    self.unheard(&message);
                }
            }
            Fault::Repeat => {
                let message = self.flying.take(of);
                self.deliver(setup, &message);
                self.flying.send(Message { awaited: false, ..message });
            }
            Fault::Crash => self.restart(setup, of, self.clients[of].told),
            Fault::Replace => self.restart(setup, of, 0),
            Fault::Cut => self.away |= 1 << of,
            Fault::LateCall => self.answer_late(setup, of / self.shards.len(), of % self.shards.len()),
            Fault::WipeShare => self.shards[of] = Server::new(None),
            Fault::WipeNewShare => {
                let burst = self.shards[of].key.and_then(|key| key.held()).map_or(0, |held| held.share.burst);
                self.at_most(setup, burst, |world| world.shards[of] = Server::new(None));
            }
            Fault::WipeHome => {
                let burst = self.largest(setup).burst();
                self.at_most(setup, burst, |world| world.home = Server::new(None));
            }
            Fault::FailShard => {
                let before = self.shards[of].before.take().and_then(|before| *before);
                let held = [self.shards[of].key, before].into_iter().flatten().filter_map(|key| key.held());
                let burst = held.map(|held| held.share.burst).max().unwrap_or(0);
                self.at_most(setup, burst, |world| world.shards[of].key = before);
            }
            Fault::FailHome => {
                let before = self.home.before.take().and_then(|before| *before);
                self.allow_lost(setup, before.as_ref());
                let lost = std::mem::replace(&mut self.home.key, before);
                self.allow_installed_again(setup, lost.as_ref());
            }
        }
    }

    /// Something is forgotten: what anybody can spend more than before is allowed, up to so many permits.
    fn at_most(&mut self, setup: &Setup, permits: u64, forget: impl FnOnce(&mut Self)) {
        let before = self.spendable(setup);
        forget(self);
        self.account.allow_more(self.spendable(setup) - before, permits);
    }

    fn restart(&mut self, setup: &Setup, client: usize, told: u8) {
        self.flying.give_up(client);
        self.answers.retain(|answer| answer.client != client);
        self.clients[client] = Client::new(setup, told, self.clients[client].ids);
    }

    /// The client of a request that was lost, or took too long.
    pub(super) fn unheard(&mut self, message: &Message) {
        if !message.awaited {
            return;
        }
        let client = &mut self.clients[message.client];
        match &message.request {
            Request::Install { id, .. } | Request::Close { id, .. } => client.hear_shard(*id, None),
            Request::Home(_) => client.fail(),
            Request::Refund { .. } => {}
        }
    }

    /// All that can go wrong now.
    pub(super) fn faults(&self, setup: &Setup, events: &mut Vec<Event>) {
        for fault in setup.faults {
            let possible: Vec<usize> = match fault {
                Fault::Lose => (0..self.flying.len()).collect(),
                // A refund is never sent again: it may have been carried out.
                Fault::Repeat => {
                    let steps = self.flying.iter().enumerate();
                    let steps = steps.filter(|(_, message)| !matches!(message.request, Request::Refund { .. }));
                    steps.map(|(index, _)| index).collect()
                }
                Fault::Late => (0..self.clients.len()).filter(|client| self.flying.awaited_by(*client)).collect(),
                Fault::Crash | Fault::Replace => {
                    let fresh = |client: &Client| !client.heard && client.attempt.is_none();
                    (0..self.clients.len()).filter(|client| !fresh(&self.clients[*client])).collect()
                }
                Fault::Cut => (1..self.shards.len()).filter(|slot| !self.is_away(*slot)).collect(),
                Fault::LateCall => {
                    let calls = 0..self.clients.len() * self.shards.len();
                    let of = |call| (call / self.shards.len(), call % self.shards.len());
                    calls.filter(|call| self.says_something(setup, of(*call).0, of(*call).1)).collect()
                }
                Fault::WipeShare => self.wipeable(|slot| !self.may_be_installed(setup, slot)),
                Fault::WipeNewShare => self.wipeable(|slot| self.may_be_installed(setup, slot)),
                Fault::WipeHome => self.home.key.iter().map(|_| 0).collect(),
                Fault::FailShard => self.wipeable(|slot| self.shards[slot].before.is_some()),
                Fault::FailHome => self.home.before.iter().map(|_| 0).collect(),
            };
            events.extend(possible.into_iter().map(|of| Event::Fault(*fault, of)));
        }
    }

    fn wipeable(&self, may: impl Fn(usize) -> bool) -> Vec<usize> {
        (1..self.shards.len()).filter(|slot| self.shards[*slot].key.is_some() && may(*slot)).collect()
    }
}
