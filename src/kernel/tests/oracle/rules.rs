//! What the acquire scripts charge, write and tell at all.

use super::server::Server;
use super::{Client, ID, OTHER_ID};
use crate::kernel::{Ask, Batch};
use crate::limit::{Limit, Share};
use crate::wire::{GrantId, Kind, Reply, Run, Script, pack, unpack};

const TEXTS: [&str; 4] = [
    "token-bucket 5/s",
    "fixed-window 5/s",
    "sliding-window 5/s",
    "token-bucket 5/s + fixed-window 9/s + sliding-log 7/s",
];
const NOTHING: Batch<'static> = Batch { reset: false, refunds: &[], debt: 0, asks: &[], held_for: 0 };
const ONE: Batch<'static> = Batch { asks: &[Ask { permits: 1, count: 1 }], ..NOTHING };

fn shares() -> impl Iterator<Item = Share> {
    TEXTS.into_iter().map(|text| Share::whole(&text.parse::<Limit>().unwrap()))
}

fn run<'a>(id: GrantId, home: &'a [u8], touch: bool, batch: Batch<'a>) -> Run<'a> {
    Run { id, home, least_ttl: 2_000, touch, batch }
}

/// Another grant id, a tombstone or nothing there: nothing is charged, nothing is created, nothing lives longer.
#[test]
fn a_stale_caller_charges_and_creates_nothing() {
    let server = Server::start(&[]);
    for (number, share) in shares().enumerate() {
        let mut client = Client::new(&server, number, false);
        let script = Script::acquire(&share);
        let all = Batch { reset: true, debt: 3, ..ONE };
        for (touch, batch) in [(false, all), (true, ONE)] {
            let reply = client.acquire(script, &run(ID, b"", touch, batch));
            assert_eq!(reply, Reply::Stale { id: None }, "nothing there");
            assert_eq!(client.stored(), None);
            for (kind, id) in [(Kind::Lent, OTHER_ID), (Kind::Tombstone, ID)] {
                let bytes = pack(kind, id, &share, None, b"");
                client.put(&bytes, 1_000);
                let home = pack(Kind::Home, ID, &share, None, b"");
                let reply = client.acquire(script, &run(ID, &home, touch, batch));
                assert_eq!(reply, Reply::Stale { id: Some(id) }, "{share:?}: {kind:?}");
                assert_eq!(client.stored(), Some(bytes));
                assert!(client.ttl() <= 1_000);
            }
            redis::cmd("DEL").arg(&client.key).query::<()>(&mut client.connection).unwrap();
        }
        let bytes = pack(Kind::Lent, ID, &share, None, b"");
        client.put(&bytes, 1_000);
        let reply = client.acquire(script, &run(ID, b"", false, ONE));
        assert!(matches!(reply, Reply::Decided { id: ID, ledger: None, .. }), "{share:?}: the id it was lent under");
        let after = unpack(&client.stored().unwrap());
        assert_eq!((after.kind, after.id, after.share), (Kind::Lent, ID, share));
        assert_ne!(client.stored(), Some(bytes));
    }
}

/// A clock that is set back by more than a refill, while nothing is left: after a refill by the new clock it is as new, also if
/// nobody was granted anything in between. A state that was left ahead of it would lock everybody out until it has caught up.
#[test]
fn a_clock_set_back_locks_nobody_out() {
    const HOUR: u64 = 3_600_000_000;
    let server = Server::start(&[]);
    for (number, share) in shares().enumerate() {
        let mut client = Client::new(&server, number, true);
        let script = Script::acquire(&share);
        let home = pack(Kind::Home, ID, &share, None, b"");
        let ask = |client: &mut Client, now: u64| {
            client.set_clock(now);
            match client.acquire(script, &run(ID, &home, false, ONE)) {
                Reply::Decided { verdicts, .. } => verdicts[0].granted > 0,
                other => panic!("{other:?}"),
            }
        };
        let now = 1_000_000 * HOUR;
        assert_eq!((0..6).filter(|_| ask(&mut client, now)).count(), 5, "{share:?}");
        let back = now - HOUR;
        assert!(!ask(&mut client, back) && !ask(&mut client, back + 1), "{share:?}: what was used is used");
        // Two windows: what was charged just before the end of one counts in the next.
        let later = (0..3).map(|second| back + 1_000_000 * (second + 1)).filter(|now| ask(&mut client, *now)).count();
        assert!(later >= 1, "{share:?}: it has refilled by the clock that counts now");
    }
}

