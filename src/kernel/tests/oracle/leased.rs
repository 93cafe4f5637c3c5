//! The script of buckets where it keeps room for leases: every field of a reply, and the whole state.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::home::{NEW_ID, definition, grant_of, home_run};
use super::server::Server;
use super::{Client, ID};
use crate::clock::Micros;
use crate::kernel::bucket::Bucket;
use crate::kernel::leased::{Leased, take};
use crate::kernel::tests::{START, any_limit_of, scaled};
use crate::kernel::{Ask, Batch, Refund, State, UNSPENT, Verdict};
use crate::limit::{BucketShare, Limit, Share};
use crate::plan::common_cost;
use crate::wire::{CloseReply, CloseRun, HomeReply, Kind, Ledger, Reply, Run, Script, Status, leased, pack, unpack};

#[derive(Clone, Debug)]
struct Step {
    /// How far the clock moves before it, in thousandths of a refill.
    jump: i64,
    reset: bool,
    /// Which of the leases so far come back, and whether unspent.
    refunds: Vec<(usize, bool)>,
    debt: u64,
    asks: Vec<Ask>,
    /// Whether the last ask is a lease, and for how many times the usual time.
    lease: u64,
}

fn any_step() -> impl Strategy<Value = Step> {
    let jump = prop_oneof![6 => Just(0i64), 8 => 0i64..60, 6 => 0i64..1_200, 2 => -1_000i64..0, 1 => -4_000i64..4_000];
    let ask = (1u64..4, 0u64..20).prop_map(|(permits, count)| Ask { permits, count });
    let reset = prop_oneof![20 => Just(false), 1 => Just(true)];
    let refunds = prop::collection::vec((0usize..50, any::<bool>()), 0..3);
    let debt = prop_oneof![10 => Just(0u64), 1 => 1u64..90];
    let lease = prop_oneof![2 => Just(0u64), 6 => Just(1u64), 1 => Just(2u64)];
    (jump, reset, refunds, debt, prop::collection::vec(ask, 0..4), lease)
        .prop_map(|(jump, reset, refunds, debt, asks, lease)| Step { jump, reset, refunds, debt, asks, lease })
}

struct Oracle {
    client: Client,
    share: BucketShare,
    leases: Vec<Refund>,
}

impl Oracle {
    fn new(server: &Server, limit: &Limit, number: usize) -> Self {
        let Share::Bucket(share) = Share::whole(limit) else { unreachable!("only of buckets") };
        Self { client: Client::new(server, number, true), share, leases: Vec::new() }
    }

    fn stored(&mut self) -> Option<(Bucket, Leased)> {
        let bytes = self.client.stored()?;
        let packed = unpack(&bytes);
        assert_eq!((packed.share, packed.ledger), (Share::Bucket(self.share), b"ledger".to_vec()));
        let State::Bucket(bucket) = packed.state else { panic!("{:?}", packed.state) };
        Some((bucket, leased(&bytes).unwrap_or_default()))
    }

    fn check(&mut self, step: &Step, held_for: Micros) {
        let share = Share::Bucket(self.share);
        let given = |(which, unspent): &(usize, bool)| {
            let lease = self.leases.get(which % self.leases.len().max(1))?;
            Some(Refund { line: if *unspent { UNSPENT } else { 0 }, ..*lease })
        };
        let refunds: Vec<Refund> = step.refunds.iter().filter_map(given).collect();
        // A lease is for single permits.
        let mut asks = step.asks.clone();
        if step.lease > 0 {
            asks.iter_mut().last().into_iter().for_each(|last| last.permits = 1);
        }
        let held_for = if asks.is_empty() { 0 } else { step.lease * held_for };
        let batch = Batch { reset: step.reset, refunds: &refunds, debt: step.debt, asks: &asks, held_for };
        let home = pack(Kind::Home, ID, &share, None, b"ledger");
        let old = self.stored();
        let run = Run { id: ID, home: &home, least_ttl: 0, touch: false, batch };
        let Reply::Decided { header, verdicts, .. } = self.client.acquire(Script::acquire(&share), &run) else {
            panic!("{step:?}: nothing was decided");
        };
        let mut ours = vec![Verdict::default(); asks.len()];
        let (new, our_header) = take(old, &self.share, header.now, &batch, &mut ours);
        assert_eq!((header, &verdicts[..]), (our_header, &ours[..]), "{old:?} {step:?}");
        let stored = self.stored();
        if stored == old {
            // Not written: then time alone must explain what the kernel made of it.
            let idle = take(old, &self.share, header.now, &Batch::default(), &mut []).0;
            assert_eq!(idle, new, "{old:?} {step:?}");
        } else {
            assert_eq!(stored, Some(new), "{old:?} {step:?}");
            let (_, Leased { counted, held_for, .. }) = new;
            let ttl = self.client.ttl() + 900;
            assert!(ttl >= (counted + 2 * held_for).saturating_sub(header.now) as i64 / 1_000, "{ttl} ms: {new:?}");
        }
        if let (true, Some(verdict)) = (held_for > 0, verdicts.last()) {
            self.leases.push(Refund { permits: verdict.granted, at: header.at, line: UNSPENT });
        }
    }
}

