//! The embedded store: the kernels under a lock a key.

use super::keyed::{Closure, Keyed, Pin, Tracked, Work};
use crate::clock::{Clock, Micros};
use crate::flow::Line;
use crate::kernel::{Ask, Batch, Header, State, Verdict, state};
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
pub(crate) trait Place: Copy {
    fn hash(&self) -> u64;
    fn key(&self) -> &[u8];
    /// Works on the cell of the key, its own or one that it shares by overflow.
    fn work<W: Work<Cell>>(&self, store: &LocalStore, now: Micros, work: W) -> W::Output;
    fn with<R>(&self, store: &LocalStore, now: Micros, work: impl FnOnce(&mut Cell) -> R) -> R {
        self.work(store, now, Closure(work))
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
    pub(crate) fn new(share: Share, max_keys: usize) -> Self {
        Self { share, keys: Keyed::new(max_keys) }
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
        self.keys.pin(place.hash(), place.key())
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
    fn work<W: Work<Cell>>(&self, store: &LocalStore, now: Micros, work: W) -> W::Output {
        store.keys.work(self.hash, self.key, (&store.share, now), work)
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
    fn work<W: Work<Cell>>(&self, _: &LocalStore, _: Micros, work: W) -> W::Output {
        Pin::work(self, work)
    }

    fn with_own<R>(&self, _: &LocalStore, work: impl FnOnce(&mut Cell) -> R) -> Option<R> {
        Some(Pin::with(self, work))
    }
}

impl Cell {
    pub(crate) fn run(&mut self, share: &Share, clock: &Clock, now: Micros, batch: &Batch<'_>) -> Header {
        let now = self.time(clock, now);
        state::run(&mut self.state, share, now, batch, &mut [])
    }

    /// One ask as a batch of its own. With a count of 0 it charges nothing and tells what is lacking.
    #[inline(always)]
    pub(crate) fn ask(&mut self, share: &Share, clock: &Clock, now: Micros, ask: Ask) -> (Header, Verdict) {
        let now = self.time(clock, now);
        state::run_one(&mut self.state, share, now, ask)
    }

    /// `now` was read before the cell was locked. A thread that was held up between the two would look like a clock that
    /// was set back, so it reads the clock again.
    #[inline(always)]
    fn time(&self, clock: &Clock, now: Micros) -> Micros {
        if self.knows_later(now) { clock.now() } else { now }
    }

    #[inline(always)]
    fn knows_later(&self, now: Micros) -> bool {
        self.state.as_ref().is_some_and(|state| state.seen() > now)
    }
}

impl Tracked for Cell {
    type Context<'a> = (&'a Share, Micros);

    fn is_idle(&mut self, (share, now): Self::Context<'_>) -> bool {
        self.line.is_empty() && !self.knows_later(now) && state::is_as_new(&mut self.state, share, now)
    }

    fn heir(&self) -> Self {
        Self { state: self.state.clone(), line: Line::default() }
    }
}
