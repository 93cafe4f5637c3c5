//! Home's ledger as its server has it, read without a limiter: one that looked would finish what it finds half done, and would tell
//! home again what it forgot. The bytes are those of `lua/README.md` and `src/wire/ledger.rs`.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use redis::cmd;

use crate::Failure;
use crate::cluster::{Cluster, Node};
use crate::limiter::{KEY, NAME};

/// Where a sub-key says what it is, and what that is for home.
const KIND: usize = 2;
const HOME: u8 = 0;
/// Where the number stands that says where the ledger begins: after version, kernel, kind and id.
const LEDGER_AT: usize = 19;
const LIVE: u8 = 0;
/// How long the first call may take to make home.
const PATIENCE: Duration = Duration::from_secs(20);

/// The home of the hot key.
#[derive(Clone, Debug)]
pub(crate) struct Home {
    pub slot: u16,
    sub_key: Vec<u8>,
}

/// What home says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ledger {
    /// The later of two ledgers has the higher one.
    pub stamp: u64,
    pub limit: String,
    /// How many shards it is to have; 0 and 65,535 if that follows from the cluster.
    pub shards: u16,
    /// Another definition is about to be in force.
    pub is_changing: bool,
    pub grants: Vec<Grant>,
}

/// A share that home lent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub slot: u16,
    pub id: u128,
    pub permits: u64,
    pub burst: u64,
    /// Neither on its way out nor on its way home.
    pub is_live: bool,
}

impl Home {
    /// Waits until somebody has called, and made it.
    pub(crate) fn find(cluster: &Cluster) -> Result<Self, Failure> {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            for node in &cluster.nodes[..cluster.masters] {
                for sub_key in node.ask::<Vec<Vec<u8>>>(cmd("KEYS").arg(format!("*:{NAME}:{KEY}")))? {
                    let state = node.look_at(&sub_key)?.unwrap_or_default();
                    if state.get(KIND) == Some(&HOME) {
                        let slot = node.ask(cmd("CLUSTER").arg("KEYSLOT").arg(&sub_key))?;
                        return Ok(Self { slot, sub_key });
                    }
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(Failure::new("nobody made a home"))
    }

    /// What this node has of it, be it master or replica.
    pub(crate) fn at(&self, node: &Node) -> Result<Ledger, Failure> {
        let state = node.look_at(&self.sub_key)?.ok_or_else(|| Failure::new("there is no home"))?;
        Ledger::read(&state).ok_or_else(|| Failure::new("home has no ledger that can be read"))
    }

    /// As its master has it. While the slot moves it may be neither here nor there for a moment.
    pub(crate) fn ledger(&self, cluster: &Cluster) -> Result<Ledger, Failure> {
        let begin = Instant::now();
        loop {
            match self.at(&cluster.nodes[cluster.owner_of(self.slot)?]) {
                Err(_) if begin.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(5)),
                found => return found,
            }
        }
    }
}

impl Ledger {
    fn read(state: &[u8]) -> Option<Self> {
        let mut head = Bytes(state.get(LEDGER_AT - 16..)?);
        let stamp = head.u64()?;
        head.u64()?;
        let at = head.take(4)?.iter().rev().fold(0, |at, byte| at << 8 | usize::from(*byte));
        let mut ledger = Bytes(state.get(at..)?);
        ledger.take(1)?;
        let (limit, shards) = ledger.definition()?;
        ledger.u64()?;
        let is_changing = ledger.take(1)? == [1];
        if is_changing {
            ledger.definition()?;
        }
        let count = ledger.u16()?;
        let grants = (0..count).map(|_| ledger.grant()).collect::<Option<_>>()?;
        Some(Self { stamp, limit, shards, is_changing, grants })
    }

    /// Nothing is on its way, and there are as many shards as were asked for.
    pub(crate) fn is_settled(&self) -> bool {
        let is_asked_for = matches!(self.shards, 0 | u16::MAX) || self.grants.len() + 1 == usize::from(self.shards);
        !self.is_moving() && is_asked_for
    }

