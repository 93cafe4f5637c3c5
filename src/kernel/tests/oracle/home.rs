//! The home scripts against the pure functions: the reply, what is stored at home, and what is pending; and what a share
//! that was closed had left.

use proptest::strategy::{Just, Strategy, ValueTree};
use proptest::test_runner::TestRunner;

use super::server::Server;
use super::{Client, ID, OTHER_ID};
use crate::clock::Micros;
use crate::kernel::rewrite::{Back, Rewrite, rewrite};
use crate::kernel::tests::rewrite::{Scene, any_scene, any_scene_of};
use crate::kernel::tests::{Bench, START, any_composites, any_kind, any_limit, scaled};
use crate::kernel::{Ask, Batch, State};
use crate::key::Slot;
use crate::limit::{Carry, Limit, Share};
use crate::plan::{Definition, Shards, common_cost, split};
use crate::wire::{
    CloseReply, CloseRun, Grant, GrantId, HomeReply, HomeRun, Kind, Ledger, Script, Status, pack, unpack,
};

pub(super) const NEW_ID: GrantId = GrantId { stamp: ID.stamp + 1, random: 7 };
const NOT_AFTER: Micros = START + 1_000_000;

pub(super) fn grant_of(number: u16, (permits, burst): (u64, u64), cost: i64) -> Grant {
    let id = GrantId { stamp: 1_700_000_000_000 + u64::from(number), random: u64::from(number) << 50 };
    let status = Status::Pending { not_after: NOT_AFTER, state: Vec::new() };
    Grant { slot: Slot::new(number).unwrap(), id, permits, burst, cost, status }
}

