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
            Fault::Crash => {
                self.flying.give_up(of);
                let Client { told, ids, .. } = self.clients[of];
                self.clients[of] = Client::new(setup, told, ids);
            }
            Fault::WipeShare => self.shards[of] = Server::new(None),
            Fault::WipeNewShare => {
                self.account.allow(self.shards[of].key.and_then(|key| key.held()).map_or(0, |held| held.share.burst));
                self.shards[of] = Server::new(None);
            }
            Fault::WipeHome => {
                self.account.allow(self.largest(setup).burst());
                self.home = Server::new(None);
            }
            Fault::FailShard => {
                let before = self.shards[of].before.take().and_then(|before| *before);
                for key in [self.shards[of].key, before].into_iter().flatten() {
                    self.account.allow(key.held().map_or(0, |held| held.share.burst));
                }
                self.shards[of].key = before;
            }
            Fault::FailHome => {
                let before = self.home.before.take().and_then(|before| *before);
                self.allow_lost(setup, before.as_ref());
                let lost = std::mem::replace(&mut self.home.key, before);
                self.allow_installed_again(setup, lost.as_ref());
            }
        }
    }

    /// The client of a request that was lost, or took too long.
    fn unheard(&mut self, message: &Message) {
        if !message.awaited {
            return;
        }
        let client = &mut self.clients[message.client];
        match &message.request {
            Request::Install { id, .. } | Request::Close { id, .. } => client.hear_shard(*id, None),
            Request::Home(_) => client.fail(),
        }
    }

    /// All that can go wrong now.
    pub(super) fn faults(&self, setup: &Setup, events: &mut Vec<Event>) {
        for fault in setup.faults {
            let possible: Vec<usize> = match fault {
                Fault::Lose | Fault::Repeat => (0..self.flying.len()).collect(),
                Fault::Late => (0..self.clients.len()).filter(|client| self.flying.awaited_by(*client)).collect(),
                Fault::Crash => {
                    let fresh = |client: &Client| !client.heard && client.attempt.is_none();
                    (0..self.clients.len()).filter(|client| !fresh(&self.clients[*client])).collect()
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
