//! Requests on their way. The reply to a step is heard as soon as its request has been carried out, or never: a client that hears
//! it later does just what one does that takes its next step later. Calls go on meanwhile, so their answers may be late (`calls`).

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::clock::Micros;
use crate::escrow::Write;
use crate::sync::Arc;
use crate::wire::{Grant, GrantId, Status};

/// Home's slot.
pub(super) const HOME: usize = 0;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Message {
    pub client: usize,
    /// Whether the client still waits for the reply.
    pub awaited: bool,
    pub request: Request,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Request {
    Install {
        slot: usize,
        id: GrantId,
        state: Arc<[u8]>,
        not_after: Micros,
    },
    Close {
        slot: usize,
        id: GrantId,
    },
    /// What a call was granted and came too late for comes back to where it was charged. Home takes it under any id.
    Refund {
        slot: usize,
        id: GrantId,
        permits: u64,
    },
    Home(Arc<Rewriting>),
}

/// Home is to write another ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rewriting {
    /// The id that home is expected to have.
    pub expected: Option<GrantId>,
    /// The ledger that the client knew.
    pub known: GrantId,
    /// The id of the new ledger.
    pub id: GrantId,
    /// With the new grants, which are the last ones.
    pub write: Write,
    pub new: usize,
}

impl Hash for Rewriting {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let Write { ledger, carry, deduct, back, .. } = &self.write;
        (self.expected, self.known, self.id, self.new, ledger.encode(), carry, deduct, back).hash(hasher);
    }
}

impl Request {
    /// What a client sends about a grant that is on its way: as `ask_one` of the library does.
    pub(super) fn about(grant: &Grant) -> Self {
        let (slot, id) = (usize::from(grant.slot.number()), grant.id);
        match &grant.status {
            Status::Pending { not_after, state } => {
                Self::Install { slot, id, state: state.as_slice().into(), not_after: *not_after }
            }
            Status::Live | Status::Recalled { .. } => Self::Close { slot, id },
        }
    }

    /// The shard that it goes to; none if that is home.
    pub(super) fn slot(&self) -> Option<usize> {
        match self {
            Self::Install { slot, .. } | Self::Close { slot, .. } => Some(*slot),
            Self::Refund { slot, .. } => Some(*slot).filter(|slot| *slot != HOME),
            Self::Home(_) => None,
        }
    }
}

/// All requests on their way: which was sent first makes no difference.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Flying(Vec<(u64, Message)>);

impl Flying {
    pub(super) fn send(&mut self, message: Message) {
        let mut hasher = DefaultHasher::new();
        message.hash(&mut hasher);
        let print = hasher.finish();
        let at = self.0.partition_point(|(other, _)| *other < print);
        self.0.insert(at, (print, message));
    }

    /// Nobody waits for it. One that waits to be carried out already stands for both: else whoever asks a shard that is out of
    /// reach again and again would fill the world.
    pub(super) fn leave(&mut self, message: Message) {
        let message = Message { awaited: false, ..message };
        if !self.iter().any(|other| *other == message) {
            self.send(message);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Message> {
        self.0.iter().map(|(_, message)| message)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn take(&mut self, index: usize) -> Message {
        self.0.remove(index).1
    }

    pub(super) fn awaited_by(&self, client: usize) -> bool {
        self.iter().any(|message| message.awaited && message.client == client)
    }

    /// The client does not wait any longer. What it waited for.
    pub(super) fn give_up(&mut self, client: usize) -> Vec<Message> {
        let (given_up, others) =
            self.0.drain(..).partition::<Vec<_>, _>(|(_, message)| message.awaited && message.client == client);
        self.0 = others;
        let given_up: Vec<Message> = given_up.into_iter().map(|(_, message)| message).collect();
        for message in &given_up {
            self.send(Message { awaited: false, ..message.clone() });
        }
        given_up
    }
}
