//! The close script: what it may end, and what it must leave alone.

use super::server::Server;
use super::{Client, ID, OTHER_ID};
use crate::limit::Share;
use crate::wire::{CloseReply, CloseRun, GrantId, InstallReply, InstallRun, Kind, Reply, Run, Script, pack};

fn close(client: &mut Client, id: GrantId) -> CloseReply {
    let run = CloseRun { id, ttl: 600_000 };
    CloseReply::parse(client.run(Script::Close, |cmd| run.write(cmd))).unwrap()
}

fn shares() -> [Share; 3] {
    ["token-bucket 50/s", "fixed-window 50/s", "sliding-window 50/s"].map(|text| Share::whole(&text.parse().unwrap()))
}

/// A share that is gone was worth nothing; and whoever still means to install it comes too late.
#[test]
fn a_share_that_is_not_there_can_not_come_any_more() {
    let server = Server::start(&[]);
    for (number, share) in shares().into_iter().enumerate() {
        let mut client = Client::new(&server, number, false);
        for _ in 0..2 {
            assert!(matches!(close(&mut client, ID), CloseReply::Closed { tombstone: None, .. }));
        }
        assert!(client.ttl() > 590_000);
        let state = pack(Kind::Lent, ID, &share, None, b"");
        let run = InstallRun { state: &state, not_after: 1 << 52, ttl: 9_000 };
        let reply = InstallReply::parse(client.run(Script::Install, |cmd| run.write(cmd))).unwrap();
        assert!(matches!(reply, InstallReply::Newer { .. }), "{reply:?}");
        let run = Run { id: ID, home: &[], least_ttl: 0, touch: false, batch: crate::kernel::Batch::default() };
        assert_eq!(client.acquire(Script::acquire(&share), &run), Reply::Stale { id: Some(ID) });
    }
}

/// Home, and whatever came after the grant, is somebody else's.
#[test]
fn what_is_newer_stays_as_it_is() {
    let server = Server::start(&[]);
    let newer = GrantId { stamp: ID.stamp + 1, random: 0 };
    for (number, share) in shares().into_iter().enumerate() {
        let mut client = Client::new(&server, number, false);
        for (kind, id) in [
            (Kind::Home, ID),
            (Kind::Home, OTHER_ID),
            (Kind::Lent, newer),
            (Kind::Lent, OTHER_ID),
            (Kind::Tombstone, newer),
        ] {
            let bytes = pack(kind, id, &share, None, b"");
            client.put(&bytes, 9_000);
            assert!(matches!(close(&mut client, ID), CloseReply::Newer { .. }), "{kind:?} {id}");
            assert_eq!(client.stored(), Some(bytes));
            assert!(client.ttl() <= 9_000);
        }
        // What is older is of no use to anybody: the grant that replaced it comes home.
        let older = GrantId { stamp: ID.stamp - 1, random: 0 };
        client.put(&pack(Kind::Lent, older, &share, None, b""), 9_000);
        assert!(matches!(close(&mut client, ID), CloseReply::Closed { tombstone: None, .. }));
    }
}

/// A state of another version is nobody's to close.
#[test]
fn another_version_is_an_error() {
    let server = Server::start(&[]);
    let mut client = Client::new(&server, 0, false);
    let mut bytes = pack(Kind::Lent, ID, &shares()[0], None, b"");
    bytes[0] = 9;
    client.put(&bytes, 9_000);
    let run = CloseRun { id: ID, ttl: 600_000 };
    let error = client.try_run(Script::Close, |cmd| run.write(cmd)).unwrap_err().to_string();
    assert!(error.contains("state of version 9"), "{error}");
    assert_eq!(client.stored(), Some(bytes));
}
