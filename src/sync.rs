//! The one door to locks, atomics and threads, so that a model checker can swap them for its own.

pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
pub(crate) use std::sync::{Arc, atomic};
pub(crate) use std::thread;

/// Locks. `parking_lot`'s lock is half as dear as the standard library's when two threads want one key, and knows no
/// poison: what stands behind our locks is whole between any two statements, and a panicking waker of one caller
/// must not end the limiter for all others.
#[inline(always)]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}
