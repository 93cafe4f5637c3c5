//! The counter script against the kernel, call by call, on a real server: every reply and every stored byte.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use redis::Cmd;

use super::counters::total;
use super::kernel::{Add, Count, Generation, LARGEST, MOST_CLIENTS, Once, Terms, Verdict};
use crate::clock::Micros;
use crate::kernel::tests::oracle::server::Server;
use crate::wire::{CountReply, CountRun, Script};

pub(super) const START: Micros = 1_700_000_000_000_000;

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
    bytes.extend(state.total.to_le_bytes());
    for number in [state.ends, state.generation, state.seen, state.horizon] {
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
    let is_first = !matches!(run, CountRun::Add { generation: Some(_), .. });
    step_of(is_first, shard, state, terms, now, run)
}

/// The same, of the first shard of a key or of another.
fn step_of(
    is_first: bool,
    shard: &mut Shard,
    state: &mut Option<Count>,
    terms: &Terms,
    now: Micros,
    run: CountRun,
) -> CountReply {
    let reply = CountReply::parse(shard.run(Script::Counter, now, |cmd| run.write(terms, is_first, cmd))).unwrap();
    let before = state.clone();
    let mut count = state.take().unwrap_or_default();
    let expected = match run {
        CountRun::Look => (Verdict::Done, count.look(terms, now, is_first)),
        CountRun::Reset => {
            if before.is_some() {
                count.reset(terms, now, is_first);
            }
            (Verdict::Done, 0)
        }
        CountRun::Add { amount, bound, once, generation } => {
            count.add(terms, now, &Add { amount, bound, once: Some(once), generation })
        }
    };
    *state = (before.is_some() || count != Count::default()).then_some(count);
    assert_eq!((reply.verdict, reply.total, reply.now), (expected.0, expected.1, now), "{run:?}");
    let counts = state.clone().unwrap_or_default().generation(terms, now, is_first);
    assert_eq!(reply.generation, counts, "{run:?} at {now}");
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

fn runs() -> impl Strategy<Value = (i64, bool, CountRun)> {
    let amounts = prop_oneof![4 => -5_i64..100, 1 => Just(LARGEST), 1 => Just(-LARGEST)];
    let bound = prop_oneof![3 => Just(None), 1 => (0_i64..300).prop_map(Some)];
    let fives = || (0_u64..12).prop_map(|fives| START + fives * 5_000_000);
    let generation = (fives(), fives()).prop_map(|(number, ends)| Some(Generation { number, ends }));
    let generation = prop_oneof![2 => Just(None), 1 => generation];
    let add = (amounts, bound, 0_u64..4, 0_u64..40, -3_000_000_i64..12_000_000, generation).prop_map(
        |(amount, bound, client, number, later, generation)| {
            // Bytes that look like a neighbour's, so that a search which is off by some of them shows.
            let client = client * 0x0101_0101_0101_0101;
            (amount, bound, Once { client, number, not_after: later as u64 }, generation)
        },
    );
    let run = prop_oneof![
        1 => Just(CountRun::Look),
        1 => Just(CountRun::Reset),
        8 => add.prop_map(|(amount, bound, once, generation)| CountRun::Add { amount, bound, once, generation }),
    ];
    // Time goes on, mostly; it also swings back a little, and by more than the horizon.
    let later =
        prop_oneof![8 => 0_i64..3_000_000, 1 => -2_000_000_i64..0, 1 => Just(-60_000_000), 1 => Just(50_000_000)];
    (later, any::<bool>(), run)
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
            for (number, (later, mut is_first, mut run)) in runs.into_iter().enumerate() {
                now = now.saturating_add_signed(later);
                if let CountRun::Add { once, generation, .. } = &mut run {
                    once.not_after = now.saturating_add_signed(once.not_after as i64);
                    is_first = generation.is_none();
                }
                step_of(is_first, shard, &mut state, &terms[number % terms.len()], now, run);
            }
            Ok(())
        })
        .unwrap();
}

fn add(client: u64, number: u64, amount: i64, not_after: Micros) -> CountRun {
    CountRun::Add { amount, bound: None, once: Once { client, number, not_after }, generation: None }
}

/// A key of two shards.
struct Split {
    shards: [(Shard, Option<Count>); 2],
    numbers: u64,
}

impl Split {
    fn new() -> Self {
        Self { shards: [(Shard::new(), None), (Shard::new(), None)], numbers: 0 }
    }

    /// Adds to the first shard, or to another one where it is told what the first one counts.
    fn add(&mut self, terms: &Terms, now: Micros, amount: i64, told: Option<Generation>) -> CountReply {
        self.numbers += 1;
        let once = Once { client: 7, number: self.numbers, not_after: now };
        let run = CountRun::Add { amount, bound: None, once, generation: told };
        let (shard, state) = &mut self.shards[usize::from(told.is_some())];
        step(shard, state, terms, now, run)
    }

    /// What a reader adds up while the two clocks say this.
    fn read(&mut self, terms: &Terms, clocks: [Micros; 2]) -> i64 {
        let mut index = 0;
        let replies = self.shards.each_mut().map(|(shard, state)| {
            index += 1;
            step_of(index == 1, shard, state, terms, clocks[index - 1], CountRun::Look)
        });
        total(&replies)
    }
}

