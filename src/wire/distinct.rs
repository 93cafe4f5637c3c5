//! Runs of the scripts that count distinct values: their arguments and replies.

use redis::{Cmd, Value};

use super::Mode;
use super::reply::{BadReply, Fields};
use crate::clock::Micros;

/// What one shard is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DistinctRun<'a> {
    pub mode: Mode,
    pub window: Micros,
    /// 1,024 at the most.
    pub values: &'a [Box<[u8]>],
}

impl DistinctRun<'_> {
    /// Appends the arguments behind the key.
    pub(crate) fn write(&self, cmd: &mut Cmd) {
        cmd.arg(self.mode as u8).arg(self.window);
        for value in self.values {
            cmd.arg(&**value);
        }
    }
}

/// What a shard answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DistinctReply {
    /// Values within the window.
    pub count: u64,
    /// Those of this run that were not.
    pub fresh: u64,
}

impl DistinctReply {
    pub(crate) fn parse(value: Value) -> Result<Self, BadReply> {
        let mut fields = Fields::new(value)?;
        done(fields.number("status", 0)?)?;
        fields.number("now", 0)?;
        let (count, fresh) = (fields.number("count", 0)? as u64, fields.number("fresh", 0)? as u64);
        fields.end(Self { count, fresh })
    }
}

fn done(status: i64) -> Result<(), BadReply> {
    if status == 0 { Ok(()) } else { Err(BadReply::new("status", status)) }
}

/// What one part of an approximate count is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ApproximateRun<'a> {
    pub mode: Mode,
    /// The number of the part, and its length.
    pub part: u64,
    pub step: Micros,
    /// Milliseconds that it lives.
    pub ttl: u64,
    /// 1,024 at the most.
    pub values: &'a [Box<[u8]>],
}

impl ApproximateRun<'_> {
    /// Appends the arguments behind the key.
    pub(crate) fn write(&self, cmd: &mut Cmd) {
        cmd.arg(self.mode as u8).arg(self.part).arg(self.step).arg(self.ttl);
        for value in self.values {
            cmd.arg(&**value);
        }
    }
}

/// What a part answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApproximateReply {
    /// Another part is current by the shard's clock: nothing was done.
    pub is_other_part: bool,
    pub now: Micros,
    /// As the server stores it; none if nothing is there, or it was not asked for.
    pub sketch: Option<Vec<u8>>,
}

impl ApproximateReply {
    pub(crate) fn parse(value: Value) -> Result<Self, BadReply> {
        let mut fields = Fields::new(value)?;
        let is_other_part = match fields.number("status", 0)? {
            0 => false,
            1 => true,
            status => return Err(BadReply::new("status", status)),
        };
        let (now, sketch) = (fields.number("now", 0)? as Micros, fields.some_bytes("the HyperLogLog")?);
        fields.end(Self { is_other_part, now, sketch })
    }
}
