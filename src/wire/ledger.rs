//! The ledger: what home knows of the limit and of the shares it has lent.
//!
//! Bytes, little-endian: version (1), definition, cost (8), what is next (1 and a definition, or 0), number of grants (2); for each grant slot (2), id (16), permits (8), burst (8), cost (8), status (1), not after
//! (8); then for each grant that is pending or was never live, in the same order, the packed sub-key (4 for its length, then it). A home script appends
//! the sub-keys of new grants, so new grants are the last ones. A definition: limit (2 for its length, then its text),
//! revision (8), shards (2), carry (1).

use std::fmt;

use super::packed::is_lent;
use super::{GrantId, packed};
use crate::clock::Micros;
use crate::key::Slot;
use crate::limit::{Algorithm, Carry, Limit, Share};
use crate::plan::Definition;

const LIVE: u8 = 0;
const PENDING: u8 = 1;
const RECALLED: u8 = 2;
const UNUSED: u8 = 3;

/// The definition in force and all that is lent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ledger {
    pub definition: Definition,
    /// Units that a permit costs at home; 1 for windows.
    pub cost: i64,
    /// What is to be in force as soon as the shares of the present definition are back.
    pub next: Option<Definition>,
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
    /// Units that a permit costs there.
    pub cost: i64,
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
    /// On its way home: no call may use it. It may have been granted under a definition before this one.
    Recalled {
        /// The packed sub-key that it was given, if it was never live: nobody has used any of it. Else empty.
        unused: Vec<u8>,
    },
}

impl Status {
    /// Of a share that may have been used: only its shard knows what is left.
    pub(crate) const RECALLED: Self = Self::Recalled { unused: Vec::new() };

    pub(crate) fn is_recalled(&self) -> bool {
        matches!(self, Self::Recalled { .. })
    }

    /// The same on its way home. Only what is live is used, so one that never was comes home with what it was given.
    pub(crate) fn recalled(&self) -> Self {
        match self {
            Self::Live => Self::RECALLED,
            Self::Pending { state, .. } | Self::Recalled { unused: state } => Self::Recalled { unused: state.clone() },
        }
    }

    /// It has been this before: one that has been in use must not pass for one that never was.
    pub(crate) fn was(&mut self, before: &Self) {
        let next = match (&*self, before) {
            (Self::Pending { .. }, Self::Live) => Self::Live,
            (Self::Recalled { .. }, Self::Live) => Self::RECALLED,
            (Self::Pending { .. } | Self::Recalled { .. }, before) if *before == Self::RECALLED => Self::RECALLED,
            (Self::Live | Self::Pending { .. } | Self::Recalled { .. }, _) => return,
        };
        *self = next;
    }
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
    pub(crate) fn new(definition: Definition) -> Self {
        let cost = Share::whole(&definition.limit).cost();
        Self { definition, cost, next: None, grants: Vec::new() }
    }

    pub(crate) fn limit(&self) -> &Limit {
        &self.definition.limit
    }

    /// What is, or is about to be, in force.
    pub(crate) fn wanted(&self) -> &Definition {
        self.next.as_ref().unwrap_or(&self.definition)
    }

    /// Permits a period and burst that home keeps. Nothing, while shares of a larger limit before this one are out.
    pub(crate) fn home_parts(&self) -> (u64, u64) {
        let lent = |of: fn(&Grant) -> u64| self.grants.iter().map(of).fold(0, u64::saturating_add);
        let permits = self.limit().permits().saturating_sub(lent(|grant| grant.permits));
        let burst = self.limit().burst().saturating_sub(lent(|grant| grant.burst));
        // A composite has no parts to keep: it begins when all is back.
        let waits = self.limit().algorithm() == Algorithm::Composite && !self.grants.is_empty();
        if permits == 0 || burst == 0 || waits { (0, 0) } else { (permits, burst) }
    }

