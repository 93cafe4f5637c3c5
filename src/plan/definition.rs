//! A definition: the limit of a key, how many shards it is to have, and which of two definitions counts.

use std::cmp::Ordering;
use std::num::NonZeroU16;

use super::Shards;
use crate::key::Slot;
use crate::limit::{Carry, Limit};

/// What a key's home is to hold to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Definition {
    pub limit: Limit,
    /// Of two definitions that differ, the one with the higher revision counts.
    pub revision: u64,
    pub shards: Shards,
    /// What becomes of what a key has when this comes into force.
    pub carry: Carry,
}

/// Revisions of limits that were set while they were in use begin here: they outrank whatever a program defines as it
/// starts. Milliseconds since 1970 stay below it for longer than anybody will care.
pub(crate) const SET: u64 = 1 << 51;
/// And those of single keys begin here: a key that has a limit of its own keeps it when the others' changes.
pub(crate) const SET_KEY: u64 = 1 << 52;

impl Definition {
    pub(crate) fn new(limit: Limit, revision: u64, shards: Shards) -> Self {
        let shards = if shards == Shards::Exactly(NonZeroU16::MIN) { Shards::Off } else { shards };
        Self { limit, revision, shards, carry: Carry::Keep }
    }

    /// Whether it says the same, whoever said it when.
    pub(crate) fn says(&self, other: &Self) -> bool {
        self.limit == other.limit && self.shards == other.shards
    }

    /// Whether this is to replace the other: it says something else, and says it later. What was set is written down also
    /// where it says the same, so that nothing that is defined later replaces it.
    pub(crate) fn replaces(&self, other: &Self) -> bool {
        match self.revision.cmp(&other.revision) {
            Ordering::Less => false,
            Ordering::Greater => !self.says(other) || self.revision >= SET,
            // Two that start in the same millisecond: any order will do, if it is the same for all.
            Ordering::Equal => !self.says(other) && self.rank() > other.rank(),
        }
    }

    fn rank(&self) -> (String, u16) {
        (self.limit.to_string(), self.shards_code())
    }

    /// `shards` as two bytes.
    pub(crate) fn shards_code(&self) -> u16 {
        match self.shards {
            Shards::PerMaster => 0,
            Shards::Off => 1,
            Shards::Exactly(count) => count.get(),
            Shards::Auto => u16::MAX,
        }
    }

    pub(crate) fn shards_of(code: u16) -> Option<Shards> {
        match code {
            0 => Some(Shards::PerMaster),
            1 => Some(Shards::Off),
            u16::MAX => Some(Shards::Auto),
            count if count <= Slot::COUNT => NonZeroU16::new(count).map(Shards::Exactly),
            _ => None,
        }
    }
}