const SECOND: Micros = 1_000_000;
const HOUR: Micros = 3_600 * SECOND;
const SPLIT: Terms = Terms { ttl: HOUR, renew: false, horizon: 60 * SECOND, shards: 2, hot: 0 };

/// Each shard cut the end off by its own clock, and a read took them for shards of different times.
#[test]
fn shards_are_one_count_while_clients_have_different_ttls() {
    let (mut split, daily) = (Split::new(), Terms { ttl: 24 * HOUR, ..SPLIT });
    let counts = split.add(&daily, START, 5, None).generation;
    split.add(&daily, START + 1, 7, Some(counts));
    let mut now = START + 10 * SECOND;
    assert_eq!([split.read(&SPLIT, [now, now + 3]), split.read(&daily, [now, now + 3])], [12, 12]);
    // One that wants it to end sooner is heard, and the others go on with what they know.
    let sooner = split.add(&SPLIT, now, 1, None).generation;
    assert_eq!((sooner.number, sooner.ends), (counts.number, now + HOUR));
    split.add(&SPLIT, now + 5, 2, Some(sooner));
    split.add(&daily, now + 6, 4, Some(counts));
    now += HOUR - 1;
    assert_eq!([split.read(&SPLIT, [now, now]), split.read(&daily, [now, now])], [19, 19]);
    now += 1;
    assert_eq!([split.read(&SPLIT, [now, now]), split.read(&daily, [now, now])], [0, 0]);
    // What comes then is a count of its own; a word of before is over.
    let anew = split.add(&SPLIT, now, 1, None).generation;
    assert_eq!(split.add(&SPLIT, now, 2, Some(anew)).verdict, Verdict::Done);
    assert_eq!(split.add(&daily, now, 4, Some(counts)).verdict, Verdict::Over);
    assert_eq!(split.read(&SPLIT, [now, now]), 3);
}

/// Another shard whose clock was ahead said that it had ended, and a first one that was set back moved the end.
#[test]
fn shards_are_one_count_while_clocks_differ() {
    for ahead in [30 * SECOND as i64, -30 * SECOND as i64, 48 * HOUR as i64, -48 * HOUR as i64] {
        let mut split = Split::new();
        let other = |now: Micros| now.saturating_add_signed(ahead);
        let counts = split.add(&SPLIT, START, 5, None).generation;
        // Where it is over by the other clock, the add goes to the first one.
        let is_far = split.add(&SPLIT, other(START), 7, Some(counts)).verdict == Verdict::Over;
        assert_eq!(is_far, ahead > HOUR as i64);
        if is_far {
            split.add(&SPLIT, START, 7, None);
        }
        let last = START + HOUR - 1;
        assert_eq!(split.read(&SPLIT, [last, other(last)]), 12, "{ahead}");
        assert_eq!(split.read(&SPLIT, [last + 1, other(last + 1)]), 0, "{ahead}");
    }
    // The first clock is set back for good: its end moves, and all it has is there.
    let mut split = Split::new();
    let counts = split.add(&SPLIT, START, 5, None).generation;
    split.add(&SPLIT, START, 7, Some(counts));
    let back = START - 2 * HOUR;
    assert_eq!(split.read(&SPLIT, [back, START]), 12);
    let moved = split.add(&SPLIT, back, 1, None).generation;
    assert_eq!((moved.number, moved.ends), (counts.number, back + HOUR));
    assert_eq!(split.read(&SPLIT, [back + HOUR - 1, START + HOUR]), 13);
    // Another time of counting is never taken for the one before, also while the clock is behind that.
    let anew = split.add(&SPLIT, back + HOUR, 1, None).generation;
    assert!(anew.number > counts.number);
    assert_eq!(split.read(&SPLIT, [back + HOUR, START + HOUR]), 1);
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
    assert_eq!((reply.verdict, reply.total), (Verdict::Crowded, MOST_CLIENTS as i64));
    let known = step(&mut shard, &mut state, &terms, late, add(0, 2, 1, until));
    assert_eq!((known.verdict, known.total), (Verdict::Done, MOST_CLIENTS as i64 + 1));
    // Client 1 is the first to be forgotten.
    let free = START + 1 + terms.horizon;
    let reply = step(&mut shard, &mut state, &terms, free, add(9_999, 1, 1, free));
    assert_eq!(reply.verdict, Verdict::Done);
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

/// Whoever made a counter live for ever has it end again with the next add, or the next look.
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
    shard.ask::<()>("PERSIST", &[]);
    step(&mut shard, &mut state, &terms, START + 30_000_000, CountRun::Look);
    let ttl: i64 = shard.ask("PTTL", &[]);
    assert!((30_500..=31_000).contains(&ttl), "{ttl} ms");
    // A look at one that has an end leaves that as it is.
    shard.ask::<()>("PEXPIRE", &["5000"]);
    step(&mut shard, &mut state, &terms, START + 30_000_000, CountRun::Look);
    assert!(shard.ask::<i64>("PTTL", &[]) <= 5_000);
}