    pub(crate) fn home_share(&self) -> Share {
        let (permits, burst) = self.home_parts();
        Share::part(self.limit(), self.cost, permits, burst)
    }

    /// Of a share that is not recalled.
    pub(crate) fn share_of(&self, grant: &Grant) -> Share {
        Share::part(self.limit(), grant.cost, grant.permits, grant.burst)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![packed::VERSION];
        put_definition(&mut bytes, &self.definition);
        bytes.extend(self.cost.to_le_bytes());
        match &self.next {
            None => bytes.push(0),
            Some(next) => {
                bytes.push(1);
                put_definition(&mut bytes, next);
            }
        }
        bytes.extend((self.grants.len() as u16).to_le_bytes());
        for grant in &self.grants {
            let (status, not_after) = match grant.status {
                Status::Live => (LIVE, 0),
                Status::Pending { not_after, .. } => (PENDING, not_after),
                Status::Recalled { ref unused } => (if unused.is_empty() { RECALLED } else { UNUSED }, 0),
            };
            bytes.extend(grant.slot.number().to_le_bytes());
            bytes.extend(grant.id.to_bytes());
            bytes.extend(grant.permits.to_le_bytes());
            bytes.extend(grant.burst.to_le_bytes());
            bytes.extend(grant.cost.to_le_bytes());
            bytes.push(status);
            bytes.extend(not_after.to_le_bytes());
        }
        for grant in &self.grants {
            if let Status::Pending { state, .. } | Status::Recalled { unused: state } = &grant.status
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
        let definition = input.definition()?;
        let cost = i64::from_le_bytes(input.array("cost")?);
        let next = match input.array("whether anything is next")? {
            [0] => None,
            [1] => Some(input.definition()?),
            [other] => return Err(bad(format_args!("{other} for what is next"))),
        };
        let count = input.u16("number of grants")?;
        let mut grants = Vec::new(); // not by `count`, which may be anything
        for _ in 0..count {
            grants.push(input.grant()?);
        }
        let mut ledger = Self { definition, cost, next, grants };
        ledger.check()?;
        for index in 0..ledger.grants.len() {
            // What comes home may be of a limit before this one.
            let (share, state) = match &ledger.grants[index].status {
                Status::Pending { .. } => (Some(ledger.share_of(&ledger.grants[index])), true),
                Status::Recalled { unused } => (None, !unused.is_empty()),
                Status::Live => (None, false),
            };
            let Grant { id, status, .. } = &mut ledger.grants[index];
            if let (true, Status::Pending { state, .. } | Status::Recalled { unused: state }) = (state, status) {
                let length = u32::from_le_bytes(input.array("length of a sub-key")?);
                *state = input.bytes(length as usize, "sub-key")?.to_vec();
                if !is_lent(state, share.as_ref(), *id) {
                    return Err(bad(format_args!("grant {id} has a sub-key that is not its own")));
                }
            }
        }
        if !input.0.is_empty() {
            return Err(bad(format_args!("{} bytes too many", input.0.len())));
        }
        Ok(ledger)
    }

    /// Every share is one that its kernel computes exactly, and no more is lent than there is: only shares that are on their
    /// way home may be of a larger limit.
    pub(crate) fn check(&self) -> Result<(), BadLedger> {
        let limit = self.limit();
        let period = limit.period().as_micros();
        let (counts_units, can_lend) = (Share::counts_units(limit), limit.algorithm() != Algorithm::Composite);
        let fits = |cost: i64, permits: u64| {
            // In this order: a cost that does not fit may be anything, also negative.
            Share::fits(limit, cost) && (!counts_units || (u128::from(permits) * cost as u128).is_multiple_of(period))
        };
        let (mut recalled, mut left) = (false, Some((limit.permits(), limit.burst())));
        for grant in &self.grants {
            let Grant { id, permits, burst, cost, status, .. } = grant;
            let exact = match status {
                Status::Recalled { .. } => {
                    recalled = true;
                    true
                }
                Status::Live | Status::Pending { .. } => {
                    left = left.and_then(|left| Some((left.0.checked_sub(*permits)?, left.1.checked_sub(*burst)?)));
                    can_lend && fits(*cost, *permits) && (counts_units || permits == burst)
                }
            };
            if *permits == 0 || *burst == 0 || !exact {
                return Err(bad(format_args!("grant {id} of {permits} and {burst} is no share of {limit}")));
            }
        }
        let (permits, _) = self.home_parts();
        if left.is_none() || permits == 0 && !recalled {
            return Err(bad(format_args!("more of {limit} is lent than there is, or home has nothing left")));
        }
        if !fits(self.cost, permits) {
            return Err(bad(format_args!("a permit of {limit} can't cost {} units at home", self.cost)));
        }
        let mut slots: Vec<Slot> = self.grants.iter().map(|grant| grant.slot).collect();
        slots.sort_unstable();
        match slots.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(bad(format_args!("slot {} has two shares", pair[0].number()))),
            None => Ok(()),
        }
    }
}

