//! Locks and atomics of the checker, in place of `src/sync.rs`: it switches threads at each of them, and shows each thread
//! every value that the memory model lets it see.

pub(crate) use loom::sync::atomic;
pub(crate) use std::sync::Arc;
pub(crate) use std::thread;

use atomic::{AtomicBool, Ordering};

pub(crate) type MutexGuard<'a, T> = loom::sync::MutexGuard<'a, T>;

/// Without poison, as the library's is.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().expect("a checked run that panics has ended")
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.0.lock().expect("a checked run that panics has ended")
}

/// For the thread of a clock alone, and no clock runs here.
#[derive(Debug, Default)]
pub(crate) struct Condvar;

impl Condvar {
    #[allow(clippy::unused_self, reason = "as the library's")]
    pub(crate) fn notify_one(&self) {}

    #[allow(clippy::unused_self, reason = "as the library's")]
    pub(crate) fn wait<T>(&self, _: &mut MutexGuard<'_, T>) {
        unreachable!("time is an argument here");
    }

    #[allow(clippy::unused_self, reason = "as the library's")]
    pub(crate) fn wait_for<T>(&self, _: &mut MutexGuard<'_, T>, _: std::time::Duration) -> bool {
        unreachable!("time is an argument here");
    }
}

/// Published by a flag, as the standard library's is.
pub(crate) struct OnceLock<T> {
    is_set: AtomicBool,
    value: std::sync::OnceLock<T>,
}

impl<T> OnceLock<T> {
    pub(crate) fn new() -> Self {
        Self { is_set: AtomicBool::new(false), value: std::sync::OnceLock::new() }
    }

    pub(crate) fn get(&self) -> Option<&T> {
        if self.is_set.load(Ordering::Acquire) { self.value.get() } else { None }
    }

    pub(crate) fn set(&self, value: T) -> Result<(), T> {
        self.value.set(value)?;
        self.is_set.store(true, Ordering::Release);
        Ok(())
    }
}

impl<T> From<T> for OnceLock<T> {
    fn from(value: T) -> Self {
        Self { is_set: AtomicBool::new(true), value: value.into() }
    }
}

/// What a thread reads was written as a whole, and all that its writer did before is there too: so it is in the library, where
/// large ones are read by an optimistic lock.
pub(crate) struct AtomicCell<T>(Mutex<T>);

impl<T: Copy> AtomicCell<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    pub(crate) fn load(&self) -> T {
        *lock(&self.0)
    }

    pub(crate) fn store(&self, value: T) {
        *lock(&self.0) = value;
    }
}

/// The same in each run, which the checker relies on.
pub(crate) fn thread_number() -> usize {
    let id = format!("{:?}", loom::thread::current().id());
    id.trim_matches(|other: char| !other.is_ascii_digit()).parse().expect("threads have numbers")
}

/// So few that all of them can be looked through in every order.
pub(crate) fn cores() -> usize {
    1
}

/// The first thread and the third have the same one.
pub(crate) fn stripes() -> usize {
    2
}
