//! A purse: the permits of one key that this process has taken ahead, and spends by itself.
//!
//! Each thread spends from a stripe of its own, so that cores do not fight over a cache line. A stripe that is empty takes
//! a slice of the reserve, and where that is empty too, what others have. Permits of one call come from one charge.

use std::pin::pin;

use crossbeam_utils::CachePadded;
use tokio::sync::Notify;

use crate::clock::Micros;
use crate::decision::Charge;
use crate::key::Slot;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Mutex, OnceLock, lock, stripes, thread_number};

/// A stripe is filled with this part of what each could have: late ones find something left.
const SLICES: u64 = 4;

pub(super) struct Purse {
    /// Made for the first lease: most keys of a limit are called too seldom to have one.
    stripes: OnceLock<Box<[CachePadded<Stripe>]>>,
    reserve: CachePadded<Stripe>,
    /// Permits that were not found here, and that the store was asked for.
    missed: AtomicU64,
    /// Below this the reserve is to be refilled.
    low: AtomicU64,
    /// Somebody is at it, or sees to it that nobody is,
    pub refilling: AtomicBool,
    /// and wakes those who wait for that.
    rests: Notify,
    /// The limit's list of keys with leases has this one.
    listed: AtomicBool,
    pub recent: Mutex<Use>,
    /// What was used when it was last looked through.
    pub seen: AtomicU64,
}

/// What a key had use for, as its refills measure it.
#[derive(Default)]
pub(super) struct Use {
    since: Micros,
    used: u64,
    /// Permits a microsecond.
    rate: f64,
}

impl Use {
    /// Permits for one horizon of use as it was lately.
    pub(super) fn target(&mut self, used: u64, now: Micros, horizon: Micros) -> u64 {
        let (new, elapsed) = (used - self.used, now.saturating_sub(self.since));
        if self.since == 0 {
            // A key's first calls: nothing is known but that there are some.
            (self.since, self.rate) = (now, 2.0 * new as f64 / horizon as f64);
        } else if elapsed >= horizon / 4 {
            let lately = new as f64 / elapsed as f64;
            // A key that was quiet begins anew; else the mean of now and before.
            self.rate = if elapsed > 4 * horizon { lately } else { f64::midpoint(self.rate, lately) };
            (self.since, self.used) = (now, used);
        } else {
            self.rate = self.rate.max(new as f64 / horizon as f64);
        }
        (self.rate * horizon as f64).ceil() as u64
    }
}

/// One thread's part, or what nobody has taken yet.
#[derive(Default)]
struct Stripe {
    /// Permits in it, for those who look before they lock.
    left: AtomicU64,
    /// Permits that its thread has spent, for those who only look.
    spent: AtomicU64,
    leases: Mutex<Vec<Lease>>,
}

/// Permits of one charge.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lease {
    pub charge: Charge,
    /// Until then they may be spent, by this process's clock.
    pub until: Micros,
}

/// Permits that were spent.
pub(super) struct Spent {
    pub charge: Charge,
    /// The reserve is low, and nobody is at it.
    pub is_low: bool,
}

impl Purse {
    pub(super) fn new() -> Self {
        Self {
            stripes: OnceLock::new(),
            reserve: CachePadded::default(),
            missed: AtomicU64::new(0),
            low: AtomicU64::new(0),
            refilling: AtomicBool::new(false),
            rests: Notify::new(),
            listed: AtomicBool::new(false),
            recent: Mutex::default(),
            seen: AtomicU64::new(0),
        }
    }

    /// Spends permits that are held here; none if they are not.
    #[inline(always)]
    pub(super) fn spend(&self, permits: u64, now: Micros) -> Option<Spent> {
        let own = self.own()?;
        if let Some(charge) = own.spend(permits, now) {
            return Some(Spent { charge, is_low: false });
        }
        self.spend_elsewhere(own, permits, now)
    }

    /// None: nothing was ever leased.
    #[inline]
    fn own(&self) -> Option<&Stripe> {
        let stripes = self.stripes.get()?;
        Some(&stripes[thread_number() & (stripes.len() - 1)])
    }

