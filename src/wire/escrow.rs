//! The steps of escrow: the arguments of each and its reply.

use redis::{Cmd, Value};

use super::reply::{BadReply, Fields};
use super::{GrantId, Ledger};
use crate::clock::Micros;
use crate::limit::Share;

/// Home gives shares away, or just writes another ledger.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GrantRun<'a> {
    /// The id of the ledger that it follows. Any other: somebody was first, and nothing changes.
    pub expected: GrantId,
    /// The id of the new ledger.
    pub id: GrantId,
    /// Milliseconds that home must live on at least.
    pub least_ttl: u64,
    /// The new ledger. Its last `empty.len()` grants are new: pending, with a state that the script appends.
    pub ledger: &'a Ledger,
    /// For each new grant: does it begin with no permits and take none from home?
    pub empty: &'a [bool],
}

impl GrantRun<'_> {
    /// Appends the arguments behind the key.
    pub(crate) fn write(&self, cmd: &mut Cmd) {
        cmd.arg(&self.expected.to_bytes()).arg(&self.id.to_bytes()).arg(self.least_ttl).arg(self.ledger.encode());
        match self.ledger.home_share() {
            Share::Bucket(share) => cmd.arg(share.rate).arg(share.cost).arg(share.burst),
            Share::Fixed(share) | Share::Sliding(share) => cmd.arg(share.permits),
        };
        let old = self.ledger.grants.len() - self.empty.len();
        for (grant, empty) in self.ledger.grants[old..].iter().zip(self.empty) {
            cmd.arg(&grant.id.to_bytes());
            match self.ledger.share_of(grant) {
                Share::Bucket(share) => cmd.arg(share.rate).arg(share.burst),
                Share::Fixed(share) | Share::Sliding(share) => cmd.arg(share.permits),
            };
            cmd.arg(u8::from(*empty));
        }
    }
}

/// What home answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GrantReply {
    Granted {
        id: GrantId,
        /// As it is stored now, with the states of the new grants.
        ledger: Vec<u8>,
    },
    /// Nothing changed: no home is there, or it has another ledger.
    Refused { id: Option<GrantId>, ledger: Option<Vec<u8>> },
}

impl GrantReply {
    pub(crate) fn parse(value: Value) -> Result<Self, BadReply> {
        let mut fields = Fields::new(value)?;
        let reply = match fields.number("status", 0)? {
            0 => Self::Granted { id: fields.id()?, ledger: fields.bytes("ledger")? },
            1 | 2 => Self::Refused { id: fields.some_id()?, ledger: fields.some_bytes("ledger")? },
            status => return Err(BadReply::new("status", status)),
        };
        fields.end(reply)
    }
}

/// A shard takes the share that home gave it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InstallRun<'a> {
    /// The packed sub-key, as home's ledger has it.
    pub state: &'a [u8],
    /// The last instant of the shard's clock at which it may still be done.
    pub not_after: Micros,
    /// Milliseconds that it lives if nobody uses it.
    pub ttl: u64,
}

impl InstallRun<'_> {
    /// Appends the arguments behind the key.
    pub(crate) fn write(&self, cmd: &mut Cmd) {
        cmd.arg(self.state).arg(self.not_after).arg(self.ttl);
    }
}

/// What the shard answered, with its clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InstallReply {
    /// It is there, by this run or by an earlier one.
    Installed { now: Micros },
    /// Something is there that is not older.
    Newer { now: Micros },
    /// The time for it has passed.
    Late { now: Micros },
}

impl InstallReply {
    pub(crate) fn parse(value: Value) -> Result<Self, BadReply> {
        let mut fields = Fields::new(value)?;
        let status = fields.number("status", 0)?;
        let now = fields.number("now", 0)? as Micros;
        let reply = match status {
            0 => Self::Installed { now },
            1 => Self::Newer { now },
            2 => Self::Late { now },
            status => return Err(BadReply::new("status", status)),
        };
        fields.end(reply)
    }
}
