//! The parts of an approximate count on a shared store: a key for each, all on one slot.

use std::time::Instant;

use super::approximate::{PARTS, current};
use super::asking::{Aim, Ask, into_error};
use super::clocks::Clocks;
use super::counters::one;
use super::distinct::MOST_AT_ONCE;
use super::patience::Patience;
use super::place::SharedPlace;
use super::shards::{Shard, Shards};
use super::sketch::Sketch;
use crate::clock::Micros;
use crate::error::Error;
use crate::key::{home_slot, sub_key};
use crate::store::cluster::Fault;
use crate::sync::Arc;
use crate::wire::{ApproximateReply, ApproximateRun, Mode, Script};

/// How often a client may be told that it is in another part. Twice at the most, unless parts are shorter than a round trip.
const TRIES: usize = 5;

/// The keys of a part have its number in their name, so each script has one key. The server's clock says which part is current; a
/// client that took another one is told, and asks again.
pub(super) struct SharedParts {
    pub shards: Shards,
    prefix: Arc<str>,
    name: Box<str>,
    window: Micros,
    clocks: Clocks,
}

impl SharedParts {
    pub(super) fn new(on: &SharedPlace<'_>, name: &str, window: Micros) -> Self {
        let shards = Shards::new(on, "approximate", name, 1);
        Self { shards, prefix: Arc::clone(on.prefix), name: name.into(), window, clocks: Clocks::new() }
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
        (part, due): (u64, Instant),
        values: Vec<Box<[u8]>>,
    ) -> Ask<impl Future<Output = Result<ApproximateReply, Fault>> + Send + use<>> {
        let (engine, step) = (Arc::clone(&self.shards.engine), self.step());
        let ttl = (self.window + 2 * step).div_ceil(1_000) + 1_000;
        self.part(key, part).ask(|shard, sent| async move {
            let (run, script) = (ApproximateRun { mode, part, step, ttl, values: &values }, Script::Approximate);
            shard.run_again(&engine, script, |cmd| run.write(cmd), (&sent, due), ApproximateReply::parse).await
        })
    }

    fn now(&self, key: &[u8]) -> Micros {
        self.clocks.at(self.part(key, 0).slot, Instant::now())
    }

    pub(super) async fn add(&self, key: &[u8], values: &[Box<[u8]>], patience: Patience) -> Result<(), Error> {
        let (due, mut aim) = (self.shards.calls.due(patience), Aim::Change);
        for batch in values.chunks(MOST_AT_ONCE) {
            self.add_batch(key, batch, aim, due).await?;
            aim = Aim::Rest;
        }
        Ok(())
    }

    async fn add_batch(&self, key: &[u8], values: &[Box<[u8]>], aim: Aim, due: Instant) -> Result<(), Error> {
        for _ in 0..TRIES {
            let (_, part) = current(self.window, self.now(key));
            let ask = self.ask(key, Mode::Add, (part, due), values.to_vec());
            let reply = one(self.shards.ask_key(aim, due, vec![ask]).await?);
            self.clocks.learn(self.part(key, 0).slot, reply.now, Instant::now());
            if !reply.is_other_part {
                return Ok(());
            }
        }
        Err(self.too_short(aim))
    }

    /// All parts that count, joined; or all of them cleared.
    pub(super) async fn read(&self, key: &[u8], mode: Mode, patience: Patience) -> Result<Sketch, Error> {
        let due = self.shards.calls.due(patience);
        let mut aim = if mode == Mode::Look { Aim::Look } else { Aim::Change };
        for _ in 0..TRIES {
            let (first, last) = current(self.window, self.now(key));
            let asks = (first..=last).map(|part| self.ask(key, mode, (part, due), Vec::new()));
            let replies = self.shards.ask_key(aim, due, asks.collect()).await?;
            let (mut all, mut now) = (Sketch::default(), 0);
            for reply in replies {
                if let Some(bytes) = reply.sketch {
                    let wrong = |why| into_error(aim, Fault::Refused(format!("{why}; something else is stored there")));
                    all.join(&Sketch::parse(&bytes).map_err(wrong)?);
                }
                now = now.max(reply.now);
            }
            self.clocks.learn(self.part(key, 0).slot, now, Instant::now());
            if current(self.window, now).1 == last {
                return Ok(all);
            }
            if aim == Aim::Change {
                aim = Aim::Rest;
            }
        }
        Err(self.too_short(aim))
    }

    fn too_short(&self, aim: Aim) -> Error {
        let parts = self.step();
        let message = format!("the parts of the window are over sooner than it is asked, every {parts} µs");
        into_error(aim, Fault::NotSent(message))
    }
}
