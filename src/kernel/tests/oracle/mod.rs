//! The scripts against the kernels, call by call, on a real server: equal to the permit.
//!
//! Two clocks: the server's own, echoed by each reply and fed to the kernel; and one that the test sets, which jumps
//! forth and back by anything from a microsecond to several refills.
//!
//! * `acquire`: every field of a reply and of the state. `rules`: what is charged, written and told at all.
//! * `leased`: the same of buckets that keep room for leases.
//! * `home`, `install`, `close`: the steps by which a share leaves home and comes back.

mod acquire;
mod close;
mod home;
mod install;
mod leased;
mod rules;
#[path = "../../../../tests/support/server.rs"]
#[allow(dead_code, unreachable_pub)]
pub(crate) mod server;

use redis::{Cmd, Value};
use server::Server;

use crate::clock::Micros;
use crate::wire::{GrantId, Reply, Run, Script};

const ID: GrantId = GrantId { stamp: 0x1234_5678_9abc, random: 0xfedc_ba98_7654_3210 };
const OTHER_ID: GrantId = GrantId { stamp: ID.stamp, random: 1 };

/// Replaces the server's clock by two keys that the test sets.
fn with_set_clock(script: &str) -> String {
    let set = script.replace("redis.call('TIME')", "{redis.call('GET', 'clock:s'), redis.call('GET', 'clock:us')}");
    assert_ne!(set, script, "the script reads the time in another way");
    set
}

/// A client of one sub-key.
struct Client {
    connection: redis::Connection,
    key: String,
    set_clock: bool,
}

impl Client {
    fn new(server: &Server, number: usize, set_clock: bool) -> Self {
        Self { connection: server.connection(), key: format!("oracle:{number}"), set_clock }
    }

    /// Runs a script on the sub-key; an error of the server comes back as it is.
    fn try_run(&mut self, script: Script, write: impl FnOnce(&mut Cmd)) -> Result<Value, redis::RedisError> {
        let source = if self.set_clock { with_set_clock(script.source()) } else { script.source().into() };
        let mut cmd = redis::cmd("EVAL");
        cmd.arg(source).arg(1).arg(&self.key);
        write(&mut cmd);
        cmd.query(&mut self.connection)
    }

    fn run(&mut self, script: Script, write: impl FnOnce(&mut Cmd)) -> Value {
        self.try_run(script, write).unwrap()
    }

    fn acquire(&mut self, script: Script, run: &Run<'_>) -> Reply {
        let value = self.run(script, |cmd| run.write(cmd));
        Reply::parse(value, run.batch.asks).unwrap()
    }

    fn stored(&mut self) -> Option<Vec<u8>> {
        redis::cmd("GET").arg(&self.key).query(&mut self.connection).unwrap()
    }

    fn put(&mut self, bytes: &[u8], ttl: u64) {
        redis::cmd("SET").arg(&self.key).arg(bytes).arg("PX").arg(ttl).query::<()>(&mut self.connection).unwrap();
    }

    /// Milliseconds that it still has to live; negative if it has no end or is not there.
    fn ttl(&mut self) -> i64 {
        redis::cmd("PTTL").arg(&self.key).query(&mut self.connection).unwrap()
    }

    fn set_clock(&mut self, now: Micros) {
        let set = [("clock:s", now / 1_000_000), ("clock:us", now % 1_000_000)];
        redis::cmd("MSET").arg(&set).query::<()>(&mut self.connection).unwrap();
    }
}
