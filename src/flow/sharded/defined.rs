//! What a limit is, as this process was told; and what becomes of keys that are defined otherwise.

use std::time::SystemTime;

use super::SharedLimit;
use super::ceiling::period;
use super::entry::Entry;
use super::job::{Miss, Work};
use super::lane::is_due;
use super::moves::settle;
use super::view::View;
use crate::clock::Micros;
use crate::error::Error;
use crate::limit::{Carry, Limit, Share};
use crate::observe;
use crate::plan::{Definition, SET, SET_KEY, Shards, shards_for};
use crate::store::cluster::Fault;
use crate::sync::Arc;
use crate::sync::atomic::Ordering;
use crate::wire::{GrantId, Kind, Ledger, pack};

/// A definition, and a key under it that nobody has used yet.
pub(super) struct Defined {
    pub definition: Definition,
    /// Its ledger and that one's id.
    pub ledger: Ledger,
    pub alone: GrantId,
    /// Its home, packed.
    pub new_home: Vec<u8>,
    /// The time in which all that it holds comes back.
    pub period: Micros,
}

impl Defined {
    pub(super) fn new(definition: Definition) -> Self {
        let ledger = Ledger::new(definition);
        let alone = GrantId::of_definition(&definition);
        let whole = Share::whole(&definition.limit);
        let new_home = pack(Kind::Home, alone, &whole, None, &ledger.encode());
        Self { definition, ledger, alone, new_home, period: period(&whole) }
    }
}

/// How often a process looks whether another limit was set for all keys of a name, while it is used: in µs.
const WATCH: Micros = 1_000_000;
/// One look in so many renews the record's time to live, which is a day.
const RENEW: u32 = 256;
/// The key that stands for all keys of a limit. No caller can name it.
const RECORD: &[u8] = b"";

/// Milliseconds since 1970, by this machine's clock: the revision of a definition that says none. Of two definitions of one
/// process the later one has the higher, also within a millisecond, or if the clock was set back in between.
pub(crate) fn moment() -> u64 {
    static LAST: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = since.map_or(0, |since| since.as_millis() as u64);
    let after = |last: u64| now.max(last + 1).min(SET - 1);
    let mut last = LAST.load(Ordering::Relaxed);
    loop {
        match LAST.compare_exchange_weak(last, after(last), Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return after(last),
            Err(other) => last = other,
        }
    }
}

impl SharedLimit {
    pub(crate) fn limit(&self) -> Limit {
        self.defined.load().definition.limit
    }

    pub(super) fn defined(&self) -> Arc<Defined> {
        self.defined.load_full()
    }

    /// Refuses what no key could ever be granted, as far as is known.
    #[inline]
    pub(crate) fn check_permits(&self, permits: u64) -> Result<(), Error> {
        if permits == 0 || permits > self.largest.load(Ordering::Relaxed) {
            return self.limit().check_permits(permits);
        }
        Ok(())
    }

    /// Takes note of what a key is defined as.
    pub(super) fn compare(&self, entry: &Entry, ledger: &Ledger) {
        self.largest.fetch_max(ledger.limit().burst(), Ordering::Relaxed);
        let (mine, its) = (&self.defined.load().definition, ledger.wanted());
        // What was set while in use differs on purpose.
        if its.revision < SET && !mine.says(its) && !mine.replaces(its) {
            self.mismatches.fetch_add(1, Ordering::Relaxed);
            observe::mismatch(&self.name, &entry.key, &mine.limit, &its.limit);
        }
    }

    pub(crate) fn mismatches(&self) -> u64 {
        self.mismatches.load(Ordering::Relaxed)
    }

    /// Sets the limit of one key, whatever it was defined as. Says what is in force then.
    ///
    /// # Cancel safety
    /// It may be in force or not; if it was begun, the next client that uses the key finishes it.
    pub(crate) async fn set(self: &Arc<Self>, entry: &Arc<Entry>, limit: Limit, carry: Carry) -> Result<Limit, Error> {
        if let Some(leasing) = &self.leasing {
            leasing.leases.check(limit)?;
        }
        let (of, key) = (Arc::clone(self), Arc::clone(entry));
        let (done, set) = tokio::sync::oneshot::channel();
        // A task of its own: it takes several steps, has timers, and should not stop between them.
        self.engine.spawn(async move {
            let result = of.set_at_home(&key, limit, carry).await;
            of.rest(key);
            let _ = done.send(result);
        })?;
        set.await.unwrap_or_else(|_| Err(Miss::Ended { sent: true }.into_error()))
    }

    async fn set_at_home(self: &Arc<Self>, entry: &Arc<Entry>, limit: Limit, carry: Carry) -> Result<Limit, Error> {
        match self.put(entry, entry.view().home(), Work::Make).await {
            Ok(_) | Err(Miss::Stale) => {}
            Err(miss) => return Err(miss.into_error()),
        }
        let present = *entry.load().ledger.wanted();
        let (class, shards) = if entry.is_record() { (SET, Shards::Off) } else { (SET_KEY, present.shards) };
        let revision = (present.revision + 1).max(class + moment());
        let definition = Definition { limit, revision, shards, carry };
        let settled = settle(self, entry, None, Some(definition)).await;
        if entry.is_record() {
            self.heed(entry);
        }
        let ledger = &entry.load().ledger;
        if ledger.wanted().revision < revision {
            let gone = || Fault::NotSent("home was not there to take it".into());
            return Err(settled.err().unwrap_or_else(gone).into_error());
        }
        // A share out of reach is no reason to say that it is not in force where it is.
        if ledger.next.is_some() {
            settled.map_err(Fault::into_error)?;
        }
        Ok(ledger.wanted().limit)
    }

