//! The ledger: what home knows of the limit and of the shares it has lent.
//!
//! Bytes, little-endian: version (1), limit (2 for its length, then its text), revision (8), shards (2), cost (8), number of
//! grants (2); for each grant slot (2), id (16), permits (8), burst (8), status (1), not after (8); then for each pending
//! grant, in the same order, the packed sub-key (4 for its length, then it). A grant script appends the sub-keys of new
//! grants, so new grants are the last ones.

use std::fmt;

use super::packed::is_lent;
use super::{GrantId, packed};
use crate::clock::Micros;
use crate::key::Slot;
use crate::limit::{Limit, Share};

const LIVE: u8 = 0;
const PENDING: u8 = 1;

/// The definition in force and all that is lent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ledger {
    pub limit: Limit,
    pub revision: u64,
    /// How many shards were asked for.
    pub shards: u16,
    /// Units that a permit costs in every share; 1 for windows.
    pub cost: i64,
    pub grants: Vec<Grant>,
}

/// A share that is lent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub slot: Slot,
    pub id: GrantId,
    /// Permits a period.
    pub permits: u64,
    /// For windows the same as `permits`.
    pub burst: u64,
    pub status: Status,
}

/// How far a grant has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// Installed: calls may use it.
    Live,
    /// Taken from home, and perhaps not installed yet.
    Pending {
        /// The last instant of the shard's clock at which it may be installed.
        not_after: Micros,
        /// The packed sub-key to install; empty while the script still has to append it.
        state: Vec<u8>,
    },
}

/// A ledger that can't be read, or whose numbers can't be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadLedger(String);

impl fmt::Display for BadLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed ledger: {}", self.0)
    }
}

impl std::error::Error for BadLedger {}

fn bad(why: impl fmt::Display) -> BadLedger {
    BadLedger(why.to_string())
}

impl Ledger {
    /// Of a home that never lent anything.
    pub(crate) fn new(limit: Limit, revision: u64, shards: u16) -> Self {
        Self { limit, revision, shards, cost: Share::whole(&limit).cost(), grants: Vec::new() }
    }

    /// Permits a period that home keeps.
    pub(crate) fn home_permits(&self) -> u64 {
        self.limit.permits() - self.grants.iter().map(|grant| grant.permits).sum::<u64>()
    }

    /// The burst that home keeps.
    pub(crate) fn home_burst(&self) -> u64 {
        self.limit.burst() - self.grants.iter().map(|grant| grant.burst).sum::<u64>()
    }

    pub(crate) fn home_share(&self) -> Share {
        Share::part(&self.limit, self.cost, self.home_permits(), self.home_burst())
    }

    pub(crate) fn share_of(&self, grant: &Grant) -> Share {
        Share::part(&self.limit, self.cost, grant.permits, grant.burst)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let limit = self.limit.to_string();
        let mut bytes = vec![packed::VERSION];
        bytes.extend((limit.len() as u16).to_le_bytes());
        bytes.extend(limit.as_bytes());
        bytes.extend(self.revision.to_le_bytes());
        bytes.extend(self.shards.to_le_bytes());
        bytes.extend(self.cost.to_le_bytes());
        bytes.extend((self.grants.len() as u16).to_le_bytes());
        for grant in &self.grants {
            let (status, not_after) = match grant.status {
                Status::Live => (LIVE, 0),
                Status::Pending { not_after, .. } => (PENDING, not_after),
            };
            bytes.extend(grant.slot.number().to_le_bytes());
            bytes.extend(grant.id.to_bytes());
            bytes.extend(grant.permits.to_le_bytes());
            bytes.extend(grant.burst.to_le_bytes());
            bytes.push(status);
            bytes.extend(not_after.to_le_bytes());
        }
        for grant in &self.grants {
            if let Status::Pending { state, .. } = &grant.status
                && !state.is_empty()
            {
                bytes.extend((state.len() as u32).to_le_bytes());
                bytes.extend(state);
            }
        }
        bytes
    }

