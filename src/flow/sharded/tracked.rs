//! One segment of the keys that a process knows, and what is kept of each.

use std::collections::VecDeque;

use hashbrown::HashTable;

use super::SharedLimit;
use super::call::SILENCE;
use super::ceiling::Shut;
use super::counts::Counts;
use super::entry::Entry;
use super::losses::Lost;
use super::meter::Meter;
use crate::clock::Micros;
use crate::plan::{Definition, SET_KEY};
use crate::sync::Arc;
use crate::sync::atomic::Ordering;

/// Keys that a full segment looks at for each new one.
const SWEEP: usize = 8;
/// Of so many keys that a segment may have, one that is planned and idle stays whole,
const WHOLE: usize = 256;
/// and at least so many: keys that are called one after the other are not packed in between.
const LEAST_WHOLE: usize = 4;
/// Entries that are looked at for each new one, under the lock,
pub(super) const LOOKS: usize = 4;
/// of which so many are packed: as many come as go, and one more where many were in use at once.
const PACKS: usize = 2;
/// Definitions that a segment has its keys share: that of its limit nearly always, and some by which others go.
const DEFINITIONS: usize = 4;

pub(super) struct Segment {
    pub table: HashTable<Tracked>,
    /// How often its keys came to lie elsewhere in the table.
    pub moved: usize,
    bound: usize,
    hand: usize,
    /// Hashes of the keys with a plan that have an entry, whether anybody uses it or not. The first was looked at the longest ago.
    whole: VecDeque<u64>,
    definitions: VecDeque<Arc<Definition>>,
    /// For bytes that are about to be kept.
    scratch: Vec<u8>,
}

/// 48 bytes, and those of the key and its plan.
pub(super) struct Tracked {
    hash: u64,
    /// The key; and behind it its plan, if it is planned.
    bytes: Box<[u8]>,
    state: Tracking,
}

const _: () = assert!(size_of::<Tracked>() == 48);

pub(super) enum Tracking {
    /// By calls, tasks, leases or handles, or there is more to keep than has room here.
    InUse(Arc<Entry>),
    /// Idle, and not split: home tells everything else with its next answer.
    Idle {
        /// Until then no ask can be granted, by this process's clock,
        shut_until: Micros,
        /// and for about so many seconds more, if nothing comes back but by time: see [`Shut::short`].
        further: u16,
        /// In case that home does not answer.
        lately: Meter,
    },
    /// Idle, and its shard does not answer, or did not a moment ago: what calls are decided by, and what it owes.
    Without { shut_until: Micros, further: u16, counts: Arc<Counts> },
    /// Idle, with a plan: see [`planned`](super::planned).
    Planned {
        shut_until: Micros,
        further: u16,
        definition: Arc<Definition>,
        /// The length of the key: the plan stands behind it.
        key: u16,
    },
}

/// A key as it was found.
pub(super) enum Found {
    InUse(Arc<Entry>),
    /// It was idle, and is in use from now on: its calls are decided without its shard.
    Without(Arc<Entry>),
    /// Worth no question until then.
    Idle(Shut),
}

/// What nobody needs any more, to be dropped when the lock is free.
#[derive(Default)]
pub(super) struct Left {
    swept: Option<Tracked>,
    /// One that found no room.
    pub stray: Option<Arc<Entry>>,
    entries: [Option<Arc<Entry>>; PACKS],
    count: usize,
    /// There are still too many whole ones.
    pub is_crowded: bool,
}

impl Left {
    /// How many fell idle.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    fn add(&mut self, entry: Arc<Entry>) {
        self.entries[self.count] = Some(entry);
        self.count += 1;
    }
}

impl Segment {
    pub(super) fn new(bound: usize) -> Self {
        let (table, whole, definitions, scratch) = Default::default();
        Self { table, moved: 0, bound, hand: 0, whole, definitions, scratch }
    }

    pub(super) fn find(&mut self, limit: &SharedLimit, hash: u64, key: &[u8]) -> Found {
        let Some(tracked) = self.table.find_mut(hash, |tracked| tracked.key() == key) else {
            return Found::Idle(Shut::default());
        };
        match &tracked.state {
            Tracking::InUse(_) => Found::InUse(tracked.entry(limit)),
            Tracking::Without { .. } => Found::Without(tracked.entry(limit)),
            Tracking::Idle { shut_until, further, .. } | Tracking::Planned { shut_until, further, .. } => {
                Found::Idle(Shut::of_short(*shut_until, *further))
            }
        }
    }

