//! The script of sliding counters against their kernel, and sketches against the server that they are of.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::kernel::LARGEST;
use super::oracle::{START, Shard};
use super::sketch::Sketch;
use super::windows::{MOST_WINDOWS, Ring, Windows};
use crate::clock::Micros;
use crate::wire::{Mode, Script, WindowsReply, WindowsRun};

/// As `lua/README.md` has it.
fn pack_windows(state: &Windows) -> Vec<u8> {
    let mut bytes = vec![1, 17];
    bytes.extend(state.seen.to_le_bytes());
    bytes.push(state.rings.len() as u8);
    for Ring { window, parts } in &state.rings {
        bytes.extend(window.to_le_bytes());
        bytes.extend((parts.len() as u16).to_le_bytes());
        for (number, events) in parts {
            bytes.extend([number.to_le_bytes(), events.to_le_bytes()].concat());
        }
    }
    bytes
}

/// What a window counts against all events, one by one: none is missed, and none counts for more than a part too long.
fn check_counts(counts: &[u64], windows: &[Micros], now: Micros, events: &[(Micros, u64, Vec<Micros>)]) {
    for (count, window) in counts.iter().zip(windows) {
        let own = || events.iter().filter(|(_, _, windows)| windows.contains(window));
        let within = |age: Micros| own().filter(|(at, ..)| at + age > now).map(|(_, events, _)| events).sum::<u64>();
        let (least, most) = (within(*window), within(window + window.div_ceil(super::windows::PARTS)));
        assert!((least..=most).contains(count), "{count} of {least} to {most} in {window} µs");
    }
}

#[test]
fn sliding_script_and_kernel_are_one() {
    let shard = Shard::new();
    let mut runner = TestRunner::new(Config { cases: 200, ..Config::with_source_file(file!()) });
    let windows = proptest::collection::vec(prop_oneof![Just(64), 1_000_u64..3_000_000, Just(640_000)], 1..5);
    // Clients with windows of their own, one after the other.
    let clients = proptest::collection::vec(windows, 1..4);
    let time = prop_oneof![6 => 0_i64..100_000, 2 => 0_i64..5_000_000, 1 => -50_000_i64..0, 1 => Just(-90_000_000)];
    let mode = prop_oneof![Just(Mode::Look), Just(Mode::Clear), Just(Mode::Add), Just(Mode::Add), Just(Mode::Add)];
    let amount = prop_oneof![9 => 1_u64..50, 1 => Just(LARGEST as u64)];
    let steps = proptest::collection::vec((time, mode, amount, 0_usize..3), 1..60);
    let shard = std::cell::RefCell::new(shard);
    runner
        .run(&(clients, steps), |(mut clients, steps)| {
            for windows in &mut clients {
                windows.sort_unstable();
                windows.dedup();
            }
            // With more than that, some make way.
            let have_room = clients.iter().flatten().collect::<std::collections::HashSet<_>>().len() <= MOST_WINDOWS;
            let shard = &mut *shard.borrow_mut();
            shard.forget();
            let (mut state, mut now, mut all) = (None::<Windows>, START, Vec::new());
            for (later, mode, events, client) in steps {
                let windows = &clients[client % clients.len()];
                now = now.saturating_add_signed(later);
                let events = if mode == Mode::Add { events } else { 0 };
                let run = WindowsRun { mode, events, windows };
                let value = shard.run(Script::SlidingCounter, now, |cmd| run.write(cmd));
                let reply = WindowsReply::parse(value, windows.len()).unwrap();
                let mut kernel = state.clone().unwrap_or_default();
                // Set back for good: it begins anew.
                let known = kernel.rings.iter().map(|ring| &ring.window);
                let is_anew = kernel.seen > now + windows.iter().chain(known).max().unwrap();
                let at = if is_anew { now } else { now.max(kernel.seen) };
                if mode == Mode::Clear {
                    let rings = windows.iter().map(|window| Ring { window: *window, parts: Vec::new() }).collect();
                    state = state.is_some().then_some(Windows { seen: at, rings });
                    all.clear();
                    prop_assert_eq!(&reply.counts, &Some(vec![0; windows.len()]));
                } else {
                    let counts = kernel.add(windows, now, events);
                    prop_assert_eq!(&reply.counts, &counts);
                    if let Some(counts) = counts {
                        let mut known = if is_anew { Vec::new() } else { all.clone() };
                        known.push((at, events, windows.clone()));
                        if have_room {
                            check_counts(&counts, windows, at, &known);
                        }
                        if mode == Mode::Add {
                            (state, all) = (Some(kernel), known);
                        }
                    }
                }
                prop_assert_eq!(shard.ask::<Option<Vec<u8>>>("GET", &[]), state.as_ref().map(pack_windows));
                if let Some(state) = state.as_ref().filter(|_| mode != Mode::Look && reply.counts.is_some()) {
                    let life = (super::table::Ends::ends(state) - state.seen).div_ceil(1_000) as i64 + 1_000;
                    let ttl: i64 = shard.ask("PTTL", &[]);
                    prop_assert!((life - 500..=life).contains(&ttl), "{} of {} ms", ttl, life);
                }
            }
            Ok(())
        })
        .unwrap();
}

/// What a server stores is read as the server reads it, sparse and dense.
#[test]
fn a_sketch_counts_as_the_server_does() {
    let mut shard = Shard::new();
    let mut added = 0_u64;
    for count in [1_u64, 2, 100, 1_000, 3_000, 20_000, 200_000] {
        while added < count {
            let batch: Vec<String> = (added..count.min(added + 1_000)).map(|value| format!("value:{value}")).collect();
            shard.ask::<()>("PFADD", &batch.iter().map(String::as_str).collect::<Vec<_>>());
            added += batch.len() as u64;
        }
        let stored: Vec<u8> = shard.ask("GET", &[]);
        assert_eq!(Sketch::parse(&stored).unwrap().estimate(), shard.ask::<u64>("PFCOUNT", &[]), "of {count}");
    }
}
