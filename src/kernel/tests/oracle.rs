//! The scripts against the kernels, call by call, on a real server: equal to the permit.
//!
//! Two clocks: the server's own, echoed by each reply and fed to the kernel; and one that the test sets, which jumps
//! forth and back by anything from a microsecond to several refills.

#[path = "../../../tests/support/server.rs"]
#[allow(dead_code, unreachable_pub)]
mod server;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use redis::Value;
use server::Server;

use super::{Bench, START, any_limit, scaled};
use crate::clock::Micros;
use crate::kernel::bucket::Bucket;
use crate::kernel::fixed_window::FixedWindow;
use crate::kernel::sliding_window::{Part, SlidingWindow};
use crate::kernel::{Ask, Batch, Header, Refund, State, Verdict, batch::NEVER};
use crate::limit::{BucketShare, Limit, Share};

const HOME: u8 = 0;
const LENT: u8 = 1;
const TOMBSTONE: u8 = 2;
const ID: [u8; 16] = *b"0123456789abcdef";

/// Replaces the server's clock by two keys that the test sets.
fn with_set_clock(script: &str) -> String {
    let set = script.replace("redis.call('TIME')", "{redis.call('GET', 'clock:s'), redis.call('GET', 'clock:us')}");
    assert_ne!(set, script, "the script reads the time in another way");
    set
}

fn script(share: &Share) -> &'static str {
    match share {
        Share::Bucket(_) => include_str!("../../../lua/bucket.lua"),
        Share::Fixed(_) => include_str!("../../../lua/fixed_window.lua"),
        Share::Sliding(_) => include_str!("../../../lua/sliding_window.lua"),
    }
}

/// A sub-key as it is stored: version, kind, grant id, share, state, and a ledger that scripts must leave alone.
fn pack(kind: u8, share: &Share, state: Option<&State>, ledger: &[u8]) -> Vec<u8> {
    let mut bytes = vec![1, kind];
    bytes.extend(ID);
    let mut put = |number: i64| bytes.extend(number.to_le_bytes());
    match (share, state) {
        (Share::Bucket(share), state) => {
            let bucket = match state {
                Some(State::Bucket(bucket)) => *bucket,
                _ => Bucket { level: share.capacity, seen: 0 },
            };
            put(share.rate);
            put(share.cost);
            put(share.burst as i64);
            bytes.push(share.paced.into());
            bytes.extend(bucket.level.to_le_bytes());
            bytes.extend(bucket.seen.to_le_bytes());
        }
        (Share::Fixed(share), state) => {
            let window = match state {
                Some(State::Fixed(window)) => *window,
                _ => FixedWindow { start: 0, used: 0 },
            };
            for number in [share.permits, share.window, window.start, window.used] {
                put(number as i64);
            }
        }
        (Share::Sliding(share), state) => {
            let window = match state {
                Some(State::Sliding(window)) => (**window).clone(),
                _ => SlidingWindow::default(),
            };
            for number in [share.permits, share.window, share.step, window.seen, window.used] {
                put(number as i64);
            }
            bytes.extend((window.parts.len() as u32).to_le_bytes());
            for part in window.parts {
                bytes.extend(part.start.to_le_bytes());
                bytes.extend(part.permits.to_le_bytes());
            }
        }
    }
    bytes.extend(ledger);
    bytes
}

/// The state within a stored sub-key; whatever stands behind it must be the ledger.
fn unpack(share: &Share, bytes: &[u8], ledger: &[u8]) -> State {
    let number = |at: usize| i64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let (state, end) = match share {
        Share::Bucket(_) => (State::Bucket(Bucket { level: number(43), seen: number(51) as Micros }), 59),
        Share::Fixed(_) => (State::Fixed(FixedWindow { start: number(34) as Micros, used: number(42) as u64 }), 50),
        Share::Sliding(_) => {
            let count = u32::from_le_bytes(bytes[58..62].try_into().unwrap()) as usize;
            let part = |index: usize| Part {
                start: number(62 + index * 16) as Micros,
                permits: number(70 + index * 16) as u64,
            };
            let window = SlidingWindow {
                parts: (0..count).map(part).collect(),
                used: number(50) as u64,
                seen: number(42) as Micros,
            };
            (State::Sliding(Box::new(window)), 62 + count * 16)
        }
    };
    assert_eq!(&bytes[end..], ledger, "the ledger is not the script's to touch");
    state
}

