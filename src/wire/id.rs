//! Ids of grants and of ledgers.

use std::fmt;

use crate::plan::Definition;

/// Names one grant, or one version of a ledger. Whoever has the higher stamp came later; the random bits tell apart what
/// two clients did at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GrantId {
    /// Milliseconds of home's clock, or one more than the last stamp where that is higher. Below 2⁵³: scripts compare it.
    pub stamp: u64,
    pub random: u64,
}

impl GrantId {
    pub(crate) const SIZE: usize = 16;

    /// The id of a home that never lent anything: the same on every client, so that all of them can create it.
    /// When it was said makes no difference.
    pub(crate) fn of_definition(definition: &Definition) -> Self {
        // FNV-1a: no library's next release may change it.
        let text = definition.limit.to_string();
        let random = text
            .bytes()
            .chain(definition.shards_code().to_le_bytes())
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        Self { stamp: 0, random }
    }

    /// An id later than this one.
    pub(crate) fn after(self, now_ms: u64, random: u64) -> Self {
        Self { stamp: now_ms.max(self.stamp + 1), random }
    }

    pub(crate) fn to_bytes(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..8].copy_from_slice(&self.stamp.to_le_bytes());
        bytes[8..].copy_from_slice(&self.random.to_le_bytes());
        bytes
    }

    /// `None` unless these are 16 bytes with a stamp that scripts can compare.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (stamp, random) = bytes.split_first_chunk::<8>()?;
        let id = Self { stamp: u64::from_le_bytes(*stamp), random: u64::from_le_bytes(random.try_into().ok()?) };
        (id.stamp < 1 << 53).then_some(id)
    }
}

/// As 32 hex digits, the stamp first.
impl fmt::Display for GrantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:016x}", self.stamp, self.random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Shards;

    #[test]
    fn bytes_are_read_back() {
        let id = GrantId { stamp: (1 << 53) - 1, random: u64::MAX - 5 };
        assert_eq!(GrantId::from_bytes(&id.to_bytes()), Some(id));
        assert_eq!(id.to_string(), "001ffffffffffffffffffffffffffffa");
        assert_eq!(GrantId::from_bytes(&id.to_bytes()[1..]), None);
        assert_eq!(GrantId::from_bytes(&[0; 17]), None);
        assert_eq!(
            GrantId::from_bytes(&GrantId { stamp: 1 << 53, random: 0 }.to_bytes()),
            None,
            "Lua can't compare it"
        );
    }

    #[test]
    fn a_later_id_has_a_higher_stamp() {
        let id = GrantId { stamp: 7, random: 1 };
        assert_eq!(id.after(3, 9), GrantId { stamp: 8, random: 9 }, "a clock behind");
        assert_eq!(id.after(90, 9), GrantId { stamp: 90, random: 9 });
    }

    /// Clients of all releases must create the same home.
    #[test]
    fn the_id_of_a_definition_never_changes() {
        let definition = |limit: &str, revision, shards| Definition::new(limit.parse().unwrap(), revision, shards);
        let limit = "token-bucket 500000/s burst 50000";
        let id = GrantId::of_definition(&definition(limit, 3, Shards::PerMaster));
        assert_eq!(id.to_string(), "00000000000000005375c3abe1ea3743");
        assert_eq!(GrantId::of_definition(&definition(limit, 4, Shards::PerMaster)), id);
        assert_ne!(GrantId::of_definition(&definition(limit, 3, Shards::Auto)), id);
        let other = "token-bucket 500000/s burst 50001";
        assert_ne!(GrantId::of_definition(&definition(other, 3, Shards::PerMaster)), id);
    }
}
