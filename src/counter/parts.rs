//! The parts of an approximate count on a shared store: a key for each, all on one slot.

use std::time::Instant;

use super::approximate::{PARTS, current};
use super::clocks::Clocks;
use super::shards::{Shard, Shards, into_error};
use super::sketch::Sketch;
use crate::clock::Micros;
use crate::error::Error;
use crate::key::{home_slot, sub_key};
use crate::store::cluster::{Engine, Fault};
use crate::sync::Arc;
use crate::sync::atomic::AtomicBool;
use crate::wire::{ApproximateReply, ApproximateRun, Mode, Script};

/// How often a client may be told that it is in another part. Twice at the most, unless parts are shorter than a round trip.
const TRIES: usize = 5;

/// The keys of a part have its number in their name, so each script has one key. The server's clock says which part is current; a
/// client that took another one is told, and asks again.
pub(super) struct SharedParts {
    shards: Shards,
    prefix: Arc<str>,
    name: Box<str>,
    window: Micros,
    clocks: Clocks,
}

impl SharedParts {
    pub(super) fn new(engine: &Arc<Engine>, prefix: &Arc<str>, name: &str, window: Micros) -> Self {
        let shards = Shards::new(engine, prefix, "approximate", name, 1);
        Self { shards, prefix: Arc::clone(prefix), name: name.into(), window, clocks: Clocks::new() }
    }

    fn step(&self) -> Micros {
        self.window.div_ceil(PARTS)
    }

    /// `prefix:{tag}::approximate:name:part:key`: neither name nor part holds a colon.
    fn part(&self, key: &[u8], number: u64) -> Shard {
        let slot = home_slot(&format!(":approximate:{}", self.name), key);
        let name = format!(":approximate:{}:{number}", self.name);
        Shard { slot, sub_key: sub_key(&self.prefix, slot, &name, key) }
    }

    /// Asks a part.
    fn ask(
        &self,
        key: &[u8],
        mode: Mode,
        part: u64,
        values: Vec<Box<[u8]>>,
    ) -> impl Future<Output = Result<ApproximateReply, Fault>> + Send + use<> {
        let (engine, shard, step) = (Arc::clone(&self.shards.engine), self.part(key, part), self.step());
        let ttl = (self.window + 2 * step).div_ceil(1_000) + 1_000;
        async move {
            let run = ApproximateRun { mode, part, step, ttl, values: &values };
            let sent = AtomicBool::new(false);
            shard.run_again(&engine, Script::Approximate, |cmd| run.write(cmd), &sent, ApproximateReply::parse).await
        }
    }

    fn now(&self, key: &[u8]) -> Micros {
        self.clocks.at(self.part(key, 0).slot, Instant::now())
    }

    pub(super) async fn add(&self, key: &[u8], values: Vec<Box<[u8]>>) -> Result<(), Error> {
        for _ in 0..TRIES {
            let (_, part) = current(self.window, self.now(key));
            let reply = self.shards.ask_one(self.ask(key, Mode::Add, part, values.clone())).await?;
            self.clocks.learn(self.part(key, 0).slot, reply.now, Instant::now());
            if !reply.is_other_part {
                return Ok(());
            }
        }
        Err(self.too_short())
    }

    /// All parts that count, joined; or all of them cleared.
    pub(super) async fn read(&self, key: &[u8], mode: Mode) -> Result<Sketch, Error> {
        for _ in 0..TRIES {
            let (first, last) = current(self.window, self.now(key));
            let asks = (first..=last).map(|part| self.ask(key, mode, part, Vec::new()));
            let replies = self.shards.ask(asks).await;
            let (mut all, mut now) = (Sketch::default(), 0);
            for reply in replies {
                let reply = reply?;
                if let Some(bytes) = reply.sketch {
                    let wrong = |why| into_error(Fault::Refused(format!("{why}; something else is stored there")));
                    all.join(&Sketch::parse(&bytes).map_err(wrong)?);
                }
                now = now.max(reply.now);
            }
            self.clocks.learn(self.part(key, 0).slot, now, Instant::now());
            if current(self.window, now).1 == last {
                return Ok(all);
            }
        }
        Err(self.too_short())
    }

    fn too_short(&self) -> Error {
        let parts = self.step();
        into_error(Fault::NotSent(format!(
            "the parts of the window are over sooner than it is asked, every {parts} µs"
        )))
    }
}
