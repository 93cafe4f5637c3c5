//! Reading replies: one field after the other, each checked.

use std::fmt;
use std::vec::IntoIter;

use redis::Value;

use super::GrantId;
use super::packed::VERSION;

/// A script's reply that is not one this client knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadReply {
    field: &'static str,
    got: String,
}

impl fmt::Display for BadReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed reply of a script: {} is {}", self.field, self.got)
    }
}

impl std::error::Error for BadReply {}

impl BadReply {
    pub(super) fn new(field: &'static str, got: impl fmt::Display) -> Self {
        Self { field, got: got.to_string() }
    }

    /// Says what it is and how long, not what is in it: that can be megabytes.
    fn value(field: &'static str, value: Option<&Value>) -> Self {
        match value {
            None => Self::new(field, "missing"),
            Some(Value::Nil) => Self::new(field, "nil"),
            Some(Value::Int(number)) => Self::new(field, number),
            Some(Value::BulkString(bytes)) => Self::new(field, format_args!("a string of {} bytes", bytes.len())),
            Some(Value::Array(values)) => Self::new(field, format_args!("a list of {}", values.len())),
            Some(_) => Self::new(field, "of another type"),
        }
    }
}

/// The fields of a reply that are still to be read.
pub(super) struct Fields(IntoIter<Value>);

impl Fields {
    /// The fields behind the version, which must be ours.
    pub(super) fn new(value: Value) -> Result<Self, BadReply> {
        let Value::Array(values) = value else { return Err(BadReply::value("the reply", Some(&value))) };
        let mut fields = Self(values.into_iter());
        match fields.number("version", 0)? {
            version if version == i64::from(VERSION) => Ok(fields),
            version => Err(BadReply::new("version", format_args!("{version}, this client knows {VERSION}"))),
        }
    }

    pub(super) fn left(&self) -> usize {
        self.0.len()
    }

    /// A whole number of at least `least` that Lua has computed exactly.
    pub(super) fn number(&mut self, field: &'static str, least: i64) -> Result<i64, BadReply> {
        const EXACT: i64 = 1 << 53;
        match self.0.next() {
            Some(Value::Int(number)) if (least.max(-EXACT)..=EXACT).contains(&number) => Ok(number),
            other => Err(BadReply::value(field, other.as_ref())),
        }
    }

    pub(super) fn bytes(&mut self, field: &'static str) -> Result<Vec<u8>, BadReply> {
        match self.0.next() {
            Some(Value::BulkString(bytes)) => Ok(bytes),
            other => Err(BadReply::value(field, other.as_ref())),
        }
    }

    /// Empty bytes are none.
    pub(super) fn some_bytes(&mut self, field: &'static str) -> Result<Option<Vec<u8>>, BadReply> {
        Ok(Some(self.bytes(field)?).filter(|bytes| !bytes.is_empty()))
    }

    pub(super) fn id(&mut self) -> Result<GrantId, BadReply> {
        self.some_id()?.ok_or_else(|| BadReply::new("id", "empty"))
    }

    /// Empty where nothing is stored.
    pub(super) fn some_id(&mut self) -> Result<Option<GrantId>, BadReply> {
        match self.some_bytes("id")? {
            None => Ok(None),
            Some(bytes) => match GrantId::from_bytes(&bytes) {
                Some(id) => Ok(Some(id)),
                None => Err(BadReply::value("id", Some(&Value::BulkString(bytes)))),
            },
        }
    }

    /// Nothing may be left.
    pub(super) fn end<T>(mut self, read: T) -> Result<T, BadReply> {
        match self.0.next() {
            None => Ok(read),
            surplus => Err(BadReply::value("what follows the last field", surplus.as_ref())),
        }
    }
}
