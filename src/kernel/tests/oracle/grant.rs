//! The grant scripts against the pure hand-over: the reply, what is stored at home, and what is pending.

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

use super::server::Server;
use super::{Client, ID, OTHER_ID};
use crate::clock::Micros;
use crate::kernel::lend::{Lent, lend};
use crate::kernel::tests::lend::{Scene, any_scene};
use crate::kernel::tests::{Bench, START, scaled};
use crate::kernel::{Batch, State};
use crate::key::Slot;
use crate::limit::{Limit, Share};
use crate::plan::{common_cost, split};
use crate::wire::{Grant, GrantId, GrantReply, GrantRun, Kind, Ledger, Script, Status, pack, unpack};

const NEW_ID: GrantId = GrantId { stamp: ID.stamp + 1, random: 7 };
const NOT_AFTER: Micros = START + 1_000_000;

fn grant_of(number: u16, (permits, burst): (u64, u64)) -> Grant {
    let id = GrantId { stamp: 1_700_000_000_000 + u64::from(number), random: u64::from(number) << 50 };
    let status = Status::Pending { not_after: NOT_AFTER, state: Vec::new() };
    Grant { slot: Slot::new(number).unwrap(), id, permits, burst, status }
}

/// One home, and what it must be by the pure functions.
struct Home {
    client: Client,
    id: GrantId,
    ledger: Ledger,
    share: Share,
    state: State,
    now: Micros,
}

impl Home {
    fn new(server: &Server, number: usize, scene: &Scene) -> Self {
        let (bench, now) = scene.home();
        Self::with(Client::new(server, number, true), scene.limit, scene.shards(), bench, now)
    }

    fn with(mut client: Client, limit: Limit, shards: usize, bench: Bench, now: Micros) -> Self {
        let ledger = Ledger::new(limit, 3, shards as u16);
        let (share, state) = (bench.share, bench.state.expect("it has a history"));
        client.put(&pack(Kind::Home, ID, &share, Some(&state), &ledger.encode()), 600_000);
        client.set_clock(now);
        Self { client, id: ID, ledger, share, state, now }
    }

    /// Runs the script and the pure function: every byte must be equal.
    fn grant(&mut self, grants: Vec<Grant>, empty: &[bool]) {
        let mut ledger = self.ledger.clone();
        ledger.grants.extend(grants);
        ledger.cost = common_cost(&ledger.limit, ledger.shards.into());
        let new = ledger.grants.len() - empty.len();
        let share = ledger.home_share();
        let lent: Vec<Lent> = ledger.grants[new..]
            .iter()
            .zip(empty)
            .map(|(grant, empty)| Lent { share: ledger.share_of(grant), empty: *empty })
            .collect();
        let (state, states) = lend(Some(self.state.clone()), &self.share, self.now, &share, &lent);

        let id = self.id.after(0, 7);
        let run = GrantRun { expected: self.id, id, least_ttl: 5_000, ledger: &ledger, empty };
        let value = self.client.run(Script::grant(&share), |cmd| run.write(cmd));
        let reply = GrantReply::parse(value).unwrap();

        for ((grant, lent), lent_state) in ledger.grants[new..].iter_mut().zip(&lent).zip(&states) {
            let state = pack(Kind::Lent, grant.id, &lent.share, Some(lent_state), b"");
            grant.status = Status::Pending { not_after: NOT_AFTER, state };
        }
        let GrantReply::Granted { id: granted, ledger: bytes } = reply else { panic!("{reply:?}") };
        assert_eq!(granted, id);
        assert_eq!(Ledger::decode(&bytes).as_ref(), Ok(&ledger), "{:?} of {:?}", lent, self.state);
        let stored = self.client.stored().unwrap();
        assert_eq!(unpack(&stored), unpack(&pack(Kind::Home, id, &share, Some(&state), &bytes)), "{:?}", self.state);
        self.check_ttl(&share, &state);
        (self.id, self.ledger, self.share, self.state) = (id, ledger, share, state);
    }

    /// As long as asked for, and until home is as new.
    fn check_ttl(&mut self, share: &Share, state: &State) {
        let mut bench = Bench { share: *share, state: Some(state.clone()) };
        let (header, _) = bench.run(self.now, &Batch::default());
        let full = (header.at - self.now + bench.time_for(header.missing)) / 1_000;
        let ttl = self.client.ttl();
        assert!(ttl > 4_000 && ttl + 900 >= full as i64, "{ttl} ms to live, {full} ms until it is as new");
    }
}