#[derive(Clone, Debug)]
struct Run {
    /// How far the clock moves before it, in thousandths of a refill.
    jump: i64,
    reset: bool,
    refunds: Vec<usize>,
    debt: u64,
    asks: Vec<Ask>,
}

fn any_run() -> impl Strategy<Value = Run> {
    let jump = prop_oneof![6 => Just(0i64), 8 => 0i64..60, 4 => 0i64..1_200, 2 => -1_000i64..0, 1 => -4_000i64..4_000];
    let debt = prop_oneof![8 => Just(0u64), 1 => 1u64..90, 1 => Just(100_000_000_000u64)];
    let ask =
        (1u64..70, 0u64..6).prop_map(|(permits, count)| Ask { permits: permits % 9 + permits / 60 * 60 + 1, count });
    (jump, prop::bool::weighted(0.03), prop::collection::vec(0usize..50, 0..3), debt, prop::collection::vec(ask, 0..6))
        .prop_map(|(jump, reset, refunds, debt, asks)| Run { jump, reset, refunds, debt, asks })
}

struct Oracle {
    connection: redis::Connection,
    key: String,
    ledger: Vec<u8>,
    bench: Bench,
    script: redis::Script,
    charged: Vec<Refund>,
    ttl: u64,
}

impl Oracle {
    fn reply(&mut self, run: &Run, id: &[u8], home: &[u8], refunds: &[Refund]) -> Vec<Value> {
        let mut call = self.script.prepare_invoke();
        call.key(&self.key).arg(id).arg(home).arg(self.ttl).arg(u8::from(run.reset)).arg(run.debt).arg(refunds.len());
        for refund in refunds {
            call.arg(refund.permits).arg(refund.at).arg(refund.line);
        }
        for ask in &run.asks {
            call.arg(ask.permits).arg(ask.count);
        }
        call.invoke(&mut self.connection).unwrap()
    }

    fn stored(&mut self) -> Option<Vec<u8>> {
        redis::cmd("GET").arg(&self.key).query(&mut self.connection).unwrap()
    }

    /// One run on both sides; every field of the reply and the whole state must be equal.
    fn check(&mut self, run: &Run) {
        let share = self.bench.share;
        let refunds: Vec<Refund> = run
            .refunds
            .iter()
            .filter(|_| !self.charged.is_empty())
            .map(|which| self.charged[which % self.charged.len()])
            .collect();
        let before = self.stored();
        self.bench.state = before.as_ref().map(|bytes| unpack(&share, bytes, &self.ledger));
        let home = pack(HOME, &share, None, &self.ledger);
        let reply = self.reply(run, b"", &home, &refunds);
        let numbers: Vec<i64> = reply[3..].iter().map(|value| redis::from_redis_value_ref(value).unwrap()).collect();
        assert_eq!(reply[..3], [Value::Int(1), Value::Int(0), Value::BulkString(ID.into())]);

        let now = numbers[0] as Micros;
        let old = self.bench.state.clone();
        let batch = Batch { reset: run.reset, refunds: &refunds, debt: run.debt, asks: &run.asks };
        let (header, verdicts) = self.bench.run(now, &batch);
        let theirs = Header { now, at: numbers[1] as Micros, level: numbers[2], missing: numbers[3] };
        assert_eq!(theirs, header, "{share:?} {old:?} {run:?}");
        let their_verdicts: Vec<Verdict> = numbers[4..]
            .chunks(3)
            .map(|verdict| Verdict {
                granted: verdict[0] as u64,
                lack: if verdict[1] == -1 { NEVER } else { verdict[1] },
                line: verdict[2],
            })
            .collect();
        assert_eq!(their_verdicts, verdicts, "{share:?} {old:?} {run:?}");
        self.check_stored(before.as_deref(), old, &header, run);

        for (ask, verdict) in run.asks.iter().zip(&verdicts) {
            let need = ask.permits as i64 * share.cost();
            self.charged.extend((1..=verdict.granted.min(3) as i64).map(|call| Refund {
                permits: ask.permits,
                at: header.at,
                line: verdict.line + call * need,
            }));
        }
    }

