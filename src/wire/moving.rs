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

/// The record of a ring, as a node has it; empty if it has none.
pub(crate) fn ring_record(value: Value) -> Result<Vec<u8>, BadReply> {
    let mut fields = Fields::new(value)?;
    let record = fields.bytes("record")?;
    fields.end(record)
}
