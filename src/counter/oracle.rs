//! The counter script against the kernel, call by call, on a real server: every reply and every stored byte.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use redis::Cmd;

use super::kernel::{Add, Count, LARGEST, MOST_CLIENTS, Once, Terms};
use super::sketch::Sketch;
use super::windows::{Ring, Windows};
use crate::clock::Micros;
use crate::kernel::tests::oracle::server::Server;
use crate::wire::{CountReply, CountRun, Mode, Script, WindowsReply, WindowsRun};

const START: Micros = 1_700_000_000_000_000;

/// One sub-key on a server whose clock the test sets.
pub(super) struct Shard {
    connection: redis::Connection,
    key: String,
    _server: Server,
}

impl Shard {
    pub(super) fn new() -> Self {
        let server = Server::start(&[]);
        Self { connection: server.connection(), key: "oracle".into(), _server: server }
    }

    pub(super) fn ask<T: redis::FromRedisValue>(&mut self, command: &str, more: &[&str]) -> T {
        redis::cmd(command).arg(&self.key).arg(more).query(&mut self.connection).unwrap()
    }

    pub(super) fn run(&mut self, script: Script, now: Micros, write: impl FnOnce(&mut Cmd)) -> redis::Value {
        let clock = format!("{{'{}', '{}'}}", now / 1_000_000, now % 1_000_000);
        let source = script.source().replace("redis.call('TIME')", &clock);
        assert_ne!(source, script.source(), "the script reads the time in another way");
        let mut cmd = redis::cmd("EVAL");
        cmd.arg(source).arg(1).arg(&self.key);
        write(&mut cmd);
        cmd.query(&mut self.connection).unwrap()
    }

    pub(super) fn forget(&mut self) {
        self.ask::<()>("DEL", &[]);
    }
}

/// As `lua/README.md` has it.
fn pack(state: &Count) -> Vec<u8> {
    let mut bytes = vec![1, 16];
    for number in [state.total, state.ends as i64, state.seen as i64, state.horizon as i64] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend(state.heat.since.to_le_bytes());
    bytes.extend(state.heat.adds.to_le_bytes());
    bytes.push(state.heat.is_hot.into());
    for entry in &state.entries {
        bytes.extend(entry.client.to_le_bytes());
        bytes.extend(entry.number.to_le_bytes());
        bytes.extend(entry.at.to_le_bytes());
        bytes.push(entry.is_above.into());
    }
    bytes
}

/// Runs on both, and compares the answer, the bytes and the time to live.
fn step(shard: &mut Shard, state: &mut Option<Count>, terms: &Terms, now: Micros, run: CountRun) -> CountReply {
    let reply = CountReply::parse(shard.run(Script::Counter, now, |cmd| run.write(terms, cmd))).unwrap();
    let before = state.clone();
    let mut count = state.take().unwrap_or_default();
    let expected = match run {
        CountRun::Look => (super::kernel::Verdict::Done, count.look(terms, now)),
        CountRun::Reset => {
            if before.is_some() {
                count.reset(terms, now);
            }
            (super::kernel::Verdict::Done, 0)
        }
        CountRun::Add { amount, bound, once, ends } => {
            count.add(terms, now, &Add { amount, bound, once: Some(once), ends })
        }
    };
    *state = (before.is_some() || count != Count::default()).then_some(count);
    assert_eq!((reply.verdict, reply.total, reply.now), (expected.0, expected.1, now), "{run:?}");
    assert_eq!(reply.ends, state.as_ref().map_or(0, |count| count.ends(terms, now)), "{run:?} at {now}");
    assert_eq!(reply.is_hot, state.as_ref().is_some_and(|count| count.heat.is_hot), "{run:?} at {now}");
    assert_eq!(shard.ask::<Option<Vec<u8>>>("GET", &[]), state.as_ref().map(pack), "{run:?} at {now}");
    if *state != before {
        let count = state.as_ref().unwrap();
        let life = (count.ends.saturating_sub(count.seen)).max(count.horizon).div_ceil(1_000) as i64 + 1_000;
        let ttl: i64 = shard.ask("PTTL", &[]);
        assert!((life - 500..=life).contains(&ttl), "{ttl} of {life} ms");
    }
    reply
}