    /// Written just when something changed, and then with a time to live that covers what it remembers.
    fn check_stored(&mut self, before: Option<&[u8]>, old: Option<State>, header: &Header, run: &Run) {
        let share = self.bench.share;
        let after = self.stored();
        if after.as_deref() == before {
            // Not written: then time alone must explain what the kernel made of it.
            let mut idle = Bench { share, state: old };
            idle.run(header.now, &Batch::default());
            assert_eq!(idle.state, self.bench.state, "{share:?} {run:?}");
            return;
        }
        assert_eq!(Some(unpack(&share, &after.expect("written"), &self.ledger)), self.bench.state, "{run:?}");
        let ttl: i64 = redis::cmd("PTTL").arg(&self.key).query(&mut self.connection).unwrap();
        let full = (header.at - header.now + self.bench.time_for(header.missing)) / 1_000;
        assert!(ttl > 0 && ttl + 900 >= full as i64, "{ttl} ms to live, {full} ms until it is as new");
    }
}

fn oracle(server: &Server, limit: &Limit, number: usize, set_clock: bool) -> Oracle {
    let bench = Bench::new(limit);
    let source = script(&bench.share);
    Oracle {
        connection: server.connection(),
        key: format!("oracle:{number}"),
        ledger: vec![0xfe; number % 5],
        script: redis::Script::new(&if set_clock { with_set_clock(source) } else { source.into() }),
        bench,
        charged: Vec::new(),
        ttl: 600_000,
    }
}

fn set_clock(connection: &mut redis::Connection, now: Micros) {
    let set = [("clock:s", now / 1_000_000), ("clock:us", now % 1_000_000)];
    redis::cmd("MSET").arg(&set).query::<()>(connection).unwrap();
}

/// A clock that jumps: expiry of everything, stand-stills, and clocks set back for good.
#[test]
fn scripts_equal_kernels_whatever_the_clock_does() {
    let server = Server::start(&[]);
    let mut runner = TestRunner::deterministic();
    let history = (any_limit(), prop::collection::vec(any_run(), 30));
    for number in 0..400 {
        let (limit, runs) = history.new_tree(&mut runner).unwrap().current();
        let mut oracle = oracle(&server, &limit, number, true);
        let refill = oracle.bench.refill();
        let mut now = START;
        for run in runs {
            let by = scaled(refill, run.jump.unsigned_abs());
            now = if run.jump < 0 { now - by } else { now + by };
            set_clock(&mut oracle.connection, now);
            oracle.check(&run);
        }
    }
}

/// The server's own clock: limits whose refill is of the order of a round trip.
#[test]
fn scripts_equal_kernels_on_the_servers_clock() {
    let server = Server::start(&[]);
    let mut runner = TestRunner::deterministic();
    for (number, text) in [
        "token-bucket 20000/s burst 40",
        "token-bucket 999983/s burst 7",
        "leaky-bucket 7919/s capacity 3",
        "pacing-queue 30011/s capacity 50",
        "fixed-window 20/700us",
        "sliding-window 30/900us precision 7",
        "sliding-log 40/800us",
        "token-bucket 1000000007/day burst 4099",
    ]
    .into_iter()
    .enumerate()
    {
        let mut oracle = oracle(&server, &text.parse().expect(text), number, false);
        for _ in 0..400 {
            let run = any_run().new_tree(&mut runner).unwrap().current();
            oracle.check(&run);
        }
    }
}