    /// Both are settled, with the same limit and as many shards.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let is_same = (&self.limit, self.shards, self.grants.len()) == (&other.limit, other.shards, other.grants.len());
        is_same && self.is_settled() && other.is_settled()
    }

    /// Something is on its way.
    pub(crate) fn is_moving(&self) -> bool {
        self.is_changing || self.grants.iter().any(|grant| !grant.is_live)
    }

    pub(crate) fn ids(&self) -> BTreeSet<u128> {
        self.grants.iter().map(|grant| grant.id).collect()
    }
}

/// What is still to be read, little-endian.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, left) = self.0.split_at_checked(count)?;
        self.0 = left;
        Some(taken)
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.take(2)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    /// Limit and shards; its revision and what it carries over are skipped.
    fn definition(&mut self) -> Option<(String, u16)> {
        let length = self.u16()?;
        let limit = String::from_utf8(self.take(usize::from(length))?.to_vec()).ok()?;
        self.u64()?;
        let shards = self.u16()?;
        self.take(1)?;
        Some((limit, shards))
    }

    fn grant(&mut self) -> Option<Grant> {
        let slot = self.u16()?;
        let id = u128::from_be_bytes(self.take(16)?.try_into().ok()?);
        let (permits, burst) = (self.u64()?, self.u64()?);
        self.u64()?;
        let is_live = self.take(1)? == [LIVE];
        self.u64()?;
        Some(Grant { slot, id, permits, burst, is_live })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(limit: &str, shards: u16) -> Vec<u8> {
        let mut bytes = (limit.len() as u16).to_le_bytes().to_vec();
        bytes.extend(limit.as_bytes());
        bytes.extend(9_u64.to_le_bytes());
        bytes.extend(shards.to_le_bytes());
        bytes.push(1);
        bytes
    }

    /// A home with a ledger, as the documentation of the scripts has it.
    fn home(next: Option<&str>, grants: &[(u16, u8)]) -> Vec<u8> {
        let mut bytes = vec![1, 1, HOME];
        bytes.extend(77_u64.to_le_bytes());
        bytes.extend(5_u64.to_le_bytes());
        bytes.extend(43_u32.to_le_bytes());
        bytes.extend([0; 20]);
        bytes.push(1);
        bytes.extend(definition("4/s", 3));
        bytes.extend(1_u64.to_le_bytes());
        bytes.push(u8::from(next.is_some()));
        bytes.extend(next.into_iter().flat_map(|next| definition(next, 3)));
        bytes.extend((grants.len() as u16).to_le_bytes());
        for (slot, status) in grants {
            bytes.extend(slot.to_le_bytes());
            bytes.extend([7; 16]);
            for number in [10_u64, 20, 1] {
                bytes.extend(number.to_le_bytes());
            }
            bytes.push(*status);
            bytes.extend(0_u64.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn what_home_says_is_read() {
        let read = |next, grants: &[_]| Ledger::read(&home(next, grants)).unwrap();
        let ledger = read(None, &[(300, LIVE), (16_000, LIVE)]);
        assert_eq!((ledger.stamp, ledger.limit.as_str(), ledger.shards), (77, "4/s", 3));
        assert_eq!((ledger.grants[1].slot, ledger.grants[1].permits, ledger.grants[1].burst), (16_000, 10, 20));
        assert!(ledger.is_settled() && !ledger.is_moving());
        assert!(!read(None, &[(300, LIVE)]).is_settled(), "one is missing");
        assert!(read(None, &[(300, LIVE), (301, 2)]).is_moving());
        assert!(read(Some("token-bucket 5/s burst 9"), &[(300, LIVE), (301, LIVE)]).is_moving());
    }

    #[test]
    fn what_is_cut_short_is_no_ledger() {
        let whole = home(Some("1/s"), &[(300, LIVE)]);
        assert!((0..whole.len()).all(|length| Ledger::read(&whole[..length]).is_none()));
    }
}
