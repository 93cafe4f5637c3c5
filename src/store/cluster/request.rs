//! A request: one script run on one key.

use redis::{Cmd, cmd};

use crate::key::Slot;
use crate::sync::atomic::AtomicBool;
use crate::wire::Script;

/// One script run on one key.
pub(crate) struct Request<'a> {
    pub slot: Slot,
    pub script: Script,
    pub key: &'a [u8],
    /// Adds the script's arguments.
    pub arguments: &'a (dyn Fn(&mut Cmd) + Sync),
    /// Whether it is on its way, and may run.
    pub sent: &'a AtomicBool,
}

impl Request<'_> {
    pub(super) fn command(&self, by_source: bool) -> Cmd {
        let mut command = if by_source { cmd("EVAL") } else { cmd("EVALSHA") };
        command.arg(if by_source { self.script.source() } else { self.script.sha() }).arg(1).arg(self.key);
        (self.arguments)(&mut command);
        command
    }
}