/// A client whose definition has another algorithm is told what is in force, and has charged nothing.
#[test]
fn a_state_of_another_kernel_is_left_alone() {
    let server = Server::start(&[]);
    let mut client = Client::new(&server, 0, false);
    for share in shares() {
        for other in shares().filter(|other| *other != share) {
            let new = pack(Kind::Home, ID, &other, None, b"new");
            for (kind, ledger) in [(Kind::Home, &b"the ledger"[..]), (Kind::Home, b""), (Kind::Lent, b"")] {
                let bytes = pack(kind, ID, &share, None, ledger);
                client.put(&bytes, 1_000);
                for (touch, batch) in [(false, ONE), (true, ONE), (false, Batch { reset: true, ..ONE })] {
                    let reply = client.acquire(Script::acquire(&other), &run(ID, &new, touch, batch));
                    assert_eq!(reply, Reply::OtherKernel { id: ID, ledger: ledger.to_vec() });
                    assert_eq!(client.stored().as_ref(), Some(&bytes));
                    assert!(client.ttl() <= 1_000);
                }
            }
        }
    }
}

/// The next release may store something else: whatever it is, this one does not touch it.
#[test]
fn a_state_of_another_version_is_left_alone() {
    let server = Server::start(&[]);
    let mut client = Client::new(&server, 0, false);
    // Those of limits come first.
    for (share, script) in
        shares().flat_map(|share| Script::ALL[..10].iter().map(move |script| (share.clone(), *script)))
    {
        let mut bytes = pack(Kind::Home, ID, &share, None, b"the ledger");
        bytes[0] = 2;
        client.put(&bytes, 60_000);
        let write = |cmd: &mut redis::Cmd| run(ID, &bytes, true, ONE).write(cmd);
        let error = client.try_run(script, write).unwrap_err().to_string();
        assert!(error.contains("state of version 2, this script knows 1"), "{error}");
        assert_eq!(client.stored().as_ref(), Some(&bytes), "{script:?}");
    }
}

#[test]
fn a_touch_renews_the_time_to_live_and_a_look_does_not() {
    let server = Server::start(&[]);
    for (number, share) in shares().enumerate() {
        let mut client = Client::new(&server, number, false);
        let script = Script::acquire(&share);
        let home = pack(Kind::Home, ID, &share, None, b"the ledger");
        let long = Run { least_ttl: 90_000, ..run(ID, &home, false, NOTHING) };
        client.acquire(script, &long);
        assert_eq!(client.stored(), None, "{share:?}: a look creates nothing");
        client.acquire(script, &Run { touch: true, ..long });
        assert!(client.ttl() > 80_000, "{share:?}: a touch does");
        for kind in [Kind::Home, Kind::Lent] {
            let bytes = pack(kind, ID, &share, None, b"the ledger");
            client.put(&bytes, 5_000);
            client.acquire(script, &long);
            assert_eq!(client.stored().as_ref(), Some(&bytes), "{share:?}");
            assert!(client.ttl() <= 5_000, "{share:?}: a look changes nothing");
            client.acquire(script, &Run { touch: true, ..long });
            assert!(client.ttl() > 80_000, "{share:?}: a touch renews it");
            let (before, after) = (unpack(&bytes), unpack(&client.stored().unwrap()));
            assert_eq!((after.kind, after.id, after.share, after.ledger), (kind, ID, share.clone(), before.ledger));
        }
    }
}

/// Home outlives every share it has lent, also when a client writes that has not heard of them.
#[test]
fn who_does_not_know_the_ledger_does_not_shorten_homes_life() {
    let server = Server::start(&[]);
    for (number, share) in shares().enumerate() {
        let mut client = Client::new(&server, number, false);
        let home = pack(Kind::Home, ID, &share, None, b"the ledger");
        for (id, touch, lives) in
            [(ID, false, false), (ID, true, false), (OTHER_ID, false, true), (OTHER_ID, true, true)]
        {
            client.put(&home, 500_000);
            let reply = client.acquire(Script::acquire(&share), &run(id, &home, touch, ONE));
            let Reply::Decided { ledger, .. } = reply else { panic!("{reply:?}") };
            assert_eq!(ledger.as_deref(), lives.then_some(&b"the ledger"[..]));
            assert_ne!(client.stored().as_ref(), Some(&home), "charged");
            let ttl = client.ttl();
            assert_eq!(ttl > 400_000, lives, "{share:?} {id} {touch}: {ttl} ms");
            assert!(ttl > 1_000);
        }
    }
}