/// As scripts know it: 0 where the definition stays the same.
pub(super) fn carry_code(carry: Option<Carry>) -> u8 {
    match carry {
        None => 0,
        Some(Carry::Keep) => 1,
        Some(Carry::Proportional) => 2,
        Some(Carry::Reset) => 3,
    }
}

fn carry_of(code: u8) -> Result<Carry, BadLedger> {
    match code {
        1 => Ok(Carry::Keep),
        2 => Ok(Carry::Proportional),
        3 => Ok(Carry::Reset),
        _ => Err(bad(format_args!("no way {code} to carry anything over"))),
    }
}

fn put_definition(bytes: &mut Vec<u8>, definition: &Definition) {
    let limit = definition.limit.to_string();
    bytes.extend((limit.len() as u16).to_le_bytes());
    bytes.extend(limit.as_bytes());
    bytes.extend(definition.revision.to_le_bytes());
    bytes.extend(definition.shards_code().to_le_bytes());
    bytes.push(carry_code(Some(definition.carry)));
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

    fn definition(&mut self) -> Result<Definition, BadLedger> {
        let length = self.u16("length of the limit")?;
        let text = std::str::from_utf8(self.bytes(length.into(), "limit")?).map_err(bad)?;
        let limit: Limit = text.parse().map_err(bad)?;
        let (revision, code) = (self.u64("revision")?, self.u16("shards")?);
        let shards =
            Definition::shards_of(code).ok_or_else(|| bad(format_args!("no such number of shards: {code}")))?;
        let carry = carry_of(self.array::<1>("carry")?[0])?;
        Ok(Definition { limit, revision, shards, carry })
    }

    /// A grant whose state is still to be read.
    fn grant(&mut self) -> Result<Grant, BadLedger> {
        let number = self.u16("slot")?;
        let slot = Slot::new(number).ok_or_else(|| bad(format_args!("slot {number} does not exist")))?;
        let id = GrantId::from_bytes(self.bytes(GrantId::SIZE, "grant id")?).ok_or_else(|| bad("no grant id"))?;
        let (permits, burst) = (self.u64("permits")?, self.u64("burst")?);
        let cost = i64::from_le_bytes(self.array("cost of a grant")?);
        let [status] = self.array("status")?;
        let not_after = self.u64("not after")?;
        let status = match status {
            LIVE if not_after == 0 => Status::Live,
            RECALLED if not_after == 0 => Status::RECALLED,
            // Any that are not empty, until they are read.
            UNUSED if not_after == 0 => Status::Recalled { unused: vec![0] },
            PENDING if not_after < 1 << 53 => Status::Pending { not_after, state: Vec::new() },
            _ => return Err(bad(format_args!("grant {id} has status {status} until {not_after}"))),
        };
        Ok(Grant { slot, id, permits, burst, cost, status })
    }
}
