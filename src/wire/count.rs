//! One run of the counter script: its arguments and its reply.

use redis::{Cmd, Value};

use super::reply::{BadReply, Fields};
use crate::clock::Micros;
use crate::counter::kernel::{Generation, Once, Terms, Verdict};

/// What a script of counters does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Look = 0,
    /// Also called reset.
    Clear = 1,
    Add = 2,
}

/// What one run is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CountRun {
    Look,
    Reset,
    /// The generation is what the first shard counts, if this is another one.
    Add {
        amount: i64,
        bound: Option<i64>,
        once: Once,
        generation: Option<Generation>,
    },
}

impl CountRun {
    /// Appends the arguments behind the key of a shard, which may be its first one.
    pub(crate) fn write(&self, terms: &Terms, is_first: bool, cmd: &mut Cmd) {
        let mode = match self {
            Self::Look => Mode::Look,
            Self::Reset => Mode::Clear,
            Self::Add { .. } => Mode::Add,
        };
        cmd.arg(mode as u8).arg(terms.ttl).arg(u8::from(terms.renew)).arg(terms.horizon);
        cmd.arg(terms.shards).arg(terms.hot).arg(u8::from(is_first));
        if let Self::Add { amount, bound, once, generation } = self {
            cmd.arg(once.not_after).arg(&once.client.to_le_bytes()).arg(once.number).arg(*amount);
            match bound {
                Some(bound) => cmd.arg(*bound),
                None => cmd.arg(""),
            };
            if let Some(Generation { number, ends }) = generation {
                cmd.arg(*number).arg(*ends);
            }
        }
    }
}

/// What a run answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CountReply {
    pub verdict: Verdict,
    /// The clock of the shard.
    pub now: Micros,
    pub total: i64,
    /// Whether the key has too many adds for one shard.
    pub is_hot: bool,
    /// What it counts. Of a first shard that has ended, both are zero.
    pub generation: Generation,
}

impl CountReply {
    pub(crate) fn parse(value: Value) -> Result<Self, BadReply> {
        let mut fields = Fields::new(value)?;
        let verdict = match fields.number("status", 0)? {
            0 => Verdict::Done,
            1 => Verdict::Above,
            2 => Verdict::Overflow,
            3 => Verdict::Late,
            4 => Verdict::Crowded,
            5 => Verdict::Over,
            status => return Err(BadReply::new("status", status)),
        };
        let (now, total) = (fields.number("now", 0)? as Micros, fields.number("total", i64::MIN)?);
        let is_hot = fields.number("hot", 0)? != 0;
        let number = fields.number("generation", 0)? as u64;
        let generation = Generation { number, ends: fields.number("ends", 0)? as Micros };
        fields.end(Self { verdict, now, total, is_hot, generation })
    }
}
