//! The one door to locks, atomics and threads, so that `--cfg loom` can swap them for loom's.

#[cfg(loom)]
pub(crate) use loom::{
    sync::{Arc, Condvar, Mutex, MutexGuard, atomic},
    thread,
};
#[cfg(not(loom))]
pub(crate) use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, atomic},
    thread,
};

use std::sync::PoisonError;

/// Locks, also after a panic: what stands behind our locks is whole between any two statements, and a
/// panicking waker of one caller must not end the limiter for all others.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
