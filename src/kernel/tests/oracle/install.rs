//! The install script, branch by branch.

use super::server::Server;
use super::{Client, ID};
use crate::clock::Micros;
use crate::kernel::State;
use crate::kernel::bucket::Bucket;
use crate::kernel::tests::START;
use crate::limit::{Limit, Share};
use crate::wire::{GrantId, InstallReply, InstallRun, Kind, Script, pack};

const EARLIER: GrantId = GrantId { stamp: ID.stamp - 1, random: u64::MAX };
const AT_ONCE: GrantId = GrantId { stamp: ID.stamp, random: ID.random - 1 };
/// Its first byte is smaller than that of `ID`: as strings they compare the other way round.
const LATER: GrantId = GrantId { stamp: (ID.stamp | 0xff) + 1, random: 0 };

fn share(text: &str) -> Share {
    Share::whole(&text.parse::<Limit>().unwrap())
}

struct Shard(Client);

impl Shard {
    fn install(&mut self, state: &[u8], not_after: Micros) -> InstallReply {
        let run = InstallRun { state, not_after, ttl: 70_000 };
        InstallReply::parse(self.0.run(Script::Install, |cmd| run.write(cmd))).unwrap()
    }
}

fn shard(server: &Server) -> Shard {
    let mut client = Client::new(server, 0, true);
    client.set_clock(START);
    Shard(client)
}

/// For a state of every kernel, on nothing and on all that is older.
#[test]
fn a_share_is_installed_once_and_in_time() {
    let server = Server::start(&[]);
    let mut shard = shard(&server);
    for text in ["token-bucket 5/s", "fixed-window 5/s", "sliding-window 5/s"] {
        let new = pack(Kind::Lent, ID, &share(text), None, b"");
        // Packed by a clock that is far behind; what it would refill since then is not the shard's.
        let begun = match share(text) {
            Share::Bucket(bucket) => Some(State::Bucket(Bucket { level: bucket.capacity, seen: START })),
            Share::Fixed(_) | Share::Sliding(_) | Share::Composite(_) => None,
        };
        let installed = pack(Kind::Lent, ID, &share(text), begun.as_ref(), b"");
        redis::cmd("DEL").arg(&shard.0.key).query::<()>(&mut shard.0.connection).unwrap();
        assert_eq!(shard.install(&new, START - 1), InstallReply::Late { now: START });
        assert_eq!(shard.0.stored(), None);
        assert_eq!(shard.install(&new, START), InstallReply::Installed { now: START });
        assert_eq!(shard.0.stored().as_ref(), Some(&installed));
        assert!(shard.0.ttl() > 60_000);

        for kind in [Kind::Lent, Kind::Tombstone] {
            let old = pack(kind, EARLIER, &share("sliding-window 7/s"), None, b"");
            shard.0.put(&old, 1_000);
            assert_eq!(shard.install(&new, START - 1), InstallReply::Late { now: START });
            assert_eq!(shard.0.stored().as_ref(), Some(&old));
            assert_eq!(shard.install(&new, START), InstallReply::Installed { now: START });
            assert_eq!(shard.0.stored().as_ref(), Some(&installed));
            assert!(shard.0.ttl() > 60_000);
        }
    }
}

/// Whoever finishes a step that another has done must not undo what was charged since, however late it is.
#[test]
fn a_share_that_is_there_already_stays_as_it_is() {
    let server = Server::start(&[]);
    let mut shard = shard(&server);
    let new = pack(Kind::Lent, ID, &share("token-bucket 5/s"), None, b"");
    let charged = pack(Kind::Lent, ID, &share("token-bucket 5/s burst 3"), None, b"");
    shard.0.put(&charged, 1_000);
    for not_after in [START, START - 1, 0] {
        assert_eq!(shard.install(&new, not_after), InstallReply::Installed { now: START });
        assert_eq!(shard.0.stored().as_ref(), Some(&charged));
        assert!(shard.0.ttl() <= 1_000);
    }
}

/// What was closed stays closed, the later grant stands, and a home is never written over.
#[test]
fn nothing_that_is_not_older_is_written_over() {
    let server = Server::start(&[]);
    let mut shard = shard(&server);
    let new = pack(Kind::Lent, ID, &share("token-bucket 5/s"), None, b"");
    for (kind, id) in [
        (Kind::Tombstone, ID),
        (Kind::Tombstone, AT_ONCE),
        (Kind::Tombstone, LATER),
        (Kind::Lent, AT_ONCE),
        (Kind::Lent, LATER),
        (Kind::Home, EARLIER),
        (Kind::Home, ID),
        (Kind::Home, LATER),
    ] {
        let there = pack(kind, id, &share("token-bucket 5/s burst 3"), None, b"");
        shard.0.put(&there, 1_000);
        for not_after in [START, START - 1] {
            assert_eq!(shard.install(&new, not_after), InstallReply::Newer { now: START }, "{kind:?} {id}");
            assert_eq!(shard.0.stored().as_ref(), Some(&there));
        }
        assert!(shard.0.ttl() <= 1_000);
    }
}