    fn stripes(&self) -> &[CachePadded<Stripe>] {
        self.stripes.get().map_or(&[], Box::as_ref)
    }

    #[inline(never)]
    fn spend_elsewhere(&self, own: &Stripe, permits: u64, now: Micros) -> Option<Spent> {
        let stripes = self.stripes();
        let slice = self.reserve.left() / (SLICES * stripes.len() as u64);
        // What is left of a slice is put away before the reserve is free again: whoever looks through the purse finds it in the
        // one or in the other. Of what others had nothing is left.
        let from_reserve = self.reserve.take(permits, slice, now, |rest| own.put_if_room(rest));
        let is_low =
            || self.reserve.left() <= self.low.load(Ordering::Relaxed) && !self.refilling.load(Ordering::Relaxed);
        let elsewhere = || stripes.iter().find_map(|stripe| stripe.take(permits, 0, now, |_| false));
        let charge = from_reserve.or_else(elsewhere)?;
        own.note(&lock(&own.leases), permits);
        Some(Spent { charge, is_low: is_low() })
    }

    /// The store is asked for permits that were not found here.
    pub(super) fn miss(&self, permits: u64) {
        self.missed.fetch_add(permits, Ordering::Relaxed);
    }

    /// Nobody has looked for permits here.
    pub(super) fn is_new(&self) -> bool {
        self.missed.load(Ordering::Relaxed) == 0
    }

    /// Adds what a shard has granted.
    pub(super) fn add(&self, lease: Lease) {
        if self.stripes.get().is_none() {
            // Somebody else may have made them.
            let _ = self.stripes.set((0..stripes()).map(|_| CachePadded::default()).collect());
        }
        self.stripes().iter().for_each(|stripe| stripe.make_room());
        self.reserve.put(lease);
    }

    /// Waits until nobody fills it, and takes the place of whoever does. It is to [rest](Self::rest) afterwards.
    ///
    /// # Cancel safety
    /// It is left as it was.
    pub(super) async fn occupy(&self) {
        loop {
            let mut rests = pin!(self.rests.notified());
            rests.as_mut().enable();
            if !self.refilling.swap(true, Ordering::AcqRel) {
                return;
            }
            rests.await;
        }
    }

    /// Nobody is at it any more.
    pub(super) fn rest(&self) {
        self.refilling.store(false, Ordering::Release);
        self.rests.notify_waiters();
    }

    /// Permits that are held now.
    pub(super) fn held(&self) -> u64 {
        self.all().map(Stripe::left).sum()
    }

    /// Permits that are held now of the shard in this slot.
    pub(super) fn held_of(&self, slot: Slot) -> u64 {
        self.all().map(|stripe| stripe.left_of(slot)).sum()
    }

    /// Nothing is held, and nothing is on its way.
    pub(super) fn is_out(&self) -> bool {
        !self.refilling.load(Ordering::Acquire) && self.held() == 0
    }

    /// Whether the list of keys with leases lacks this one. Whoever is told so puts it there.
    pub(super) fn is_to_be_listed(&self) -> bool {
        !self.listed.swap(true, Ordering::AcqRel)
    }

    /// Whether that list has no need of it any more. Whoever is told so takes it out.
    pub(super) fn is_struck_off(&self) -> bool {
        // Somebody may fill it right now. He finds it listed, and then the swap sees what he did before; or he does not, and
        // lists it himself.
        self.listed.swap(false, Ordering::AcqRel);
        self.is_out() || self.listed.swap(true, Ordering::AcqRel)
    }

    /// What this process had use for, so far: what was spent, and what was not found.
    pub(super) fn used(&self) -> u64 {
        self.all().map(|stripe| stripe.spent.load(Ordering::Relaxed)).sum::<u64>() + self.missed.load(Ordering::Relaxed)
    }

    pub(super) fn refill_below(&self, low: u64) {
        self.low.store(low, Ordering::Relaxed);
    }

    /// Takes out what may be spent no more, or all there is.
    pub(super) fn take_back(&self, now: Option<Micros>) -> Vec<Lease> {
        self.all().flat_map(|stripe| stripe.take_back(now)).collect()
    }

