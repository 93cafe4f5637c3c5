//! Where the shards of a key lie, and how they are asked.

use std::time::Instant;

use redis::{Cmd, Value};

use super::asking::Sent;
use super::calls::{Calls, Crowd};
use super::place::SharedPlace;
use crate::error::{Error, ErrorKind};
use crate::key::{Slot, home_slot, sub_key};
use crate::retries::Backoff;
use crate::store::cluster::{Engine, Fault, Request};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::wire::Script;

/// The shards of all keys under one name.
#[derive(Clone)]
pub(super) struct Shards {
    pub engine: Arc<Engine>,
    prefix: Arc<str>,
    /// Begins with a colon, as no limit's does: the two never meet.
    name: Arc<str>,
    pub count: u16,
    pub calls: Arc<Calls>,
}

/// One of them.
#[derive(Clone, Debug)]
pub(super) struct Shard {
    pub slot: Slot,
    pub sub_key: Box<[u8]>,
}

impl Shards {
    pub(super) fn new(on: &SharedPlace<'_>, kind: &str, name: &str, count: u16) -> Self {
        Self {
            engine: Arc::clone(on.engine),
            prefix: Arc::clone(on.prefix),
            name: format!(":{kind}:{name}").into(),
            count,
            calls: Arc::new(Calls::new(on.deadline, Crowd::new(on.under_way, on.max_in_flight))),
        }
    }

    /// A function of the key alone, so that every reader knows all of them, whatever the topology.
    pub(super) fn shard(&self, key: &[u8], index: u16) -> Shard {
        let slot = slot_of(home_slot(&self.name, key), index, self.count);
        Shard { slot, sub_key: sub_key(&self.prefix, slot, &self.name, key) }
    }

    pub(super) fn all(&self, key: &[u8]) -> impl Iterator<Item = Shard> {
        (0..self.count).map(|index| self.shard(key, index))
    }
}

impl Shard {
    /// As [`run`](Self::run), of a script that counts nothing twice: what had no answer, or was not sent, is tried again, up to
    /// the deadline of its call.
    ///
    /// # Cancel safety
    /// It may have run.
    pub(super) async fn run_again<T, E: std::fmt::Display>(
        &self,
        engine: &Engine,
        script: Script,
        write: impl Fn(&mut Cmd) + Sync,
        (sent, due): (&Sent, Instant),
        parse: impl Fn(Value) -> Result<T, E>,
    ) -> Result<T, Fault> {
        let mut tries = 1;
        loop {
            let fault = match self.run(engine, script, &write, &sent.now, &parse).await {
                Err(fault) => fault,
                reply => return reply,
            };
            if matches!(fault, Fault::Unknown(_)) {
                sent.before.store(true, Ordering::Relaxed);
            }
            let again = Instant::now() + Backoff::default().wait(tries);
            if tries == TRIES || again >= due || !matches!(fault, Fault::Unknown(_) | Fault::NotSent(_)) {
                // Whatever the last one says, an earlier one may have run.
                let may_have_run = sent.before.load(Ordering::Relaxed);
                return Err(if may_have_run { Fault::Unknown(fault.what()) } else { fault });
            }
            tokio::time::sleep_until(again.into()).await;
            tries += 1;
        }
    }

    /// Runs a script here.
    ///
    /// # Cancel safety
    /// It may have run.
    pub(super) async fn run<T, E: std::fmt::Display>(
        &self,
        engine: &Engine,
        script: Script,
        write: impl Fn(&mut Cmd) + Sync,
        sent: &AtomicBool,
        parse: impl FnOnce(Value) -> Result<T, E>,
    ) -> Result<T, Fault> {
        let request = Request { slot: self.slot, script, key: &self.sub_key, arguments: &write, sent };
        parse(engine.transport.run(&request).await?).map_err(|bad| Fault::Unknown(bad.to_string()))
    }
}

/// As far apart as slots can be.
fn slot_of(home: Slot, index: u16, count: u16) -> Slot {
    let step = u32::from(index) * u32::from(Slot::COUNT) / u32::from(count);
    let number = (u32::from(home.number()) + step) % u32::from(Slot::COUNT);
    Slot::new(number as u16).expect("below the count")
}

/// Tries of what counts nothing twice.
const TRIES: u32 = 3;

/// The limiter ended while somebody waited.
pub(super) fn ended() -> Error {
    Error::new(ErrorKind::Unknown, "limiter", "it was shut down; what was on its way may have been counted, or not")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::key::check_name;

    #[test]
    fn shards_lie_apart_and_stay_when_their_number_doubles() {
        let slots = |home: &str, count: u16| {
            let home = Slot::of(home.as_bytes());
            (0..count).map(|index| slot_of(home, index, count)).collect::<HashSet<_>>()
        };
        for home in ["a", "b", "last"] {
            for count in 1..=64 {
                let (now, doubled) = (slots(home, count), slots(home, 2 * count));
                assert_eq!((now.len(), doubled.len()), (count.into(), 2 * usize::from(count)));
                assert!(now.is_subset(&doubled), "{count}");
            }
        }
        // Three masters with a third of the slots each have one each.
        let third = |slot: &Slot| u32::from(slot.number()) * 3 / u32::from(Slot::COUNT);
        assert_eq!(slots("a", 3).iter().map(third).collect::<HashSet<_>>().len(), 3);
    }

    /// Whatever a limit is called, its sub-keys are others.
    #[test]
    fn no_limit_can_have_the_name_of_a_counter() {
        for kind in ["count", "sliding", "distinct", "approximate"] {
            assert!(check_name("name", &format!(":{kind}:clicks")).is_err());
        }
        assert!(check_name("name", "").is_err());
    }
}
