//! The embedded store: the kernels under a lock a key.

use super::keyed::{Keyed, Pin, Tracked};
use crate::clock::Micros;
use crate::flow::Line;
use crate::kernel::{Batch, Header, State, Verdict, state};
use crate::limit::Share;

/// The state of all keys under one named limit.
pub(crate) struct LocalStore {
    pub share: Share,
    keys: Keyed<Cell>,
}

/// One key: what the kernel remembers, and the calls that wait for it.
#[derive(Default)]
pub(crate) struct Cell {
    state: Option<State>,
    pub line: Line,
}

/// Where a call goes: to a key that has to be looked up, or to one that is held.
#[derive(Clone, Copy)]
pub(crate) enum Place<'a> {
    Key { hash: u64, key: &'a [u8] },
    Pinned(&'a Pin<Cell>),
}

impl LocalStore {
    pub(crate) fn new(share: Share, max_keys: usize) -> Self {
        Self { share, keys: Keyed::new(max_keys) }
    }

    pub(crate) fn place<'a>(&self, key: &'a [u8]) -> Place<'a> {
        Place::Key { hash: self.keys.hash(key), key }
    }

    /// Works on the cell of a key, tracked or shared by overflow.
    pub(crate) fn with<R>(&self, place: Place<'_>, now: Micros, work: impl FnOnce(&mut Cell) -> R) -> R {
        match place {
            Place::Key { hash, key } => self.keys.with(hash, key, &(self.share, now), work),
            Place::Pinned(pin) => pin.with(work),
        }
    }

    /// Works on the cell of a key if it has one of its own.
    pub(crate) fn with_own<R>(&self, place: Place<'_>, work: impl FnOnce(&mut Cell) -> R) -> Option<R> {
        match place {
            Place::Key { hash, key } => self.keys.with_tracked(hash, key, work),
            Place::Pinned(pin) => Some(pin.with(work)),
        }
    }

    /// The cell that an untracked key would begin with.
    pub(crate) fn first_cell(&self, place: Place<'_>) -> Cell {
        self.keys.first_value(place.hash())
    }

    pub(crate) fn pin(&self, place: Place<'_>) -> Pin<Cell> {
        self.keys.pin(place.hash(), place.key())
    }

    #[cfg(test)]
    pub(crate) fn tracked(&self) -> usize {
        self.keys.len()
    }
}

impl<'a> Place<'a> {
    pub(crate) fn hash(&self) -> u64 {
        match self {
            Self::Key { hash, .. } => *hash,
            Self::Pinned(pin) => pin.hash(),
        }
    }

    fn key(&self) -> &'a [u8] {
        match self {
            Self::Key { key, .. } => key,
            Self::Pinned(pin) => pin.key(),
        }
    }
}

impl Cell {
    pub(crate) fn run(&mut self, share: &Share, now: Micros, batch: &Batch<'_>, verdicts: &mut [Verdict]) -> Header {
        state::run(&mut self.state, share, now, batch, verdicts)
    }
}

impl Tracked for Cell {
    type Context = (Share, Micros);

    fn is_idle(&mut self, (share, now): &(Share, Micros)) -> bool {
        self.line.is_empty() && state::is_as_new(&mut self.state, share, *now)
    }

    fn heir(&self) -> Self {
        Self { state: self.state.clone(), line: Line::default() }
    }
}