/// Shares leave in two steps, with time in between, and are marked live in a third.
#[test]
fn scripts_hand_over_what_the_kernels_do() {
    let server = Server::start(&[]);
    let mut runner = TestRunner::deterministic();
    for number in 0..1_500 {
        let scene = any_scene().new_tree(&mut runner).unwrap().current();
        let mut home = Home::new(&server, number, &scene);
        let shares = split(&scene.limit, scene.shards());
        let grants: Vec<Grant> = (1..).zip(&shares[1..]).map(|(slot, share)| grant_of(slot, *share)).collect();
        let empty: Vec<bool> = grants.iter().zip(&scene.shares).map(|(_, (_, empty))| *empty).collect();
        let first = scene.shares.iter().take(grants.len()).take_while(|(at_once, _)| *at_once).count();
        home.grant(grants[..first].to_vec(), &empty[..first]);

        home.now += scaled(1_000_000, scene.jump.unsigned_abs());
        home.client.set_clock(home.now);
        home.grant(grants[first..].to_vec(), &empty[first..]);

        for grant in &mut home.ledger.grants {
            grant.status = Status::Live;
        }
        home.grant(Vec::new(), &[]);
    }
}

/// In floating point 49 · (1/49) is less than 1. All the same no share has a permit that home then owes.
#[test]
fn proportions_that_round_make_no_permit() {
    let server = Server::start(&[]);
    for text in ["token-bucket 49/h", "fixed-window 49/h", "sliding-window 49/h"] {
        for taken in [0, 1, 7, 24, 48, 49] {
            let limit: Limit = text.parse().unwrap();
            let mut bench = Bench::new(&limit);
            bench.ask(START, 1, taken);
            let mut home = Home::with(Client::new(&server, 0, true), limit, 49, bench, START);
            home.grant((1..49).map(|number| grant_of(number, (1, 1))).collect(), &[false; 48]);
        }
    }
}

/// Somebody was first, or there is no home: nothing changes, and the client is told what is in force.
#[test]
fn who_comes_second_changes_nothing() {
    let server = Server::start(&[]);
    let limits = ["token-bucket 50/s", "fixed-window 50/s", "sliding-window 50/s"].map(|text| text.parse().unwrap());
    for (number, limit) in limits.into_iter().enumerate() {
        let mut client = Client::new(&server, number, false);
        let mut ledger = Ledger::new(limit, 1, 2);
        let old = ledger.encode();
        ledger.grants.push(grant_of(5, (25, 25)));
        ledger.cost = common_cost(&limit, 2);
        let run = GrantRun { expected: ID, id: NEW_ID, least_ttl: 5_000, ledger: &ledger, empty: &[false] };
        let grant = |client: &mut Client| {
            GrantReply::parse(client.run(Script::grant(&Share::whole(&limit)), |cmd| run.write(cmd))).unwrap()
        };
        assert_eq!(grant(&mut client), GrantReply::Refused { id: None, ledger: None });
        assert_eq!(client.stored(), None);

        let another = limits.into_iter().find(|other: &Limit| other.algorithm() != limit.algorithm()).unwrap();
        for (kind, id, limit, tells) in [
            (Kind::Home, OTHER_ID, limit, true),
            (Kind::Home, ID, another, true),
            (Kind::Lent, ID, limit, false),
            (Kind::Tombstone, ID, limit, false),
        ] {
            let bytes = pack(kind, id, &Share::whole(&limit), None, if tells { &old } else { b"" });
            client.put(&bytes, 9_000);
            let refused = GrantReply::Refused { id: Some(id), ledger: tells.then(|| old.clone()) };
            assert_eq!(grant(&mut client), refused, "{kind:?} {id} {limit}");
            assert_eq!(client.stored(), Some(bytes));
        }
        client.put(&pack(Kind::Home, ID, &Share::whole(&limit), None, &old), 9_000);
        assert!(matches!(grant(&mut client), GrantReply::Granted { id: NEW_ID, .. }));
        let after = client.stored();
        assert!(matches!(grant(&mut client), GrantReply::Refused { id: Some(NEW_ID), ledger: Some(_) }), "once");
        assert_eq!(client.stored(), after);
    }
}

/// Units that do not divide each other can't be told apart from a mistake: what home has would change.
#[test]
fn units_that_do_not_divide_are_refused() {
    let server = Server::start(&[]);
    let mut client = Client::new(&server, 0, false);
    // A permit costs 20,000 units; in three shares it would be 1,000,000, of which 7 is no divisor.
    let limit: Limit = "token-bucket 50/s".parse().unwrap();
    let Share::Bucket(mut share) = Share::whole(&limit) else { unreachable!() };
    share.cost = 7;
    let bytes = pack(Kind::Home, ID, &Share::Bucket(share), None, b"");
    client.put(&bytes, 9_000);
    let ledger = Ledger::new(limit, 1, 2);
    let run = GrantRun { expected: ID, id: NEW_ID, least_ttl: 5_000, ledger: &ledger, empty: &[] };
    let error = client.try_run(Script::GrantBucket, |cmd| run.write(cmd)).unwrap_err().to_string();
    assert!(error.contains("7 units a permit do not divide 20000"), "{error}");
    assert_eq!(client.stored(), Some(bytes));
}