    pub(super) fn entry(&mut self, limit: &SharedLimit, hash: u64, key: &[u8], left: &mut Left) -> Arc<Entry> {
        if let Some(tracked) = self.table.find_mut(hash, |tracked| tracked.key() == key) {
            let was_planned = matches!(tracked.state, Tracking::Planned { .. });
            let entry = tracked.entry(limit);
            if was_planned {
                self.list(limit, &entry, left);
            } else {
                // Where many were in use at once, nobody new may come for long.
                self.make_room(limit, PACKS, left);
            }
            return entry;
        }
        let has_room = self.table.len() < self.bound || self.sweep(left);
        let entry = Arc::new(Entry::new(limit, key, hash, None, has_room));
        if has_room {
            self.insert(Tracked { hash, bytes: key.into(), state: Tracking::InUse(Arc::clone(&entry)) });
        }
        entry
    }

    /// Keys that went leave marks in the table, and for want of places without one it would grow to twice its size. If many places
    /// are free but for marks, it is filled anew instead.
    fn insert(&mut self, tracked: Tracked) {
        let (keys, buckets) = (self.table.len(), self.table.num_buckets());
        if keys == self.table.capacity() && keys < buckets / 4 * 3 {
            let mut table = HashTable::with_capacity(keys + 1);
            for tracked in self.table.drain() {
                table.insert_unique(tracked.hash, tracked, |tracked| tracked.hash);
            }
            self.table = table;
            self.moved += 1;
        }
        self.table.insert_unique(tracked.hash, tracked, |tracked| tracked.hash);
        self.moved += usize::from(self.table.num_buckets() > buckets);
    }

    pub(super) fn let_go(&mut self, limit: &SharedLimit, entry: Arc<Entry>, is_planned: bool, left: &mut Left) {
        let hash = entry.owner;
        let Some(tracked) = self.table.find_mut(hash, |tracked| tracked.is(&entry)) else {
            left.stray = Some(entry);
            return;
        };
        if is_planned || entry.is_listed.load(Ordering::Relaxed) {
            if !entry.is_listed.load(Ordering::Relaxed) {
                return self.list(limit, &entry, left);
            }
            drop(entry);
            if self.has_too_many() && self.pack(limit, hash, left) {
                self.whole.retain(|other| *other != hash);
            }
            left.is_crowded = self.has_too_many();
            return;
        }
        // Under the lock, so that of several who let go at once one is the last.
        drop(entry);
        if let Some(idle) = tracked.last().and_then(|entry| limit.idle(entry)) {
            left.add(tracked.fall(idle));
        }
    }

    /// One more entry with a plan; others make room for it.
    fn list(&mut self, limit: &SharedLimit, entry: &Entry, left: &mut Left) {
        entry.is_listed.store(true, Ordering::Relaxed);
        self.whole.push_back(entry.owner);
        self.make_room(limit, LOOKS, left);
        left.is_crowded = self.has_too_many();
    }

    /// Packs keys that were not looked for lately, as long as there are too many whole ones, and so many were not looked at.
    pub(super) fn make_room(&mut self, limit: &SharedLimit, looks: usize, left: &mut Left) {
        for _ in 0..looks {
            if left.count == PACKS || !self.has_too_many() {
                return;
            }
            let Some(hash) = self.whole.pop_front() else { return };
            if !self.pack(limit, hash, left) {
                self.whole.push_back(hash);
            }
        }
    }

    /// As often room has to be made until all whole ones were looked at; not at all if they are not too many.
    pub(super) fn looks(&self) -> usize {
        if self.has_too_many() { self.whole.len().div_ceil(LOOKS) } else { 0 }
    }

    pub(super) fn has_too_many(&self) -> bool {
        self.whole.len() > (self.bound / WHOLE).max(LEAST_WHOLE)
    }

