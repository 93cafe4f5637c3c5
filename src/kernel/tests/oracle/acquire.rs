//! The acquire scripts: every field of a reply, and the whole state.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::server::Server;
use super::{Client, ID, OTHER_ID};
use crate::kernel::tests::{Bench, START, any_kind, scaled};
use crate::kernel::{Ask, Batch, Header, Refund, State};
use crate::limit::{BucketShare, Limit, Share};
use crate::wire::{Kind, Packed, Reply, Run, Script, pack, unpack};

#[derive(Clone, Debug)]
struct Step {
    /// How far the clock moves before it, in thousandths of a refill.
    jump: i64,
    reset: bool,
    touch: bool,
    /// Whether the caller has home's ledger.
    knows: bool,
    refunds: Vec<usize>,
    debt: u64,
    asks: Vec<Ask>,
}

impl Step {
    fn take(count: u64) -> Self {
        let asks = vec![Ask { permits: 1, count }];
        Self { jump: 0, reset: false, touch: false, knows: true, refunds: vec![], debt: 0, asks }
    }
}

fn any_step() -> impl Strategy<Value = Step> {
    let jump = prop_oneof![6 => Just(0i64), 8 => 0i64..60, 4 => 0i64..1_200, 2 => -1_000i64..0, 1 => -4_000i64..4_000];
    let mode = prop_oneof![28 => Just((false, false)), 1 => Just((true, false)), 3 => Just((false, true))];
    let refunds = prop::collection::vec(0usize..50, 0..3);
    let debt = prop_oneof![8 => Just(0u64), 1 => 1u64..90, 1 => Just(100_000_000_000u64)];
    let ask =
        (1u64..70, 0u64..6).prop_map(|(permits, count)| Ask { permits: permits % 9 + permits / 60 * 60 + 1, count });
    (jump, mode, any::<bool>(), refunds, debt, prop::collection::vec(ask, 0..6)).prop_map(
        |(jump, (reset, touch), knows, refunds, debt, asks)| Step { jump, reset, touch, knows, refunds, debt, asks },
    )
}

struct Oracle {
    client: Client,
    ledger: Vec<u8>,
    bench: Bench,
    charged: Vec<Refund>,
    ttl: u64,
}

impl Oracle {
    fn new(server: &Server, limit: &Limit, number: usize, set_clock: bool) -> Self {
        let client = Client::new(server, number, set_clock);
        let ledger = vec![0xfe; number % 5];
        Self { client, ledger, bench: Bench::new(limit), charged: Vec::new(), ttl: 600_000 }
    }

    /// The state that is stored; all around it must be as it was created.
    fn state(&self, bytes: &[u8]) -> State {
        let Packed { kind, id, share, state, ledger } = unpack(bytes);
        assert_eq!((kind, id, share), (Kind::Home, ID, self.bench.share.clone()));
        assert_eq!(ledger, self.ledger, "the ledger is not the script's to touch");
        state
    }

    /// One run on both sides; every field of the reply and the whole state must be equal.
    fn check(&mut self, step: &Step) {
        let share = self.bench.share.clone();
        let refunds: Vec<Refund> = step
            .refunds
            .iter()
            .filter(|_| !self.charged.is_empty())
            .map(|which| self.charged[which % self.charged.len()])
            .collect();
        let before = self.client.stored();
        self.bench.state = before.as_ref().map(|bytes| self.state(bytes));
        let old = self.bench.state.clone();
        let home = pack(Kind::Home, ID, &share, None, &self.ledger);
        let batch = Batch { reset: step.reset, refunds: &refunds, debt: step.debt, asks: &step.asks, held_for: 0 };
        let id = if step.knows { ID } else { OTHER_ID };
        let run = Run { id, home: &home, least_ttl: self.ttl, touch: step.touch, batch };
        let Reply::Decided { id, ledger, header, verdicts, .. } = self.client.acquire(Script::acquire(&share), &run)
        else {
            panic!("{share:?} {step:?}: nothing was decided");
        };
        assert_eq!(id, ID);
        assert_eq!(ledger, Some(self.ledger.clone()).filter(|ledger| !step.knows && !ledger.is_empty()));

        let (ours, our_verdicts) = self.bench.run(header.now, &batch);
        assert_eq!(header, ours, "{share:?} {old:?} {step:?}");
        assert_eq!(verdicts[..], our_verdicts, "{share:?} {old:?} {step:?}");
        self.check_stored(before.as_deref(), old, &header, step);

        for (ask, verdict) in step.asks.iter().zip(&verdicts) {
            let need = ask.permits as i64 * share.cost();
            self.charged.extend((1..=verdict.granted.min(3) as i64).map(|call| Refund {
                permits: ask.permits,
                at: header.at,
                line: verdict.line + call * need,
            }));
        }
    }