    /// Reads a ledger as it is stored. What comes out adds up: it can be computed with unchecked.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, BadLedger> {
        let mut input = Input(bytes);
        let version = input.array::<1>("version")?[0];
        if version != packed::VERSION {
            return Err(bad(format_args!("version {version}, this client knows {}", packed::VERSION)));
        }
        let length = input.u16("length of the limit")?;
        let text = std::str::from_utf8(input.bytes(length.into(), "limit")?).map_err(bad)?;
        let limit: Limit = text.parse().map_err(bad)?;
        let (revision, shards) = (input.u64("revision")?, input.u16("shards")?);
        let cost = i64::from_le_bytes(input.array("cost")?);
        let count = input.u16("number of grants")?;
        let mut grants = Vec::new(); // not by `count`, which may be anything
        for _ in 0..count {
            grants.push(input.grant()?);
        }
        let mut ledger = Self { limit, revision, shards, cost, grants };
        ledger.check()?;
        for index in 0..ledger.grants.len() {
            let share = ledger.share_of(&ledger.grants[index]);
            let Grant { id, status, .. } = &mut ledger.grants[index];
            if let Status::Pending { state, .. } = status {
                let length = u32::from_le_bytes(input.array("length of a pending sub-key")?);
                *state = input.bytes(length as usize, "pending sub-key")?.to_vec();
                if !is_lent(state, &share, *id) {
                    return Err(bad(format_args!("grant {id} has a sub-key that is not its own")));
                }
            }
        }
        if !input.0.is_empty() {
            return Err(bad(format_args!("{} bytes too many", input.0.len())));
        }
        Ok(ledger)
    }

    /// Every share is one that its kernel computes exactly, and no more is lent than there is.
    fn check(&self) -> Result<(), BadLedger> {
        if !Share::fits(&self.limit, self.cost) {
            return Err(bad(format_args!("a permit of {} can't cost {} units", self.limit, self.cost)));
        }
        let period = self.limit.period().as_micros();
        let counts_units = Share::counts_units(&self.limit);
        let (mut permits, mut burst) = (self.limit.permits(), self.limit.burst());
        for grant in &self.grants {
            let units = u128::from(grant.permits) * self.cost as u128;
            let exact = if counts_units { units.is_multiple_of(period) } else { grant.permits == grant.burst };
            if grant.permits == 0 || grant.burst == 0 || !exact {
                let Grant { id, permits, burst, .. } = grant;
                return Err(bad(format_args!("grant {id} of {permits} and {burst} is no share of {}", self.limit)));
            }
            permits = permits.saturating_sub(grant.permits);
            burst = burst.saturating_sub(grant.burst);
        }
        if permits == 0 || burst == 0 {
            return Err(bad(format_args!("more of {} is lent than there is, or home has nothing left", self.limit)));
        }
        let mut slots: Vec<Slot> = self.grants.iter().map(|grant| grant.slot).collect();
        slots.sort_unstable();
        match slots.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(bad(format_args!("slot {} has two shares", pair[0].number()))),
            None => Ok(()),
        }
    }
}

/// What is still to be read.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn bytes(&mut self, length: usize, what: &str) -> Result<&'a [u8], BadLedger> {
        let (read, left) =
            self.0.split_at_checked(length).ok_or_else(|| bad(format_args!("ends within its {what}")))?;
        self.0 = left;
        Ok(read)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], BadLedger> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(N, what)?);
        Ok(array)
    }

    fn u16(&mut self, what: &str) -> Result<u16, BadLedger> {
        self.array(what).map(u16::from_le_bytes)
    }

    fn u64(&mut self, what: &str) -> Result<u64, BadLedger> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// A grant whose state is still to be read.
    fn grant(&mut self) -> Result<Grant, BadLedger> {
        let number = self.u16("slot")?;
        let slot = Slot::new(number).ok_or_else(|| bad(format_args!("slot {number} does not exist")))?;
        let id = GrantId::from_bytes(self.bytes(GrantId::SIZE, "grant id")?).ok_or_else(|| bad("no grant id"))?;
        let (permits, burst) = (self.u64("permits")?, self.u64("burst")?);
        let [status] = self.array("status")?;
        let not_after = self.u64("not after")?;
        let status = match status {
            LIVE if not_after == 0 => Status::Live,
            PENDING if not_after < 1 << 53 => Status::Pending { not_after, state: Vec::new() },
            _ => return Err(bad(format_args!("grant {id} has status {status} until {not_after}"))),
        };
        Ok(Grant { slot, id, permits, burst, status })
    }
}