    /// Packs a key that nobody uses. `false`: it has to stay as it is for now.
    fn pack(&mut self, limit: &SharedLimit, hash: u64, left: &mut Left) -> bool {
        // One that is not among them any more has fallen idle in another way.
        let Some(tracked) = self.table.find_mut(hash, |tracked| tracked.hash == hash && tracked.is_listed()) else {
            return true;
        };
        let Some(entry) = tracked.last() else { return false };
        // Whoever was looked for stays for another round.
        if entry.is_found.swap(false, Ordering::Relaxed) {
            return false;
        }
        let now = limit.clock.now();
        if !entry.has_plan() && !entry.is_to_wait(now) {
            // Its shares have come home.
            let Some(idle) = limit.idle(entry) else { return false };
            left.add(tracked.fall(idle));
            return true;
        }
        if !entry.is_plain(now) {
            return false;
        }
        self.scratch.clear();
        self.scratch.extend(&entry.key);
        entry.pack(now, &mut self.scratch);
        let (shut_until, further) = limit.shut_while_planned(entry, now).short();
        let planned = Tracking::Planned {
            shut_until,
            further,
            definition: share(&mut self.definitions, &entry.load().ledger.definition),
            key: entry.key.len() as u16,
        };
        tracked.bytes = self.scratch.as_slice().into();
        left.add(tracked.fall(planned));
        true
    }

    /// Makes room for another key.
    fn sweep(&mut self, left: &mut Left) -> bool {
        let buckets = self.table.num_buckets();
        let mut seen = 0;
        for _ in 0..buckets {
            self.hand = (self.hand + 1) % buckets;
            let Ok(tracked) = self.table.get_bucket_entry(self.hand) else { continue };
            if tracked.get().is_of_no_use() {
                let (tracked, _) = tracked.remove();
                if tracked.is_listed() {
                    self.whole.retain(|hash| *hash != tracked.hash);
                }
                left.swept = Some(tracked);
                return true;
            }
            seen += 1;
            if seen == SWEEP {
                break;
            }
        }
        false
    }
}

/// The same definition, shared with the other keys that have it. One that is a single key's own is nobody else's.
fn share(definitions: &mut VecDeque<Arc<Definition>>, definition: &Definition) -> Arc<Definition> {
    if let Some(known) = definitions.iter().find(|known| ***known == *definition) {
        return Arc::clone(known);
    }
    let shared = Arc::new(*definition);
    if definition.revision < SET_KEY {
        definitions.truncate(DEFINITIONS - 1);
        definitions.push_front(Arc::clone(&shared));
    }
    shared
}

impl Tracked {
    pub(super) fn key(&self) -> &[u8] {
        match self.state {
            Tracking::Planned { key, .. } => &self.bytes[..key.into()],
            Tracking::InUse(_) | Tracking::Idle { .. } | Tracking::Without { .. } => &self.bytes,
        }
    }

    /// In use from now on.
    fn entry(&mut self, limit: &SharedLimit) -> Arc<Entry> {
        let idle = |counts, shut_until, further| {
            let entry = Entry::new(limit, &self.bytes, self.hash, Some(counts), true);
            entry.take_over(limit.clock.now(), Shut::of_short(shut_until, further));
            entry
        };
        let entry = match &self.state {
            Tracking::InUse(entry) => {
                entry.is_found.store(true, Ordering::Relaxed);
                return Arc::clone(entry);
            }
            Tracking::Idle { shut_until, further, lately } => idle(limit.counts(*lately), *shut_until, *further),
            Tracking::Without { shut_until, further, counts } => idle(Arc::clone(counts), *shut_until, *further),
            Tracking::Planned { shut_until, further, definition, key } => {
                let (key, plan) = self.bytes.split_at((*key).into());
                let shut = Shut::of_short(*shut_until, *further);
                Entry::unpack(limit, (key, self.hash), definition, plan, shut)
            }
        };
        let entry = Arc::new(entry);
        if self.key().len() < self.bytes.len() {
            self.bytes = self.key().into();
        }
        self.state = Tracking::InUse(Arc::clone(&entry));
        entry
    }

    fn is(&self, entry: &Arc<Entry>) -> bool {
        matches!(&self.state, Tracking::InUse(known) if Arc::ptr_eq(known, entry))
    }

    fn is_listed(&self) -> bool {
        matches!(&self.state, Tracking::InUse(entry) if entry.is_listed.load(Ordering::Relaxed))
    }