    /// Sets the limit of all keys that have none of their own. Here each key takes it over with its next call that asks the
    /// store, at other processes once they have looked, every [`WATCH`].
    ///
    /// # Cancel safety
    /// As [`set`](Self::set).
    pub(crate) async fn set_all(self: &Arc<Self>, limit: Limit, carry: Carry) -> Result<Limit, Error> {
        self.set(&self.entry(RECORD), limit, carry).await
    }

    /// The limit of a key that is in force, or about to be.
    ///
    /// # Cancel safety
    /// It changes nothing.
    pub(crate) async fn in_force(self: &Arc<Self>, entry: &Arc<Entry>) -> Result<Limit, Error> {
        // A key that nobody has used goes by the record, which a process that has just begun does not know yet.
        if is_due(&self.watched, self.clock.now(), WATCH) {
            self.look_at_record().await;
        }
        match self.put(entry, entry.view().home(), Work::Look).await {
            Ok(_) | Err(Miss::Stale) => Ok(entry.load().ledger.wanted().limit),
            Err(miss) => Err(miss.into_error()),
        }
    }

    /// Once in a while somebody looks whether another limit was set for all keys.
    pub(super) fn watch_record(self: &Arc<Self>, now: Micros) {
        if !is_due(&self.watched, now, WATCH) {
            return;
        }
        let limit = Arc::clone(self);
        // Without a runtime no call could have come this far.
        let _ = self.engine.spawn(async move { limit.look_at_record().await });
    }

    async fn look_at_record(self: &Arc<Self>) {
        let entry = self.entry(RECORD);
        let is_set = entry.load().ledger.wanted().revision >= SET;
        // What was set lives on as long as anybody goes by it.
        let work = if is_set && rand::random_ratio(1, RENEW) { Work::Make } else { Work::Look };
        // Stale: it has another algorithm than was known here, and that was adopted.
        if matches!(self.put(&entry, entry.view().home(), work).await, Ok(_) | Err(Miss::Stale)) {
            self.heed(&entry);
        }
    }

    /// Goes by what the record says, if that is later than what this process goes by.
    fn heed(&self, record: &Entry) {
        let said = *record.load().ledger.wanted();
        let is_later = |mine: &Defined| said.revision >= SET && said.revision > mine.definition.revision;
        if !is_later(&self.defined.load()) {
            return;
        }
        self.largest.fetch_max(said.limit.burst(), Ordering::Relaxed);
        // Of two that were set, and are heard of at once, the later one stays.
        self.defined.rcu(|mine| {
            let shards = mine.definition.shards;
            if is_later(mine) { Arc::new(Defined::new(Definition { shards, ..said })) } else { Arc::clone(mine) }
        });
        self.split.store(0, Ordering::Relaxed);
    }

    /// Whether a key under this ledger is to be split, as far as the topology is known.
    pub(super) fn may_split(&self, entry: &Entry, ledger: &Ledger) -> bool {
        if entry.is_record() || ledger.definition.shards == Shards::Auto && !entry.is_hot() {
            return false;
        }
        let masters = self.engine.transport.topology().masters().len();
        // Remembered for the number of masters: where not every number of shards is exact, it takes a search.
        let known = self.split.load(Ordering::Relaxed);
        let mine = self.defined();
        let is_mine = ledger.definition.says(&mine.definition);
        if is_mine && known >> 1 == masters {
            return known & 1 == 1;
        }
        let split = masters > 0 && shards_for(ledger.limit(), ledger.definition.shards, masters) > 1;
        if is_mine {
            self.split.store(masters << 1 | usize::from(split), Ordering::Relaxed);
            // Of a definition that was replaced meanwhile it must not stay.
            if !Arc::ptr_eq(&mine, &self.defined()) {
                self.split.store(0, Ordering::Relaxed);
            }
        }
        split
    }
}

impl Entry {
    /// How many shards a key under this ledger is to have.
    pub(super) fn shards_wanted(&self, ledger: &Ledger, masters: usize) -> usize {
        match ledger.definition.shards {
            _ if self.is_record() => 1,
            Shards::Auto if !self.is_hot() => 1,
            shards => shards_for(ledger.limit(), shards, masters),
        }
    }

    /// Whether a key that was split because it was hot has cooled down.
    pub(super) fn may_come_home(&self, view: &View) -> bool {
        view.ledger.definition.shards == Shards::Auto && !self.is_hot()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_moments_the_second_is_later() {
        let threads: Vec<_> =
            (0..2).map(|_| crate::sync::thread::spawn(|| (0..1_000).map(|_| moment()).collect::<Vec<_>>())).collect();
        let mut all: Vec<u64> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        assert!(all[..1_000].is_sorted() && all[1_000..].is_sorted(), "in each thread they rise");
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 2_000, "no two are the same");
    }
}