fn runs() -> impl Strategy<Value = (i64, CountRun)> {
    let amounts = prop_oneof![4 => -5_i64..100, 1 => Just(LARGEST), 1 => Just(-LARGEST)];
    let bound = prop_oneof![3 => Just(None), 1 => (0_i64..300).prop_map(Some)];
    let ends = prop_oneof![2 => Just(None), 1 => (0_u64..12).prop_map(|fives| Some(START + fives * 5_000_000))];
    let add = (amounts, bound, 0_u64..4, 0_u64..40, -3_000_000_i64..12_000_000, ends).prop_map(
        |(amount, bound, client, number, later, ends)| {
            // Bytes that look like a neighbour's, so that a search which is off by some of them shows.
            let client = client * 0x0101_0101_0101_0101;
            (amount, bound, Once { client, number, not_after: later as u64 }, ends)
        },
    );
    let run = prop_oneof![
        1 => Just(CountRun::Look),
        1 => Just(CountRun::Reset),
        8 => add.prop_map(|(amount, bound, once, ends)| CountRun::Add { amount, bound, once, ends }),
    ];
    // Time goes on, mostly; it also swings back a little, and by more than the horizon.
    (prop_oneof![8 => 0_i64..3_000_000, 1 => -2_000_000_i64..0, 1 => Just(-60_000_000), 1 => Just(50_000_000)], run)
}

fn terms() -> impl Strategy<Value = Terms> {
    let terms = (1_000_u64..20_000_000, any::<bool>(), 1_000_000_u64..10_000_000, 1_u16..5, 0_u64..8);
    terms.prop_map(|(ttl, renew, horizon, shards, hot)| Terms { ttl, renew, horizon, shards, hot })
}

#[test]
fn script_and_kernel_are_one() {
    let shard = Shard::new();
    let mut runner = TestRunner::new(Config { cases: 300, ..Config::with_source_file(file!()) });
    let histories = (proptest::collection::vec(terms(), 1..3), proptest::collection::vec(runs(), 1..40));
    let shard = std::cell::RefCell::new(shard);
    runner
        .run(&histories, |(terms, runs)| {
            let shard = &mut *shard.borrow_mut();
            shard.forget();
            let (mut state, mut now) = (None, START);
            for (number, (later, mut run)) in runs.into_iter().enumerate() {
                now = now.saturating_add_signed(later);
                if let CountRun::Add { once, .. } = &mut run {
                    once.not_after = now.saturating_add_signed(once.not_after as i64);
                }
                step(shard, &mut state, &terms[number % terms.len()], now, run);
            }
            Ok(())
        })
        .unwrap();
}

fn add(client: u64, number: u64, amount: i64, not_after: Micros) -> CountRun {
    CountRun::Add { amount, bound: None, once: Once { client, number, not_after }, ends: None }
}

/// The bound of what is remembered holds, and nobody is forgotten for it.
#[test]
fn a_client_too_many_is_turned_away_until_another_is_forgotten() {
    let mut shard = Shard::new();
    let terms = Terms { ttl: 60_000_000, renew: false, horizon: 5_000_000, shards: 1, hot: LARGEST as u64 };
    let (mut state, until) = (None, START + 4_000_000);
    for client in 0..MOST_CLIENTS as u64 {
        step(&mut shard, &mut state, &terms, START + client, add(client, 1, 1, until));
    }
    let late = START + 10_000;
    let reply = step(&mut shard, &mut state, &terms, late, add(9_999, 1, 1, until));
    assert_eq!((reply.verdict, reply.total), (super::kernel::Verdict::Crowded, MOST_CLIENTS as i64));
    let known = step(&mut shard, &mut state, &terms, late, add(0, 2, 1, until));
    assert_eq!((known.verdict, known.total), (super::kernel::Verdict::Done, MOST_CLIENTS as i64 + 1));
    // Client 1 is the first to be forgotten.
    let free = START + 1 + terms.horizon;
    let reply = step(&mut shard, &mut state, &terms, free, add(9_999, 1, 1, free));
    assert_eq!(reply.verdict, super::kernel::Verdict::Done);
}

/// It becomes hot by what one shard has to do, and stays so while all of them together have a quarter of that.
#[test]
fn a_key_is_hot_while_its_shards_have_much_to_do() {
    let mut shard = Shard::new();
    let terms = Terms { ttl: 60_000_000, renew: false, horizon: 5_000_000, shards: 5, hot: 100 };
    let (mut state, mut now, mut number) = (None, START, 0);
    // What it says after two seconds of so many adds a second.
    let mut is_hot = |adds: u64| {
        let mut said = false;
        for _ in 0..2 * adds {
            (now, number) = (now + 1_000_000 / adds, number + 1);
            said = step(&mut shard, &mut state, &terms, now, add(1, number, 1, now)).is_hot;
        }
        said
    };
    assert_eq!([90, 110, 20, 6, 4, 90, 110].map(&mut is_hot), [false, true, true, true, false, false, true]);
    // After a while without any, the next one tells.
    now += 60_000_000;
    assert!(!step(&mut shard, &mut state, &terms, now, add(2, 1, 1, now)).is_hot);
    // One that has no others is never hot.
    shard.forget();
    let alone = Terms { shards: 1, hot: 0, ..terms };
    assert!(!step(&mut shard, &mut None, &alone, now + 1, add(3, 1, 1, now + 1)).is_hot);
}

