//! One run of an acquire script: its arguments and its reply.

use redis::{Cmd, Value};
use smallvec::SmallVec;

use super::GrantId;
use super::reply::{BadReply, Fields};
use crate::clock::Micros;
use crate::kernel::batch::NEVER;
use crate::kernel::{Ask, Batch, Header, Verdict};

/// What one run is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run<'a> {
    /// The id that the caller knows: of the grant, or of home's ledger.
    pub id: GrantId,
    /// The packed home to create if nothing is there. Empty: then nothing is created.
    pub home: &'a [u8],
    /// Milliseconds that the sub-key must live on at least if it is written.
    pub least_ttl: u64,
    /// Write even if nothing changed, so that the time to live begins anew.
    pub touch: bool,
    pub batch: Batch<'a>,
}

impl Run<'_> {
    /// Appends the arguments behind the key.
    pub(crate) fn write(&self, cmd: &mut Cmd) {
        let mode = if self.batch.reset { 1u8 } else { 2 * u8::from(self.touch) };
        cmd.arg(&self.id.to_bytes()).arg(self.home).arg(self.least_ttl).arg(mode);
        cmd.arg(self.batch.debt).arg(self.batch.refunds.len());
        for refund in self.batch.refunds {
            cmd.arg(refund.permits).arg(refund.at).arg(refund.line);
        }
        let Some((last, asks)) = self.batch.asks.split_last() else { return };
        for ask in asks {
            cmd.arg(ask.permits).arg(ask.count);
        }
        match self.batch.held_for {
            0 => cmd.arg(last.permits).arg(last.count),
            held_for => cmd.arg(-(held_for as i64)).arg(last.count),
        };
    }
}

/// One for each ask; most runs have few.
pub(crate) type Verdicts = SmallVec<[Verdict; 4]>;

/// What a run answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Decided {
        id: GrantId,
        /// Home's ledger, where the caller named another id.
        ledger: Option<Vec<u8>>,
        header: Header,
        /// Runs a second that the shard had to write for.
        load: u64,
        verdicts: Verdicts,
    },
    /// Nothing there, a tombstone, or lent under another id: nothing was charged.
    Stale { id: Option<GrantId> },
    /// The state is another kernel's: nothing was charged.
    OtherKernel {
        id: GrantId,
        /// Empty unless it is home.
        ledger: Vec<u8>,
    },
}

impl Reply {
    /// Reads the reply to a run with these asks.
    pub(crate) fn parse(value: Value, asks: &[Ask]) -> Result<Self, BadReply> {
        let mut fields = Fields::new(value)?;
        match fields.number("status", 0)? {
            0 => Self::decided(fields, asks),
            1 => {
                let id = fields.some_id()?;
                fields.end(Self::Stale { id })
            }
            2 => {
                let (id, ledger) = (fields.id()?, fields.bytes("ledger")?);
                fields.end(Self::OtherKernel { id, ledger })
            }
            status => Err(BadReply::new("status", status)),
        }
    }

    fn decided(mut fields: Fields, asks: &[Ask]) -> Result<Self, BadReply> {
        let (id, ledger) = (fields.id()?, fields.some_bytes("ledger")?);
        let header = Header {
            now: fields.number("now", 0)? as Micros,
            at: fields.number("at", 0)? as Micros,
            level: fields.number("level", i64::MIN)?,
            missing: fields.number("missing", 0)?,
        };
        let load = fields.number("load", 0)? as u64;
        if header.at < header.now {
            return Err(BadReply::new("at", format_args!("{}, before now, {}", header.at, header.now)));
        }
        if fields.left() != 3 * asks.len() {
            let got = format_args!("{} numbers for {} asks", fields.left(), asks.len()).to_string();
            return Err(BadReply::new("the list of verdicts", got));
        }
        let verdict = |ask: &Ask| {
            let granted = fields.number("granted", 0)? as u64;
            if granted > ask.count {
                return Err(BadReply::new("granted", format_args!("{granted} of {} calls", ask.count)));
            }
            Ok(Verdict {
                granted,
                lack: match fields.number("lack", -1)? {
                    -1 => NEVER,
                    lack => lack,
                },
                line: fields.number("line", 0)?,
            })
        };
        let verdicts = asks.iter().map(verdict).collect::<Result<Verdicts, BadReply>>()?;
        Ok(Self::Decided { id, ledger, header, load, verdicts })
    }
}
