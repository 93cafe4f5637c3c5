//! The embedded store: the kernels under a lock a key.

use std::ops::Deref;

use super::keyed::{Closure, Keyed, Pin, Tracked, Work};
use crate::clock::Clock;
use crate::flow::Line;
use crate::kernel::{Ask, Batch, Header, State, Verdict, state};
use crate::limit::Share;

/// The state of all keys under one named limit.
pub(crate) struct LocalStore {
    pub share: Share,
    pub clock: Clock,
    keys: Keyed<Cell>,
}

/// One key: what the kernel remembers, and the calls that wait for it.
#[derive(Default)]
pub(crate) struct Cell {
    state: Option<State>,
    pub line: Line,
}

/// Where a call goes: to a key that has to be looked up, or to one that is held.
pub(crate) trait Place: Copy {
    fn hash(&self) -> u64;
    fn key(&self) -> &[u8];
    /// Works on the cell of the key, its own or one that it shares by overflow.
    fn work<W: Work<Cell>>(&self, store: &LocalStore, work: W) -> W::Output;
    fn with<R>(&self, store: &LocalStore, work: impl FnOnce(&mut Cell) -> R) -> R {
        self.work(store, Closure(work))
    }
    /// Works on the cell of the key if it has one of its own.
    fn with_own<R>(&self, store: &LocalStore, work: impl FnOnce(&mut Cell) -> R) -> Option<R>;
}

/// A key to look up.
#[derive(Clone, Copy)]
pub(crate) struct Lookup<'a> {
    hash: u64,
    key: &'a [u8],
}

impl LocalStore {
    pub(crate) fn new(share: Share, clock: Clock, max_keys: usize) -> Self {
        Self { share, clock, keys: Keyed::new(max_keys) }
    }

    #[inline(always)]
    pub(crate) fn look_up<'a>(&self, key: &'a [u8]) -> Lookup<'a> {
        Lookup { hash: self.keys.hash(key), key }
    }

    /// The cell that an untracked key would begin with.
    pub(crate) fn first_cell(&self, place: impl Place) -> Cell {
        self.keys.first_value(place.hash())
    }

    pub(crate) fn pin(&self, place: impl Place) -> Pin<Cell> {
        self.keys.pin(place.hash(), place.key(), (&self.share, &self.clock))
    }

    pub(crate) fn release(&self, pin: Pin<Cell>) {
        self.keys.release(pin, (&self.share, &self.clock));
    }

    /// Held for as long as the guard lives.
    pub(crate) fn pinned(&self, place: impl Place) -> Pinned<'_> {
        Pinned { store: self, pin: Some(self.pin(place)) }
    }
}

/// A key that is held for a while.
pub(crate) struct Pinned<'a> {
    store: &'a LocalStore,
    /// Taken only when it is dropped.
    pin: Option<Pin<Cell>>,
}

impl Deref for Pinned<'_> {
    type Target = Pin<Cell>;

    fn deref(&self) -> &Pin<Cell> {
        self.pin.as_ref().expect("taken only when it is dropped")
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        if let Some(pin) = self.pin.take() {
            self.store.release(pin);
        }
    }
}

impl Place for Lookup<'_> {
    #[inline(always)]
    fn hash(&self) -> u64 {
        self.hash
    }

    fn key(&self) -> &[u8] {
        self.key
    }

    #[inline(always)]
    fn work<W: Work<Cell>>(&self, store: &LocalStore, work: W) -> W::Output {
        store.keys.work(self.hash, self.key, (&store.share, &store.clock), work)
    }

    fn with_own<R>(&self, store: &LocalStore, work: impl FnOnce(&mut Cell) -> R) -> Option<R> {
        store.keys.with_tracked(self.hash, self.key, work)
    }
}

impl Place for &Pin<Cell> {
    #[inline(always)]
    fn hash(&self) -> u64 {
        Pin::hash(self)
    }

    fn key(&self) -> &[u8] {
        Pin::key(self)
    }

    #[inline(always)]
    fn work<W: Work<Cell>>(&self, _: &LocalStore, work: W) -> W::Output {
        Pin::work(self, work)
    }

    fn with_own<R>(&self, _: &LocalStore, work: impl FnOnce(&mut Cell) -> R) -> Option<R> {
        Some(Pin::with(self, work))
    }
}

/// The clock is read under the lock: a thread that was held up between the two would look like a clock that was set
/// back. It costs nothing, because the processor looks up the key meanwhile.
impl Cell {
    pub(crate) fn run(&mut self, share: &Share, clock: &Clock, batch: &Batch<'_>) -> Header {
        state::run(&mut self.state, share, clock.now(), batch, &mut [])
    }

    /// One ask as a batch of its own. With a count of 0 it charges nothing and tells what is lacking.
    #[inline(always)]
    pub(crate) fn ask(&mut self, share: &Share, clock: &Clock, ask: Ask) -> (Header, Verdict) {
        state::run_one(&mut self.state, share, clock.now(), ask)
    }
}

impl Tracked for Cell {
    type Context<'a> = (&'a Share, &'a Clock);

    fn is_idle(&mut self, (share, clock): Self::Context<'_>) -> bool {
        self.line.is_empty() && state::is_as_new(&mut self.state, share, clock.now())
    }

    fn heir(&self) -> Self {
        Self { state: self.state.clone(), line: Line::default() }
    }

    fn absorb(&mut self, other: Self, (share, clock): Self::Context<'_>) {
        state::absorb(&mut self.state, other.state, share, clock.now());
    }
}
