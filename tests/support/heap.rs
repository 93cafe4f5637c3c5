//! A heap that counts, for tests of what a thread allocates and how much of it at once, and of what all threads keep.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicIsize, Ordering};

pub struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    static BYTES: Cell<isize> = const { Cell::new(0) };
}

static BYTES_OF_ALL: AtomicIsize = AtomicIsize::new(0);
static MOST_OF_ALL: AtomicIsize = AtomicIsize::new(0);

fn count(allocations: usize, bytes: isize) {
    let now = BYTES_OF_ALL.fetch_add(bytes, Ordering::Relaxed) + bytes;
    if bytes > 0 {
        MOST_OF_ALL.fetch_max(now, Ordering::Relaxed);
    }
    // A thread that is ending has no counters left, and nobody who would read them.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + allocations));
    let _ = BYTES.try_with(|count| count.set(count.get() + bytes));
}

// SAFETY: every call goes to the system's allocator unchanged; counting does not touch the memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size() as isize);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(0, -(layout.size() as isize));
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Allocations made so far by this thread.
pub fn allocations() -> usize {
    ALLOCATIONS.with(Cell::get)
}

/// Bytes that this thread has allocated and nobody freed.
pub fn bytes() -> isize {
    BYTES.with(Cell::get)
}

/// Bytes that any thread has allocated and nobody freed.
pub fn bytes_of_all() -> isize {
    BYTES_OF_ALL.load(Ordering::Relaxed)
}

/// The most that all threads had at once since this was last asked.
pub fn most_of_all() -> isize {
    MOST_OF_ALL.swap(bytes_of_all(), Ordering::Relaxed)
}
