//! Memory: none allocated by a call, and bounded however many keys come.
#![allow(unsafe_code)]

#[path = "support/heap.rs"]
#[allow(dead_code, unreachable_pub)]
mod heap;

use shardlimit::{FakeClock, Limiter, NamedLimit};
use std::time::Duration;

#[global_allocator]
static HEAP: heap::Counting = heap::Counting;

const EVERY: [&str; 6] = [
    "token-bucket 10/s burst 1000",
    "leaky-bucket 10/s capacity 1000",
    "pacing-queue 10/s capacity 1000",
    "fixed-window 1000/s",
    "sliding-window 1000/s",
    "sliding-log 1000/s",
];

#[test]
fn a_call_allocates_nothing() {
    let time = FakeClock::new();
    let limiter = Limiter::builder().clock(&time).build().unwrap();
    for (number, text) in EVERY.into_iter().enumerate() {
        let limit = limiter.define(&format!("limit-{number}"), text.parse().unwrap()).unwrap();
        let hot = limit.handle("hot").unwrap();
        let ask = |permits| {
            let by_handle = hot.try_acquire(permits).unwrap().unwrap().is_allowed();
            let by_key = limit.try_acquire("tracked", permits).unwrap().unwrap().is_allowed();
            by_handle && by_key
        };
        assert!(ask(1), "the first call of a key may allocate its state");
        let before = heap::allocations();
        let granted = (0..2_000).filter(|_| ask(1)).count();
        assert_eq!(heap::allocations() - before, 0, "{text}: allocations in 4,000 calls, allowed and denied");
        assert_eq!(granted, 999, "{text}");
    }
}

fn denied(limit: &NamedLimit, key: &str) -> bool {
    !limit.try_acquire(key, 1).unwrap().unwrap().is_allowed()
}

/// A million keys against room for ten thousand: whoever was denied stays denied, and memory does not grow.
#[test]
fn a_spray_of_keys_resets_nobody() {
    const ROOM: usize = 10_000;
    let time = FakeClock::new();
    for text in ["token-bucket 1/min burst 3", "fixed-window 3/h", "sliding-window 3/h", "sliding-log 3/h"] {
        let limiter = Limiter::builder().clock(&time).max_keys(ROOM).build().unwrap();
        let limit = limiter.define("spray", text.parse().unwrap()).unwrap();
        let before = heap::bytes();
        // Regular users, who have used up their limit.
        let users: Vec<String> = (0..1_000).map(|user| format!("user:{user}")).collect();
        for user in &users {
            assert!(limit.try_acquire(user, 3).unwrap().unwrap().is_allowed());
        }
        let mut most = 0;
        let (mut admitted, mut twice) = (0u32, 0u32);
        for number in 0..1_000_000 {
            let key = format!("spray:{number}");
            let first = limit.try_acquire(&key, 3).unwrap().unwrap().is_allowed();
            admitted += u32::from(first);
            // Nobody gets more than the limit by coming back.
            twice += u32::from(first && !denied(&limit, &key));
            most = most.max(heap::bytes() - before);
            if number % 1_000 == 0 {
                let user = &users[number / 1_000 % users.len()];
                assert!(denied(&limit, user), "{text}: {user} was reset after {number} keys");
            }
        }
        assert!(users.iter().all(|user| denied(&limit, user)), "{text}");
        assert_eq!(twice, 0, "{text}: admitted beyond the limit");
        assert!((ROOM / 2..ROOM + 1_000).contains(&(admitted as usize)), "{text}: {admitted} admitted");
        let per_key = most / ROOM as isize;
        println!("{text}: at most {most} bytes, {per_key} a key of {ROOM}");
        assert!(per_key <= 400, "{text}: {per_key} bytes a key");

        // When their time is over, all the keys make way: late comers are tracked again.
        time.advance(Duration::from_secs(2 * 3_600));
        let fresh = (0..5_000)
            .filter(|number| limit.try_acquire(format!("late:{number}"), 3).unwrap().unwrap().is_allowed())
            .count();
        assert!(fresh > 4_500, "{text}: {fresh} of 5,000 late keys had their whole limit");
    }
}

/// Calls that wait, resets and handles hold a key for a while; a flood of them leaves nothing behind either.
#[test]
fn a_spray_of_held_keys_leaves_nothing_behind() {
    let time = FakeClock::new();
    let limiter = Limiter::builder().clock(&time).max_keys(1_000).build().unwrap();
    let limit = limiter.define("held", "token-bucket 1/day burst 1".parse().unwrap()).unwrap();
    for number in 0..20_000 {
        let _ = limit.try_acquire(format!("key:{number}"), 1).unwrap();
    }
    let before = heap::bytes();
    for number in 0..200_000 {
        let key = format!("held:{number}");
        let within = Duration::from_millis(1);
        assert!(!pollster::block_on(limit.acquire_within(&key, 1, within)).unwrap().is_allowed());
        pollster::block_on(limit.reset(&key)).unwrap();
        drop(limit.handle(&key).unwrap());
    }
    let grown = heap::bytes() - before;
    // A table may have doubled, which is 64 kB each; 600,000 keys left behind would be 66 MB.
    assert!(grown < 500_000, "{grown} bytes more than before");
}