    /// Its entry, if nobody uses that.
    fn last(&mut self) -> Option<&Entry> {
        match &mut self.state {
            // Whoever let go of it outside of the lock is through with it.
            Tracking::InUse(entry) => Arc::get_mut(entry).map(|entry| &*entry),
            Tracking::Idle { .. } | Tracking::Without { .. } | Tracking::Planned { .. } => None,
        }
    }

    /// Gives its entry out, and keeps this instead.
    fn fall(&mut self, idle: Tracking) -> Arc<Entry> {
        match std::mem::replace(&mut self.state, idle) {
            Tracking::InUse(entry) => entry,
            Tracking::Idle { .. } | Tracking::Without { .. } | Tracking::Planned { .. } => {
                unreachable!("only an entry falls idle")
            }
        }
    }

    /// Calls, tasks, leases and handles each hold on to an entry, and who owes something, or gets something back, is not let go.
    fn is_of_no_use(&self) -> bool {
        match &self.state {
            Tracking::InUse(entry) => Arc::strong_count(entry) == 1 && !entry.owes() && !entry.is_returning(),
            Tracking::Idle { .. } | Tracking::Planned { .. } => true,
            Tracking::Without { counts, .. } => !counts.fallback.owes(),
        }
    }

    /// Whether something is to be charged or given to its shards, or on its way.
    pub(super) fn has_left(&self) -> bool {
        match &self.state {
            Tracking::InUse(entry) => entry.owes() || entry.is_returning(),
            Tracking::Idle { .. } | Tracking::Planned { .. } => false,
            Tracking::Without { counts, .. } => counts.fallback.owes(),
        }
    }

    /// Whether something waits to be given back to a shard of it.
    pub(super) fn has_kept(&self) -> bool {
        matches!(&self.state, Tracking::InUse(entry) if entry.load().lanes.iter().any(|lane| lane.has_kept()))
    }

    /// At the end: what is lost of it.
    pub(super) fn write_off(&self) -> Lost {
        match &self.state {
            Tracking::InUse(entry) => entry.write_off(),
            Tracking::Idle { .. } | Tracking::Planned { .. } => Lost::default(),
            Tracking::Without { counts, .. } => Lost::uncharged(counts.fallback.take_owed()),
        }
    }

    /// Whether its shard is away, or there is something to be charged or given to it; and whether that can be tried now. One whose shard
    /// has been back for long enough is as idle as any other from now on.
    pub(super) fn is_behind(&mut self, now: Micros) -> Option<bool> {
        match &self.state {
            Tracking::InUse(entry) => entry.is_behind(now),
            Tracking::Idle { .. } | Tracking::Planned { .. } => None,
            Tracking::Without { counts, .. } if counts.fallback.owes() => Some(counts.health.is_worth_a_try(now)),
            Tracking::Without { counts, .. } if counts.is_in_use(now) => Some(false),
            Tracking::Without { counts, shut_until, further } => {
                let (shut_until, further, lately) = (*shut_until, *further, counts.fallback.lately());
                self.state = Tracking::Idle { shut_until, further, lately };
                None
            }
        }
    }
}

impl SharedLimit {
    /// What is kept of a key that is not split; none if somebody has left it something since.
    fn idle(&self, entry: &Entry) -> Option<Tracking> {
        if entry.has_plan() || entry.load().home().has_kept() {
            return None;
        }
        entry.debts_come_home();
        let now = self.clock.now();
        // Not for longer than it would go without a word from home in use: the limit may be raised meanwhile.
        let shut = if self.ceiling == 0 { Shut::default() } else { entry.shut(now, now + SILENCE) };
        let (shut_until, further) = shut.short();
        Some(match entry.lately(now) {
            Ok(counts) => Tracking::Without { shut_until, further, counts },
            Err(lately) => Tracking::Idle { shut_until, further, lately },
        })
    }

    /// Until when calls on a key with a plan are denied without its entry: not for longer than it goes without a question to home.
    fn shut_while_planned(&self, entry: &Entry, now: Micros) -> Shut {
        let until = entry.asked.load(Ordering::Relaxed) + SILENCE;
        if self.ceiling == 0 { Shut::default() } else { entry.shut(now, until) }
    }
}
