//! The steps of escrow: the arguments of each and its reply.

use redis::{Cmd, Value};

use super::ledger::carry_code;
use super::packed::body;
use super::reply::{BadReply, Fields};
use super::{GrantId, Ledger};
use crate::clock::Micros;
use crate::limit::{Carry, Share};

/// Home writes another ledger: shares come back, the definition changes, new shares leave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HomeRun<'a> {
    /// The id of the ledger that it follows. Any other: somebody was first, and nothing changes. None: no home may be there.
    pub expected: Option<GrantId>,
    /// The id of the new ledger.
    pub id: GrantId,
    /// Milliseconds that home must live on at least.
    pub least_ttl: u64,
    /// The new ledger. Its last `new` grants are new: pending, with a state that the script appends.
    pub ledger: &'a Ledger,
    pub new: usize,
    /// Where the definition is another: how what home has is carried over, and the burst of the whole limit before.
    pub carry: Option<(Carry, u64)>,
    /// Permits that home may have and others have spent.
    pub deduct: u64,
    /// Shares that come back: their permits, and the tombstone; empty where nobody knows what was left.
    pub back: &'a [(u64, Vec<u8>)],
}

impl HomeRun<'_> {
    /// Appends the arguments behind the key.
    pub(crate) fn write(&self, cmd: &mut Cmd) {
        match self.expected {
            Some(id) => cmd.arg(&id.to_bytes()),
            None => cmd.arg(b""),
        };
        cmd.arg(&self.id.to_bytes()).arg(self.least_ttl).arg(self.ledger.encode());
        let after = self.ledger.limit().burst();
        cmd.arg(carry_code(self.carry.map(|(carry, _)| carry)));
        cmd.arg(self.carry.map_or(after, |(_, before)| before)).arg(after).arg(self.deduct).arg(self.back.len());
        match self.ledger.home_share() {
            Share::Bucket(share) => cmd.arg(share.rate).arg(share.cost).arg(share.burst).arg(u8::from(share.paced)),
            Share::Fixed(share) => cmd.arg(share.permits).arg(share.window),
            Share::Sliding(share) => cmd.arg(share.permits).arg(share.window).arg(share.step),
            share @ Share::Composite(_) => cmd.arg(body(&share, None)),
        };
        for (permits, tombstone) in self.back {
            cmd.arg(*permits).arg(tombstone);
        }
        let old = self.ledger.grants.len() - self.new;
        for grant in &self.ledger.grants[old..] {
            cmd.arg(&grant.id.to_bytes());
            match self.ledger.share_of(grant) {
                Share::Bucket(share) => cmd.arg(share.rate).arg(share.burst),
                Share::Fixed(share) | Share::Sliding(share) => cmd.arg(share.permits),
                Share::Composite(_) => unreachable!("a composite lends nothing"),
            };
        }
    }
}

/// What home answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HomeReply {
    Written {
        id: GrantId,
        /// As it is stored now, with the states of the new grants.
        ledger: Vec<u8>,
    },
    /// Nothing changed: no home is there, or it has another ledger.
    Refused { id: Option<GrantId>, ledger: Option<Vec<u8>> },
}

impl HomeReply {
    pub(crate) fn parse(value: Value) -> Result<Self, BadReply> {
        let mut fields = Fields::new(value)?;
        let reply = match fields.number("status", 0)? {
            0 => Self::Written { id: fields.id()?, ledger: fields.bytes("ledger")? },
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

/// A shard gives its share up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CloseRun {
    pub id: GrantId,
    /// Milliseconds that the tombstone lives.
    pub ttl: u64,
}

impl CloseRun {
    /// Appends the arguments behind the key.
    pub(crate) fn write(&self, cmd: &mut Cmd) {
        cmd.arg(&self.id.to_bytes()).arg(self.ttl);
    }
}

/// What the shard answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CloseReply {
    /// It is closed, by this run or by an earlier one.
    Closed {
        /// What was left of it, packed; none if nothing was there.
        tombstone: Option<Vec<u8>>,
        now: Micros,
    },
    /// Something is there that is not older: what it was asked to close is gone.
    Newer { now: Micros },
}

impl CloseReply {
    pub(crate) fn parse(value: Value) -> Result<Self, BadReply> {
        let mut fields = Fields::new(value)?;
        let status = fields.number("status", 0)?;
        let tombstone = fields.some_bytes("tombstone")?;
        let now = fields.number("now", 0)? as Micros;
        let reply = match status {
            0 => Self::Closed { tombstone, now },
            1 => Self::Newer { now },
            status => return Err(BadReply::new("status", status)),
        };
        fields.end(reply)
    }
}