    /// Written just when something changed, and then with a time to live that covers what it remembers.
    fn check_stored(&mut self, before: Option<&[u8]>, old: Option<State>, header: &Header, step: &Step) {
        let share = self.bench.share.clone();
        let after = self.client.stored();
        if after.as_deref() == before {
            // Not written: then time alone must explain what the kernel made of it.
            let mut idle = Bench { share: share.clone(), state: old };
            idle.run(header.now, &Batch::default());
            assert_eq!(idle.state, self.bench.state, "{share:?} {step:?}");
            return;
        }
        assert_eq!(Some(self.state(&after.expect("written"))), self.bench.state, "{step:?}");
        let full = (header.at - header.now + self.bench.time_for(header.missing)) / 1_000;
        let ttl = self.client.ttl();
        assert!(ttl > 0 && ttl + 900 >= full as i64, "{ttl} ms to live, {full} ms until it is as new");
    }
}

/// A clock that jumps: expiry of everything, stand-stills, and clocks set back for good.
#[test]
fn scripts_equal_kernels_whatever_the_clock_does() {
    let server = Server::start(&[]);
    let mut runner = TestRunner::deterministic();
    let history = (any_kind(), prop::collection::vec(any_step(), 30));
    for number in 0..400 {
        let (limit, steps) = history.new_tree(&mut runner).unwrap().current();
        let mut oracle = Oracle::new(&server, &limit, number, true);
        let refill = oracle.bench.refill();
        let mut now = START;
        for step in steps {
            let by = scaled(refill, step.jump.unsigned_abs());
            now = if step.jump < 0 { now - by } else { now + by };
            oracle.client.set_clock(now);
            oracle.check(&step);
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
        "token-bucket 20000/s burst 40 + fixed-window 20/700us + sliding-window 30/900us precision 7 + sliding-log 40/2ms",
    ]
    .into_iter()
    .enumerate()
    {
        let mut oracle = Oracle::new(&server, &text.parse().expect(text), number, false);
        for _ in 0..400 {
            let step = any_step().new_tree(&mut runner).unwrap().current();
            oracle.check(&step);
        }
    }
}

/// A key that has expired is as new; a script never leaves one without a time to live.
#[test]
fn an_expired_key_is_as_new() {
    let server = Server::start(&[]);
    let limit: Limit = "token-bucket 1/ms burst 5".parse().unwrap();
    let mut oracle = Oracle::new(&server, &limit, 0, false);
    oracle.ttl = 1;
    let take = Step::take(5);
    oracle.check(&take);
    let bytes = oracle.client.stored().unwrap();
    oracle.client.put(&bytes, 1);
    while oracle.client.stored().is_some() {}
    oracle.check(&take);
    assert_eq!(oracle.charged.len(), 6, "three receipts a run: all five were granted again");
}

/// A burst that was lowered under way counts from the next call on.
#[test]
fn a_share_that_changes_is_followed() {
    let server = Server::start(&[]);
    let limit: Limit = "token-bucket 100/s burst 50".parse().unwrap();
    let mut oracle = Oracle::new(&server, &limit, 0, true);
    oracle.client.set_clock(START);
    oracle.check(&Step::take(3));
    for burst in [20u64, 90, 1] {
        let Share::Bucket(share) = oracle.bench.share else { unreachable!() };
        let capacity = burst as i64 * share.cost;
        let refill = (capacity as u64).div_ceil(share.rate as u64);
        let bytes = oracle.client.stored().unwrap();
        let state = oracle.state(&bytes);
        oracle.bench.share = Share::Bucket(BucketShare { burst, capacity, refill, ..share });
        oracle.client.put(&pack(Kind::Home, ID, &oracle.bench.share, Some(&state), &oracle.ledger), 60_000);
        oracle.check(&Step::take(7));
    }
}
