//! One run of the script of sliding counters: its arguments and its reply.

use redis::{Cmd, Value};

use super::Mode;
use super::reply::{BadReply, Fields};
use crate::clock::Micros;

/// What one run is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowsRun<'a> {
    pub mode: Mode,
    pub events: u64,
    pub windows: &'a [Micros],
}

impl WindowsRun<'_> {
    /// Appends the arguments behind the key.
    pub(crate) fn write(&self, cmd: &mut Cmd) {
        cmd.arg(self.mode as u8).arg(self.events).arg(self.windows);
    }
}

/// What a run answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WindowsReply {
    pub now: Micros,
    /// In the order of the windows. None: a count would be too large for whole numbers, and nothing was counted.
    pub counts: Option<Vec<u64>>,
}

impl WindowsReply {
    /// Reads the reply to a run with so many windows.
    pub(crate) fn parse(value: Value, windows: usize) -> Result<Self, BadReply> {
        let mut fields = Fields::new(value)?;
        let status = fields.number("status", 0)?;
        let now = fields.number("now", 0)? as Micros;
        let counts = match status {
            0 => {
                let counts = (0..windows).map(|_| fields.number("count", 0).map(|count| count as u64));
                Some(counts.collect::<Result<_, BadReply>>()?)
            }
            2 => None,
            status => return Err(BadReply::new("status", status)),
        };
        fields.end(Self { now, counts })
    }
}
