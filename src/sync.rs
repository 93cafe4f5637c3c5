//! The one door to locks, atomics and threads, so that a model checker can swap them for its own
//! (`races/src/sync.rs`).

#[cfg(feature = "redis")]
pub(crate) use crossbeam_utils::atomic::AtomicCell;
pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
#[cfg(feature = "redis")]
pub(crate) use std::sync::OnceLock;
pub(crate) use std::sync::{Arc, atomic};
pub(crate) use std::thread;

/// Locks. `parking_lot`'s lock is half as dear as the standard library's when two threads want one key, and knows no
/// poison: what stands behind our locks is whole between any two statements, and a panicking waker of one caller
/// must not end the limiter for all others.
#[inline(always)]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

/// Threads are numbered as they come.
#[cfg(feature = "redis")]
#[inline]
pub(crate) fn thread_number() -> usize {
    static NEXT: atomic::AtomicUsize = atomic::AtomicUsize::new(0);
    thread_local! {
        static NUMBER: usize = NEXT.fetch_add(1, atomic::Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}

/// How many threads can run at once, as the system said when it was first asked: it reads some files for that.
#[cfg(feature = "redis")]
pub(crate) fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| thread::available_parallelism().map_or(1, usize::from))
}

/// How many stripes something has that threads should not fight over. More than threads can run at once on a few cores: of those that do,
/// hardly two have the same one. On many it is one for each: they are all looked through now and then, and each takes 128 bytes.
#[cfg(feature = "redis")]
pub(crate) fn stripes() -> usize {
    let cores = cores();
    (4 * cores).min(16).max(cores).next_power_of_two()
}
