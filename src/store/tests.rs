//! The bound of the embedded store, and that nobody's state is lost to it.

use super::keyed::{Closure, Keyed, Pin, Tracked};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::thread;

/// What makes a look-up cheap when there are many keys: key and state share one cache line.
#[test]
fn an_entry_is_one_cache_line() {
    assert_eq!(super::keyed::entry_size::<super::local::Cell>(), 64);
}

/// A value that counts, and is idle when the test says so.
#[derive(Default, Clone, Copy, Debug, PartialEq)]
struct Count(u64);

impl Tracked for Count {
    /// Values up to this are idle.
    type Context<'a> = u64;

    fn is_idle(&mut self, idle_up_to: u64) -> bool {
        self.0 <= idle_up_to
    }

    fn heir(&self) -> Self {
        *self
    }

    fn absorb(&mut self, other: Self, _: u64) {
        self.0 = self.0.max(other.0);
    }
}

fn key(number: usize) -> Vec<u8> {
    format!("key:{number}").into_bytes()
}

fn add(map: &Keyed<Count>, number: usize, idle_up_to: u64) -> u64 {
    let key = key(number);
    map.work(
        map.hash(&key),
        &key,
        idle_up_to,
        Closure(|count: &mut Count| {
            count.0 += 1;
            count.0
        }),
    )
}

fn look(map: &Keyed<Count>, number: usize) -> Option<u64> {
    let key = key(number);
    map.with_tracked(map.hash(&key), &key, |count| count.0)
}

#[test]
fn a_full_map_keeps_what_is_in_use_and_shares_the_rest() {
    let map = Keyed::<Count>::new(1_000);
    for number in 0..50_000 {
        add(&map, number, 0);
    }
    assert!((900..=1_000).contains(&map.len()), "{} tracked", map.len());
    let kept = (0..1_000).filter(|number| look(&map, *number) == Some(1)).count();
    assert!(kept >= 900, "the first keys stay, {kept} did");
    // Whoever came too late shares a count with others that did.
    assert!(add(&map, 49_999, 0) > 1_000);
}

#[test]
fn idle_keys_make_way() {
    let map = Keyed::<Count>::new(1_000);
    for number in 0..50_000 {
        add(&map, number, 1);
    }
    assert!(map.len() <= 1_000);
    let late = (49_000..50_000).filter(|number| look(&map, *number) == Some(1)).count();
    assert!(late > 300, "of the last keys {late} are tracked");
}

/// A key that had to share must not begin anew when there is room again.
#[test]
fn a_key_that_shared_begins_with_what_was_shared() {
    let map = Keyed::<Count>::new(1);
    add(&map, 0, 0);
    for _ in 0..7 {
        add(&map, 1, 0);
    }
    assert_eq!(look(&map, 1), None);
    assert_eq!(add(&map, 1, 1), 8, "key 0 made way; key 1 takes its seven along");
    assert_eq!(look(&map, 1), Some(8));
}

fn pin(map: &Keyed<Count>, number: usize, idle_up_to: u64) -> Pin<Count> {
    map.pin(map.hash(&key(number)), &key(number), idle_up_to)
}

#[test]
fn a_pinned_key_stays_and_is_the_same() {
    let map = Keyed::<Count>::new(2);
    add(&map, 0, 0);
    let held = pin(&map, 0, 0);
    assert_eq!(held.with(|count| count.0), 1, "it took along what it had");
    for number in 1..100 {
        add(&map, number, u64::MAX);
    }
    held.with(|count| count.0 += 1);
    assert_eq!(look(&map, 0), Some(2));
    map.release(held, 0);
    assert_eq!(look(&map, 0), Some(2), "there is room for it");
    for number in 1..100 {
        add(&map, number, u64::MAX);
    }
    assert_eq!(look(&map, 0), None, "nobody holds it any more");
}

/// What pins lift above the bound goes with them, and what was counted is not forgotten.
#[test]
fn pins_beyond_the_bound_leave_nothing_but_their_charge() {
    let map = Keyed::<Count>::new(4);
    for number in 0..4 {
        add(&map, number, 0);
    }
    let held: Vec<_> = (100..150).map(|number| pin(&map, number, 0)).collect();
    assert_eq!(map.len(), 54);
    for (held, count) in held.iter().zip(1..) {
        held.with(|value| value.0 += count);
    }
    let again = pin(&map, 149, 0);
    for held in held {
        map.release(held, 0);
    }
    assert_eq!(map.len(), 5, "one is held twice");
    assert_eq!(look(&map, 149), Some(50));
    map.release(again, 0);
    assert_eq!(map.len(), 4);
    assert_eq!(add(&map, 149, 0), 51, "as the overflow has it now");
}

/// A flood of short pins once left a table so empty that the hand found no key to drop, and overflow for everybody.
#[test]
fn a_table_that_pins_grew_shrinks_again() {
    let map = Keyed::<Count>::new(16);
    let held: Vec<_> = (0..50_000).map(|number| pin(&map, number, 0)).collect();
    for held in held {
        map.release(held, 0);
    }
    assert!(map.len() <= 16);
    for number in 100_000..100_500 {
        add(&map, number, u64::MAX);
        assert!(look(&map, number).is_some(), "{number} found no room though all are idle");
    }
}

/// Threads that insert, pin, sweep and count at once lose no count of a key that is in use.
#[test]
fn no_count_is_lost_under_pressure() {
    let map = Keyed::<Count>::new(64);
    let counted = AtomicU64::new(0);
    let hot = map.pin(map.hash(b"hot"), b"hot", 1);
    thread::scope(|scope| {
        for thread in 0..4usize {
            let (map, counted) = (&map, &counted);
            scope.spawn(move || {
                for round in 0..20_000 {
                    add(map, thread * 1_000_000 + round, 1);
                    map.work(map.hash(b"hot"), b"hot", 1, Closure(|count: &mut Count| count.0 += 1));
                    if round % 16 == 0 {
                        let held = map.pin(map.hash(b"hot"), b"hot", 1);
                        held.with(|count| count.0 += 1);
                        map.release(held, 1);
                        counted.fetch_add(1, Ordering::Relaxed);
                    }
                    counted.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(hot.with(|count| count.0), counted.load(Ordering::Relaxed));
}
