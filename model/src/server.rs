//! What servers hold.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::clock::Micros;
use crate::kernel::bucket::Bucket;
use crate::kernel::{Batch, State};
use crate::limit::{BucketShare, Share};
use crate::sync::Arc;
use crate::wire::{GrantId, Kind, Ledger, pack, unpack};

/// The one key of a server that matters here.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Server<T> {
    pub key: Option<T>,
    /// As it was before the last write: what a replica has that has not seen that one. None if nobody will ask.
    pub before: Option<Box<Option<T>>>,
    /// When the last write was, if anybody will ask.
    pub written: u8,
}

impl<T> Server<T> {
    pub(super) fn new(key: Option<T>) -> Self {
        Self { key, before: None, written: 0 }
    }

    /// It is remembered at this time what was there before; or not at all.
    pub(super) fn write(&mut self, key: Option<T>, remember: Option<u8>) {
        let before = std::mem::replace(&mut self.key, key);
        self.before = remember.map(|_| Box::new(before));
        self.written = remember.unwrap_or(0);
    }
}

/// A ledger and its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub id: GrantId,
    pub ledger: Ledger,
    /// Of both: states are compared by it millions of times.
    print: u64,
}

impl Known {
    pub(super) fn new(id: GrantId, ledger: Ledger) -> Arc<Self> {
        let mut hasher = DefaultHasher::new();
        (id, ledger.encode()).hash(&mut hasher);
        Arc::new(Self { id, ledger, print: hasher.finish() })
    }
}

impl Hash for Known {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_u64(self.print);
    }
}

/// A share and how much of it is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub share: BucketShare,
    pub bucket: Bucket,
}

impl Hash for Held {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let Self { share, bucket } = self;
        (share.rate, share.cost, share.burst, bucket.level, bucket.seen).hash(hasher);
    }
}

impl Held {
    pub(super) fn new(share: Share, state: State) -> Self {
        match (share, state) {
            (Share::Bucket(share), State::Bucket(bucket)) => Self { share, bucket },
            other => panic!("the model knows buckets only, not {other:?}"),
        }
    }

    /// As a kernel leaves it that was asked for nothing.
    pub(super) fn at(self, now: Micros) -> Self {
        let mut state = Some(State::Bucket(self.bucket));
        crate::kernel::state::run(&mut state, &Share::Bucket(self.share), now, &Batch::default(), &mut []);
        Self::new(Share::Bucket(self.share), state.expect("a run leaves a state"))
    }

    /// Of what does not refill until it is installed or returned, nobody asks when that was.
    pub(super) fn undated(mut self) -> Self {
        self.bucket.seen = 0;
        self
    }

    pub(super) fn parts(self) -> (Share, State) {
        (Share::Bucket(self.share), State::Bucket(self.bucket))
    }

    pub(super) fn pack(self, kind: Kind, id: GrantId) -> Vec<u8> {
        let (share, state) = self.parts();
        pack(kind, id, &share, Some(&state), &[])
    }

    /// What a sub-key was packed from.
    pub(super) fn unpack(bytes: &[u8]) -> (GrantId, Self) {
        let packed = unpack(bytes);
        (packed.id, Self::new(packed.share, packed.state))
    }
}

/// Home's sub-key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Home {
    pub known: Arc<Known>,
    pub held: Held,
    /// The shares that came back to it, ever.
    pub returned: Vec<GrantId>,
}

/// The sub-key of a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum SubKey {
    Lent(GrantId, Held),
    /// None: nothing was there to be closed.
    Tombstone(GrantId, Option<Held>),
}

impl SubKey {
    pub(super) fn id(&self) -> GrantId {
        match self {
            Self::Lent(id, _) | Self::Tombstone(id, _) => *id,
        }
    }

    pub(super) fn held(&self) -> Option<Held> {
        match self {
            Self::Lent(_, held) => Some(*held),
            Self::Tombstone(_, held) => *held,
        }
    }
}