    /// The reserve first: a slice goes from there to a stripe, and who looks through all of them must not look there before it comes.
    fn all(&self) -> impl Iterator<Item = &Stripe> {
        [&self.reserve].into_iter().chain(self.stripes()).map(|stripe| &**stripe)
    }
}

impl Stripe {
    #[inline]
    fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }

    fn left_of(&self, slot: Slot) -> u64 {
        if self.left() == 0 {
            return 0;
        }
        let leases = lock(&self.leases);
        leases.iter().map(|lease| &lease.charge).filter(|charge| charge.slot == slot).map(|charge| charge.permits).sum()
    }

    #[inline]
    fn spend(&self, permits: u64, now: Micros) -> Option<Charge> {
        if self.left() < permits {
            return None;
        }
        let mut leases = lock(&self.leases);
        let lease = leases.last_mut().filter(|lease| lease.charge.permits >= permits && now < lease.until)?;
        lease.charge.permits -= permits;
        let charge = Charge { permits, ..lease.charge };
        self.note(&leases, permits);
        self.left.store(self.left() - permits, Ordering::Relaxed);
        Some(charge)
    }

    /// So many more were spent, by whoever has the lock.
    #[inline]
    fn note(&self, _: &[Lease], permits: u64) {
        self.spent.store(self.spent.load(Ordering::Relaxed) + permits, Ordering::Relaxed);
    }

    /// Takes `permits` out, or a slice if that is more, from one charge that may still be spent. `rest` has what is more, unless it
    /// says that it has no room.
    fn take(&self, permits: u64, slice: u64, now: Micros, rest: impl FnOnce(Lease) -> bool) -> Option<Charge> {
        if self.left() < permits {
            return None;
        }
        let leases = &mut *lock(&self.leases);
        let enough = |lease: &Lease| lease.charge.permits >= permits && now < lease.until;
        // The one that expires first.
        let found = (0..leases.len()).filter(|index| enough(&leases[*index]));
        let index = found.min_by_key(|index| leases[*index].until)?;
        let lease = &mut leases[index];
        let mut taken = permits.max(slice).min(lease.charge.permits);
        let (charge, until) = (lease.charge, lease.until);
        if taken > permits && !rest(Lease { charge: Charge { permits: taken - permits, ..charge }, until }) {
            taken = permits;
        }
        lease.charge.permits -= taken;
        if lease.charge.permits == 0 {
            leases.swap_remove(index);
        }
        self.left.store(self.left() - taken, Ordering::Relaxed);
        Some(Charge { permits, ..charge })
    }

    fn put(&self, lease: Lease) {
        let leases = &mut *lock(&self.leases);
        clear(leases);
        self.push(leases, lease);
    }

    /// In a call, which allocates nothing.
    fn put_if_room(&self, lease: Lease) -> bool {
        let leases = &mut *lock(&self.leases);
        clear(leases);
        let has_room = leases.len() < leases.capacity();
        if has_room {
            self.push(leases, lease);
        }
        has_room
    }

    /// For one that calls put here, if there are any.
    fn make_room(&self) {
        if self.spent.load(Ordering::Relaxed) > 0 {
            let leases = &mut *lock(&self.leases);
            clear(leases);
            leases.reserve(1);
        }
    }

    fn push(&self, leases: &mut Vec<Lease>, lease: Lease) {
        leases.push(lease);
        self.left.store(self.left() + lease.charge.permits, Ordering::Relaxed);
    }

    fn take_back(&self, now: Option<Micros>) -> Vec<Lease> {
        // Most stripes of most keys.
        if self.left() == 0 {
            return Vec::new();
        }
        let leases = &mut *lock(&self.leases);
        let over = |lease: &mut Lease| now.is_none_or(|now| now >= lease.until);
        let back: Vec<Lease> = leases.extract_if(.., over).filter(|lease| lease.charge.permits > 0).collect();
        let left = leases.iter().map(|lease| lease.charge.permits).sum();
        self.left.store(left, Ordering::Relaxed);
        back
    }
}

/// Those that are used up make room.
fn clear(leases: &mut Vec<Lease>) {
    leases.retain(|lease| lease.charge.permits > 0);
}