/// A key that has expired is as new; a script never leaves one without a time to live.
#[test]
fn an_expired_key_is_as_new() {
    let server = Server::start(&[]);
    let limit: Limit = "token-bucket 1/ms burst 5".parse().unwrap();
    let mut oracle = oracle(&server, &limit, 0, false);
    oracle.ttl = 1;
    let take = Run { jump: 0, reset: false, refunds: vec![], debt: 0, asks: vec![Ask { permits: 1, count: 5 }] };
    oracle.check(&take);
    let expire: bool = redis::cmd("PEXPIRE").arg(&oracle.key).arg(1).query(&mut oracle.connection).unwrap();
    assert!(expire);
    while oracle.stored().is_some() {}
    oracle.check(&take);
    assert_eq!(oracle.charged.len(), 6, "three receipts a run: all five were granted again");
}

/// A burst that was lowered under way counts from the next call on.
#[test]
fn a_share_that_changes_is_followed() {
    let server = Server::start(&[]);
    let limit: Limit = "token-bucket 100/s burst 50".parse().unwrap();
    let mut oracle = oracle(&server, &limit, 0, true);
    set_clock(&mut oracle.connection, START);
    let take = |count| Run { jump: 0, reset: false, refunds: vec![], debt: 0, asks: vec![Ask { permits: 1, count }] };
    oracle.check(&take(3));
    for burst in [20u64, 90, 1] {
        let Share::Bucket(share) = oracle.bench.share else { unreachable!() };
        let capacity = burst as i64 * share.cost;
        let refill = (capacity as u64).div_ceil(share.rate as u64);
        let bytes = oracle.stored().unwrap();
        let state = unpack(&oracle.bench.share, &bytes, &oracle.ledger);
        oracle.bench.share = Share::Bucket(BucketShare { burst, capacity, refill, ..share });
        let bytes = pack(HOME, &oracle.bench.share, Some(&state), &oracle.ledger);
        redis::cmd("SET").arg(&oracle.key).arg(bytes).query::<()>(&mut oracle.connection).unwrap();
        oracle.check(&take(7));
    }
}

/// Another grant id, a tombstone or nothing there: nothing is charged, nothing is created.
#[test]
fn a_stale_caller_charges_and_creates_nothing() {
    let server = Server::start(&[]);
    for (number, text) in ["token-bucket 5/s", "fixed-window 5/s", "sliding-window 5/s"].into_iter().enumerate() {
        let mut oracle = oracle(&server, &text.parse().unwrap(), number, false);
        let run = Run { jump: 0, reset: true, refunds: vec![], debt: 3, asks: vec![Ask { permits: 1, count: 2 }] };
        let stale = |reply: Vec<Value>| reply[..2] == [Value::Int(1), Value::Int(1)];
        assert!(stale(oracle.reply(&run, &ID, b"", &[])), "nothing there");
        assert_eq!(oracle.stored(), None);
        for (kind, id) in [(LENT, *b"another id here!"), (TOMBSTONE, ID)] {
            let bytes = pack(kind, &oracle.bench.share, None, b"");
            redis::cmd("SET").arg(&oracle.key).arg(&bytes).query::<()>(&mut oracle.connection).unwrap();
            assert!(stale(oracle.reply(&run, &id, b"home", &[])), "{text}: kind {kind}");
            assert_eq!(oracle.stored(), Some(bytes));
        }
        let bytes = pack(LENT, &oracle.bench.share, None, b"");
        redis::cmd("SET").arg(&oracle.key).arg(&bytes).query::<()>(&mut oracle.connection).unwrap();
        assert!(!stale(oracle.reply(&run, &ID, b"", &[])), "{text}: the id it was lent under");
        assert_ne!(oracle.stored(), Some(bytes));
    }
}