pub(super) fn definition(limit: Limit) -> Definition {
    Definition::new(limit, 3, Shards::PerMaster)
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

/// What a ledger does beside being written.
#[derive(Default)]
struct With {
    new: usize,
    carry: Option<(Carry, u64)>,
    deduct: u64,
    back: Vec<(Back, Vec<u8>)>,
}

impl Home {
    fn new(server: &Server, number: usize, scene: &Scene) -> Self {
        let (bench, now) = scene.home();
        Self::with(Client::new(server, number, true), scene.limit, bench, now)
    }

    fn with(mut client: Client, limit: Limit, bench: Bench, now: Micros) -> Self {
        let ledger = Ledger::new(definition(limit));
        let (share, state) = (bench.share, bench.state.expect("it has a history"));
        client.put(&pack(Kind::Home, ID, &share, Some(&state), &ledger.encode()), 600_000);
        client.set_clock(now);
        Self { client, id: ID, ledger, share, state, now }
    }

    fn grant(&mut self, grants: Vec<Grant>, cost: i64) {
        let new = grants.len();
        let mut ledger = Ledger { cost, ..self.ledger.clone() };
        ledger.grants.extend(grants);
        self.write(ledger, With { new, ..With::default() });
    }

    /// Runs the script and the pure function: every byte must be equal.
    fn write(&mut self, mut ledger: Ledger, with: With) {
        let old = ledger.grants.len() - with.new;
        let share = ledger.home_share();
        let lent: Vec<Share> = ledger.grants[old..].iter().map(|grant| ledger.share_of(grant)).collect();
        let (back, tombstones): (Vec<Back>, Vec<Vec<u8>>) = with.back.into_iter().unzip();
        let to = Rewrite {
            home: share.clone(),
            carry: with.carry.map(|(carry, before)| (carry, before, ledger.limit().burst())),
            deduct: with.deduct,
            back: &back,
            lent: &lent,
        };
        let (state, states) = rewrite(Some((self.share.clone(), self.state.clone())), self.now, &to);

        let id = self.id.after(0, 7);
        let back: Vec<(u64, Vec<u8>)> = back.iter().map(|back| back.permits).zip(tombstones).collect();
        let run = HomeRun {
            expected: Some(self.id),
            id,
            least_ttl: 5_000,
            ledger: &ledger,
            new: with.new,
            carry: with.carry,
            deduct: with.deduct,
            back: &back,
        };
        let value = self.client.run(Script::home(&share), |cmd| run.write(cmd));
        let reply = HomeReply::parse(value).unwrap();

        for ((grant, lent), lent_state) in ledger.grants[old..].iter_mut().zip(&lent).zip(&states) {
            let state = unpack(&pack(Kind::Lent, grant.id, lent, Some(lent_state), b""));
            let HomeReply::Written { ledger: bytes, .. } = &reply else { panic!("{reply:?}") };
            let stored = Ledger::decode(bytes).unwrap();
            let stored = stored.grants.into_iter().find(|stored| stored.id == grant.id).unwrap();
            let Status::Pending { state: bytes, .. } = &stored.status else { panic!("{stored:?}") };
            assert_eq!(unpack(bytes), state, "{:?} to {to:?}", self.state);
            *grant = stored;
        }
        let HomeReply::Written { id: written, ledger: bytes } = reply else { panic!("{reply:?}") };
        assert_eq!(written, id);
        assert_eq!(Ledger::decode(&bytes).as_ref(), Ok(&ledger), "{:?} of {:?}", lent, self.state);
        let stored = self.client.stored().unwrap();
        let expected = unpack(&pack(Kind::Home, id, &share, Some(&state), &bytes));
        assert_eq!(unpack(&stored), expected, "{:?} {:?} to {to:?}", self.share, self.state);
        self.check_ttl(&share, &state);
        (self.id, self.ledger, self.share, self.state) = (id, ledger, share, state);
    }

    /// As long as asked for, and until home is as new.
    fn check_ttl(&mut self, share: &Share, state: &State) {
        let mut bench = Bench { share: share.clone(), state: Some(state.clone()) };
        let (header, _) = bench.run(self.now, &Batch::default());
        let full = (header.at - self.now + bench.time_for(header.missing)) / 1_000;
        let ttl = self.client.ttl();
        assert!(ttl > 4_000 && ttl + 900 >= full as i64, "{ttl} ms to live, {full} ms until it is as new");
    }

    fn share_time(&self) -> Micros {
        Bench { share: self.share.clone(), state: None }.refill()
    }

    fn pass(&mut self, time: Micros) {
        self.now += time;
        self.client.set_clock(self.now);
    }
}

/// A share that was lent, on a key of its own.
struct Lent {
    client: Client,
    id: GrantId,
    bench: Bench,
}

impl Lent {
    fn new(server: &Server, number: usize, grant: &Grant, share: Share) -> Self {
        let Status::Pending { state, .. } = &grant.status else { panic!("{grant:?}") };
        let mut client = Client::new(server, number, true);
        client.put(state, 600_000);
        Self { client, id: grant.id, bench: Bench { share, state: Some(unpack(state).state) } }
    }

    /// Takes so many permits, and is closed: what is left, by the kernel and as it is stored.
    fn close(mut self, now: Micros, taken: u64) -> (Back, Vec<u8>) {
        self.bench.run(now, &Batch { asks: &[Ask { permits: 1, count: taken }], ..Batch::default() });
        let state = self.bench.state.clone();
        self.client.put(&pack(Kind::Lent, self.id, &self.bench.share, state.as_ref(), b""), 600_000);
        let mut close = || {
            let run = CloseRun { id: self.id, ttl: 600_000 };
            CloseReply::parse(self.client.run(Script::Close, |cmd| run.write(cmd))).unwrap()
        };
        let reply = close();
        assert_eq!(close(), reply, "once is as good as twice");
        let CloseReply::Closed { tombstone: Some(tombstone), now: closed } = reply else { panic!("{reply:?}") };
        assert_eq!(closed, now);
        if matches!(self.bench.share, Share::Bucket(_)) {
            self.bench.run(now, &Batch::default());
        }
        let (share, state) = (self.bench.share, self.bench.state.unwrap());
        assert_eq!(unpack(&tombstone), unpack(&pack(Kind::Tombstone, self.id, &share, Some(&state), b"")));
        assert_eq!(self.client.stored().as_ref(), Some(&tombstone));
        (Back { permits: share.burst(), left: Some((share, state)) }, tombstone)
    }
}

/// Shares leave in two steps, with time in between; some are used, closed and come back; the rest is deducted once more.
#[test]
fn scripts_move_what_the_kernels_do() {
    let server = Server::start(&[]);
    let mut runner = TestRunner::deterministic();
    for number in 0..1_500 {
        let scene = any_scene().new_tree(&mut runner).unwrap().current();
        let mut home = Home::new(&server, 0, &scene);
        let shares = split(&scene.limit, scene.shards());
        let cost = common_cost(&scene.limit, scene.shards());
        let grants: Vec<Grant> = (1..).zip(&shares[1..]).map(|(slot, share)| grant_of(slot, *share, cost)).collect();
        let first = scene.shares.iter().take(grants.len()).take_while(|at_once| **at_once).count();
        home.grant(grants[..first].to_vec(), cost);
        home.pass(scaled(1_000_000, scene.jump.unsigned_abs()));
        home.grant(grants[first..].to_vec(), cost);

        let time = home.share_time() * (number as u64 % 13) / 6;
        let lent: Vec<Lent> = (1..)
            .zip(&home.ledger.grants)
            .map(|(number, grant)| Lent::new(&server, number, grant, home.ledger.share_of(grant)))
            .collect();
        home.pass(time);
        let (now, gone) = (home.now, number % 5 == 0);
        let mut back: Vec<_> =
            lent.into_iter().enumerate().map(|(index, lent)| lent.close(now, (index as u64 * 7) % 5)).collect();
        if let (true, Some((back, tombstone))) = (gone, back.last_mut()) {
            (back.left, *tombstone) = (None, Vec::new());
        }
        // All but the first come home; that one stays out.
        let mut ledger = home.ledger.clone();
        ledger.grants.truncate(1);
        ledger.grants[0].status = Status::RECALLED;
        back.remove(0);
        home.write(ledger, With { back, deduct: number as u64 % 4, ..With::default() });
    }
}

/// Whatever home has, under any other definition.
#[test]
fn scripts_carry_over_what_the_kernels_do() {
    let server = Server::start(&[]);
    let mut runner = TestRunner::deterministic();
    for number in 0..2_000 {
        let (mut scene, to) = (any_scene(), any_limit()).new_tree(&mut runner).unwrap().current();
        // A clock that is set back for good, and another step beside: there they may differ by a sub-window.
        scene.jump = scene.jump.max(0);
        let mut home = Home::new(&server, number, &scene);
        let carry = [Carry::Keep, Carry::Proportional, Carry::Reset][number % 3];
        home.write(Ledger::new(definition(to)), With { carry: Some((carry, scene.limit.burst())), ..With::default() });
    }
}

/// The same of composites, alike or not.
#[test]
fn scripts_carry_over_the_parts_of_composites() {
    let server = Server::start(&[]);
    let mut runner = TestRunner::deterministic();
    let alike = any_composites().prop_flat_map(|(from, to)| (any_scene_of(Just(from)), Just(to)));
    let mixed = (any_scene_of(any_kind()), any_kind());
    let mut carried = 0;
    for number in 0..3_000 {
        let (mut scene, to) = match number % 3 {
            0 => mixed.new_tree(&mut runner).unwrap().current(),
            _ => alike.new_tree(&mut runner).unwrap().current(),
        };
        if number % 3 == 0 {
            // As above: among them are limits of one algorithm.
            scene.jump = scene.jump.max(0);
        }
        let mut home = Home::new(&server, number, &scene);
        let carry = [Carry::Keep, Carry::Proportional, Carry::Reset][number / 3 % 3];
        home.write(Ledger::new(definition(to)), With { carry: Some((carry, scene.limit.burst())), ..With::default() });
        let is_drained = rewrite(
            None,
            home.now,
            &Rewrite { home: home.share.clone(), carry: None, deduct: 0, back: &[], lent: &[] },
        );
        carried += u32::from(carry == Carry::Keep && is_drained.0 != home.state);
    }
    assert!(carried > 300, "only {carried} had anything to carry over");
}

/// Beside shares of the limit before it, a composite has nothing; when the last of them is back, it begins with nothing.
#[test]
fn a_composite_waits_for_the_shares_of_the_limit_before() {
    let server = Server::start(&[]);
    let to: Limit = "token-bucket 50/s + fixed-window 90/min + sliding-window 70/10s".parse().unwrap();
    let from: Limit = "token-bucket 50/s".parse().unwrap();
    let mut bench = Bench::new(&from);
    bench.ask(START, 1, 7);
    let mut home = Home::with(Client::new(&server, 0, true), from, bench, START);
    let mut ledger = Ledger::new(definition(to));
    ledger.grants.push(Grant { status: Status::RECALLED, ..grant_of(5, (25, 25), 1) });
    home.write(ledger, With { carry: Some((Carry::Reset, 50)), ..With::default() });
    assert_eq!(home.share.burst(), 0);
    home.pass(100_000);
    let back = vec![(Back { permits: 25, left: None }, Vec::new())];
    home.write(Ledger::new(definition(to)), With { back, ..With::default() });
    assert_eq!(home.share.burst(), 50);
    let mut bench = Bench { share: home.share.clone(), state: Some(home.state.clone()) };
    assert_eq!(bench.ask(home.now, 1, 1).1.granted, 0);
}

/// A home that is gone is made anew with what is known of it, and with nothing in it; but only if it is gone.
#[test]
fn a_home_is_made_only_where_none_is() {
    let server = Server::start(&[]);
    for (number, text) in ["token-bucket 50/s", "fixed-window 50/s", "sliding-window 50/s"].into_iter().enumerate() {
        let limit: Limit = text.parse().unwrap();
        let mut client = Client::new(&server, number, true);
        client.set_clock(START);
        let mut ledger = Ledger { cost: common_cost(&limit, 2), ..Ledger::new(definition(limit)) };
        ledger.grants.push(Grant { status: Status::Live, ..grant_of(5, (25, 25), ledger.cost) });
        let run = home_run(None, &ledger, 0);
        let make = |client: &mut Client| {
            HomeReply::parse(client.run(Script::home(&ledger.home_share()), |cmd| run.write(cmd))).unwrap()
        };
        assert_eq!(make(&mut client), HomeReply::Written { id: NEW_ID, ledger: ledger.encode() });
        let to = Rewrite { home: ledger.home_share(), carry: None, deduct: 0, back: &[], lent: &[] };
        let (state, _) = rewrite(None, START, &to);
        let stored = client.stored().unwrap();
        assert_eq!(
            unpack(&stored),
            unpack(&pack(Kind::Home, NEW_ID, &to.home, Some(&state), &ledger.encode())),
            "{text}"
        );
        let there = HomeReply::Refused { id: Some(NEW_ID), ledger: Some(ledger.encode()) };
        assert_eq!(make(&mut client), there, "{text}: it is there by now");
        assert_eq!(client.stored(), Some(stored));
    }
}

pub(super) fn home_run(expected: Option<GrantId>, ledger: &Ledger, new: usize) -> HomeRun<'_> {
    HomeRun { expected, id: NEW_ID, least_ttl: 5_000, ledger, new, carry: None, deduct: 0, back: &[] }
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
            let mut home = Home::with(Client::new(&server, 0, true), limit, bench, START);
            let cost = common_cost(&limit, 49);
            home.grant((1..49).map(|number| grant_of(number, (1, 1), cost)).collect(), cost);
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
        let mut ledger = Ledger::new(definition(limit));
        let old = ledger.encode();
        ledger.cost = common_cost(&limit, 2);
        ledger.grants.push(grant_of(5, (25, 25), ledger.cost));
        let run = home_run(Some(ID), &ledger, 1);
        let grant = |client: &mut Client| {
            HomeReply::parse(client.run(Script::home(&Share::whole(&limit)), |cmd| run.write(cmd))).unwrap()
        };
        assert_eq!(grant(&mut client), HomeReply::Refused { id: None, ledger: None });
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
            let refused = HomeReply::Refused { id: Some(id), ledger: tells.then(|| old.clone()) };
            assert_eq!(grant(&mut client), refused, "{kind:?} {id} {limit}");
            assert_eq!(client.stored(), Some(bytes));
        }
        client.put(&pack(Kind::Home, ID, &Share::whole(&limit), None, &old), 9_000);
        assert!(matches!(grant(&mut client), HomeReply::Written { id: NEW_ID, .. }));
        let after = client.stored();
        assert!(matches!(grant(&mut client), HomeReply::Refused { id: Some(NEW_ID), ledger: Some(_) }), "once");
        assert_eq!(client.stored(), after);
    }
}
