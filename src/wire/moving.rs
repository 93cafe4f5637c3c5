//! A sub-key that leaves one server of a ring for another: the replies of both steps.

use redis::Value;

use super::reply::{BadReply, Fields};

/// What left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MoveOutReply {
    /// How its content is written; zero: there was nothing.
    pub kind: i64,
    /// When its time is over, in ms of that server's clock; -1: never.
    pub expires: i64,
    pub content: Vec<u8>,
}

impl MoveOutReply {
    pub(crate) fn parse(value: Value) -> Result<Self, BadReply> {
        let mut fields = Fields::new(value)?;
        let (kind, expires) = (fields.number("kind", 0)?, fields.number("expires", -1)?);
        if kind > 2 {
            return Err(BadReply::new("kind", kind));
        }
        let content = fields.bytes("content")?;
        fields.end(Self { kind, expires, content })
    }
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MoveInReply {
    Arrived,
    /// It had been brought before.
    Present,
    /// There was nothing to bring, or its time was over.
    Nothing,
}

impl MoveInReply {
    pub(crate) fn parse(value: Value) -> Result<Self, BadReply> {
        let mut fields = Fields::new(value)?;
        let reply = match fields.number("status", 0)? {
            0 => Self::Arrived,
            1 => Self::Present,
            2 => Self::Nothing,
            status => return Err(BadReply::new("status", status)),
        };
        fields.end(reply)
    }
}

/// What a node of a ring says of its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RingReply {
    /// The record as it has it; empty if it has none.
    pub record: Vec<u8>,
    /// The highest ballot that it has promised to heed, for what is to follow that record; zero: none.
    pub promised: u64,
    /// The one that it gave its voice to; zero: none.
    pub voted: u64,
    /// And what that was for.
    pub next: Vec<u8>,
}

impl RingReply {
    pub(crate) fn parse(value: Value) -> Result<Self, BadReply> {
        let mut fields = Fields::new(value)?;
        let record = fields.bytes("record")?;
        let (promised, voted) = (fields.number("promised", 0)? as u64, fields.number("voted", 0)? as u64);
        let next = fields.bytes("next")?;
        fields.end(Self { record, promised, voted, next })
    }
}