/// A clock that jumps, over leases of a tenth of a refill to twice as long as one.
#[test]
fn the_script_keeps_room_as_the_kernel_does() {
    let server = Server::start(&[]);
    let mut runner = TestRunner::deterministic();
    let limit = prop_oneof![any_limit_of(0), any_limit_of(1)];
    let history = (limit, 100u64..2_000, prop::collection::vec(any_step(), 40));
    let mut with_leases = 0;
    for number in 0..300 {
        let (limit, held_for, steps) = history.new_tree(&mut runner).unwrap().current();
        let mut oracle = Oracle::new(&server, &limit, number);
        let refill = oracle.share.refill;
        let (mut now, held_for) = (START, scaled(refill, held_for).max(1));
        for step in steps {
            let by = scaled(refill, step.jump.unsigned_abs());
            now = if step.jump < 0 { now - by } else { now + by };
            oracle.client.set_clock(now);
            oracle.check(&step, held_for);
            with_leases += u32::from(oracle.stored().is_some_and(|(_, leased)| leased != Leased::default()));
        }
    }
    assert!(with_leases > 3_000, "only {with_leases} of 12,000 steps left leases behind");
}

/// A share that is closed while some of it is held comes home without that, and without what could not come back meanwhile.
#[test]
fn what_is_held_of_a_share_does_not_come_home() {
    let server = Server::start(&[]);
    for (pause, left) in [(0, 60), (50, 60), (150, 100)] {
        let mut client = Client::new(&server, pause as usize, true);
        let share = Share::whole(&"token-bucket 1/us burst 100".parse().unwrap());
        client.set_clock(START);
        client.put(&pack(Kind::Lent, ID, &share, None, b""), 60_000);
        let batch = Batch { asks: &[Ask { permits: 1, count: 40 }], held_for: 50, ..Batch::default() };
        client.acquire(Script::acquire(&share), &Run { id: ID, home: &[], least_ttl: 9_000, touch: false, batch });
        client.set_clock(START + pause);
        let reply = client.run(Script::Close, |cmd| CloseRun { id: ID, ttl: 600_000 }.write(cmd));
        let CloseReply::Closed { tombstone: Some(tombstone), .. } = CloseReply::parse(reply).unwrap() else {
            panic!("not closed");
        };
        let State::Bucket(bucket) = unpack(&tombstone).state else { unreachable!() };
        assert_eq!(bucket.level, left, "after {pause} µs");
    }
}

/// Home lends half of itself while some of it is held: what it has is divided, and what is held keeps its place at home.
#[test]
fn what_is_held_of_home_stays_with_it() {
    let server = Server::start(&[]);
    for (pause, [lent, kept]) in [(0, [30, 30]), (50, [30, 30]), (150, [50, 50])] {
        let mut client = Client::new(&server, pause as usize, true);
        let limit: Limit = "token-bucket 2/2us burst 100".parse().unwrap();
        let (share, ledger) = (Share::whole(&limit), Ledger::new(definition(limit)));
        client.set_clock(START);
        client.put(&pack(Kind::Home, ID, &share, None, &ledger.encode()), 60_000);
        let take = |client: &mut Client, count, held_for| {
            let batch = Batch { asks: &[Ask { permits: 1, count }], held_for, ..Batch::default() };
            let run = Run { id: ID, home: &[], least_ttl: 9_000, touch: false, batch };
            let Reply::Decided { verdicts, .. } = client.acquire(Script::acquire(&share), &run) else { panic!() };
            verdicts[0].granted
        };
        assert_eq!(take(&mut client, 40, 50), 40);
        client.set_clock(START + pause);
        let cost = common_cost(&limit, 2);
        let ledger = Ledger { cost, grants: vec![grant_of(1, (1, 50), cost)], ..ledger };
        let value = client.run(Script::home(&share), |cmd| home_run(Some(ID), &ledger, 1).write(cmd));
        let HomeReply::Written { id: NEW_ID, ledger } = HomeReply::parse(value).unwrap() else { panic!() };
        let Status::Pending { state, .. } = &Ledger::decode(&ledger).unwrap().grants[0].status else { panic!() };
        let level = |bytes: &[u8]| match unpack(bytes).state {
            State::Bucket(bucket) => bucket.level / cost,
            other => panic!("{other:?}"),
        };
        let home = client.stored().unwrap();
        assert_eq!([level(state), level(&home)], [lent, kept], "after {pause} µs");
        assert_eq!(leased(&home).map(|leased| leased.lately), (pause < 100).then_some(40));
        assert!(leased(state).is_none());
    }
}