/// Whoever made a counter live for ever has it end again with the next add.
#[test]
fn a_lost_time_to_live_comes_back() {
    let mut shard = Shard::new();
    let terms = Terms { ttl: 60_000_000, renew: false, horizon: 5_000_000, shards: 1, hot: LARGEST as u64 };
    let mut state = None;
    step(&mut shard, &mut state, &terms, START, add(1, 1, 5, START));
    shard.ask::<()>("PERSIST", &[]);
    assert_eq!(shard.ask::<i64>("PTTL", &[]), -1);
    step(&mut shard, &mut state, &terms, START + 1, add(1, 2, 5, START + 1));
    assert!(shard.ask::<i64>("PTTL", &[]) > 0);
}

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
fn check_counts(counts: &[u64], windows: &[Micros], now: Micros, events: &[(Micros, u64)]) {
    let within = |age: Micros| events.iter().filter(|(at, _)| at + age > now).map(|(_, events)| events).sum::<u64>();
    for (count, window) in counts.iter().zip(windows) {
        let (least, most) = (within(*window), within(window + window.div_ceil(super::windows::PARTS)));
        assert!((least..=most).contains(count), "{count} of {least} to {most} in {window} µs");
    }
}

#[test]
fn sliding_script_and_kernel_are_one() {
    let shard = Shard::new();
    let mut runner = TestRunner::new(Config { cases: 200, ..Config::with_source_file(file!()) });
    let windows = proptest::collection::vec(prop_oneof![Just(64), 1_000_u64..3_000_000, Just(640_000)], 1..4);
    let time = prop_oneof![6 => 0_i64..100_000, 2 => 0_i64..5_000_000, 1 => -50_000_i64..0, 1 => Just(-90_000_000)];
    let mode = prop_oneof![Just(Mode::Look), Just(Mode::Clear), Just(Mode::Add), Just(Mode::Add), Just(Mode::Add)];
    let amount = prop_oneof![9 => 1_u64..50, 1 => Just(LARGEST as u64)];
    let steps = proptest::collection::vec((time, mode, amount), 1..60);
    let shard = std::cell::RefCell::new(shard);
    runner
        .run(&(windows, steps), |(mut windows, steps)| {
            windows.sort_unstable();
            windows.dedup();
            let shard = &mut *shard.borrow_mut();
            shard.forget();
            let (mut state, mut now, mut all) = (None::<Windows>, START, Vec::new());
            for (later, mode, events) in steps {
                now = now.saturating_add_signed(later);
                let events = if mode == Mode::Add { events } else { 0 };
                let run = WindowsRun { mode, events, windows: &windows };
                let value = shard.run(Script::SlidingCounter, now, |cmd| run.write(cmd));
                let reply = WindowsReply::parse(value, windows.len()).unwrap();
                let mut kernel = state.clone().unwrap_or_default();
                // Set back for good: it begins anew.
                let is_anew = kernel.seen > now + windows[windows.len() - 1];
                let at = if is_anew { now } else { now.max(kernel.seen) };
                if mode == Mode::Clear {
                    let rings = windows.iter().map(|window| Ring { window: *window, parts: Vec::new() }).collect();
                    state = state.is_some().then_some(Windows { seen: at, rings });
                    all.clear();
                    prop_assert_eq!(&reply.counts, &Some(vec![0; windows.len()]));
                } else {
                    let counts = kernel.add(&windows, now, events);
                    prop_assert_eq!(&reply.counts, &counts);
                    if let Some(counts) = counts {
                        let mut known = if is_anew { Vec::new() } else { all.clone() };
                        known.push((at, events));
                        check_counts(&counts, &windows, at, &known);
                        if mode == Mode::Add {
                            (state, all) = (Some(kernel), known);
                        }
                    }
                }
                prop_assert_eq!(shard.ask::<Option<Vec<u8>>>("GET", &[]), state.as_ref().map(pack_windows));
                prop_assert!(state.is_none() || shard.ask::<i64>("PTTL", &[]) > 0);
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
