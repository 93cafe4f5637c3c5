//! One immutable snapshot, slot → master, with the slots of each master at hand.

use std::collections::HashMap;
use std::fmt;
use std::ops::RangeInclusive;

use crate::key::Slot;

const COUNT: usize = Slot::COUNT as usize;
/// In the table: a slot that no master owns.
const UNCOVERED: u16 = u16::MAX;
/// A master needs a slot to matter, so no more than that many can. It also keeps every index below [`UNCOVERED`],
/// and bounds what a hostile reply makes us hold.
const MOST_MASTERS: usize = COUNT;

type Owners = Box<[u16; COUNT]>;

/// A node that owns slots for writes. Its id is its identity; the address may change under it.
///
/// ```no_run
/// # fn run(topology: shardlimit::Topology) {
/// for master in topology.masters() {
///     println!("{} at {}:{}, or {master}", master.id, master.host, master.port);
/// }
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Master {
    /// The cluster's name for it: 40 hexadecimal digits.
    pub id: Box<str>,
    /// A name or an address, as the cluster announces it; IPv6 without brackets.
    pub host: Box<str>,
    /// Where it takes commands.
    pub port: u16,
}

impl Master {
    fn has_address_of(&self, other: &Self) -> bool {
        self.host == other.host && self.port == other.port
    }
}

/// The address, as a URL would have it.
impl fmt::Display for Master {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Which master owns which slot, at one epoch of the cluster: a snapshot that never changes.
///
/// ```no_run
/// # fn run(watch: shardlimit::TopologyWatch) {
/// let topology = watch.current();
/// println!("{} masters own {} slots", topology.masters().len(), topology.covered());
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Topology {
    epoch: u64,
    /// In the order of their ids, so that every client numbers them alike whatever the order of the reply.
    masters: Box<[Master]>,
    /// Slot → index into `masters`, or [`UNCOVERED`].
    owners: Owners,
    /// The covered slots, grouped by master in the order of `masters`, ascending within each: a plan must not
    /// scan 16,384 slots to find those of one master.
    slots: Box<[Slot]>,
    /// Where each master's group begins in `slots`, and, one past the last master, where it ends.
    starts: Box<[u16]>,
}

impl Topology {
    /// Checks what the cluster said. A master may be listed several times, once a range; masters without slots are
    /// left out; slots may be uncovered.
    ///
    /// # Errors
    /// [`Malformed`]: taking a part of a reply that contradicts itself could place two shards on one master.
    pub(crate) fn new(
        epoch: u64,
        masters: impl IntoIterator<Item = (Master, Vec<RangeInclusive<u16>>)>,
    ) -> Result<Self, Malformed> {
        let mut listed: Vec<Master> = Vec::new();
        let mut known: HashMap<Box<str>, u16> = HashMap::new();
        let mut owners = nobody();
        for (master, ranges) in masters {
            let index = if let Some(index) = known.get(&master.id) {
                let before = &listed[usize::from(*index)];
                if !before.has_address_of(&master) {
                    return Err(Malformed::TwoAddresses { one: before.clone(), other: master });
                }
                *index
            } else {
                if listed.len() == MOST_MASTERS {
                    return Err(Malformed::TooManyMasters);
                }
                let index = listed.len() as u16;
                known.insert(master.id.clone(), index);
                listed.push(master);
                index
            };
            let id = &listed[usize::from(index)].id;
            for range in ranges {
                let (first, last) = range.into_inner();
                if first > last {
                    return Err(Malformed::Reversed { id: id.clone(), first, last });
                }
                let Some(range) = owners.get_mut(usize::from(first)..=usize::from(last)) else {
                    return Err(Malformed::OutOfRange { id: id.clone(), first, last });
                };
                if let Some(at) = range.iter().position(|owner| *owner != UNCOVERED) {
                    let before = listed[usize::from(range[at])].id.clone();
                    return Err(Malformed::OwnedTwice { slot: first + at as u16, ids: [before, id.clone()] });
                }
                range.fill(index);
            }
        }
        Ok(Self::assemble(epoch, listed, owners))
    }

    /// The same with one slot at another master: what a MOVED reply teaches. The address given is the newer one. A
    /// master that lost its last slot by this is left out.
    pub(crate) fn with_moved(&self, slot: Slot, master: Master) -> Self {
        let mut masters = self.masters.to_vec();
        let mut owners = self.owners.clone();
        let index = masters.iter().position(|known| known.id == master.id).unwrap_or(masters.len());
        // At most one more than there are slots: still a valid index.
        owners[usize::from(slot.number())] = index as u16;
        match masters.get_mut(index) {
            Some(known) => *known = master,
            None => masters.push(master),
        }
        Self::assemble(self.epoch, masters, owners)
    }

    /// Leaves out masters without slots, orders the rest by id and groups the slots. `owners` holds indices into
    /// `listed`.
    fn assemble(epoch: u64, listed: Vec<Master>, mut owners: Owners) -> Self {
        let mut counts = vec![0; listed.len()];
        let mut slots = Vec::with_capacity(COUNT);
        for slot in Slot::all() {
            if let Some(count) = counts.get_mut(usize::from(owners[usize::from(slot.number())])) {
                *count += 1;
                slots.push(slot);
            }
        }

        let mut order: Vec<(usize, Master)> =
            listed.into_iter().enumerate().filter(|(index, _)| counts[*index] > 0).collect();
        order.sort_unstable_by(|(_, a), (_, b)| a.id.cmp(&b.id));
        let mut renumbered = vec![UNCOVERED; counts.len()];
        let mut starts = Vec::with_capacity(order.len() + 1);
        let mut start = 0;
        for (index, (was, _)) in order.iter().enumerate() {
            renumbered[*was] = index as u16;
            starts.push(start);
            start += counts[*was];
        }
        starts.push(start);

        // A counting sort: `slots` has its length already, now each goes to the end of its master's group.
        let mut ends = starts.clone();
        for slot in Slot::all() {
            let owner = &mut owners[usize::from(slot.number())];
            if let Some(index) = renumbered.get(usize::from(*owner)) {
                *owner = *index;
                let end = &mut ends[usize::from(*index)];
                slots[usize::from(*end)] = slot;
                *end += 1;
            }
        }
        let masters = order.into_iter().map(|(_, master)| master).collect();
        Self { epoch, masters, owners, slots: slots.into(), starts: starts.into() }
    }

    /// The cluster's epoch when it said this.
    ///
    /// ```no_run
    /// # fn run(topology: shardlimit::Topology) {
    /// println!("epoch {}", topology.epoch());
    /// # }
    /// ```
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Every master that owns a slot, in the order of their ids.
    ///
    /// ```no_run
    /// # fn run(topology: shardlimit::Topology) {
    /// println!("{} masters", topology.masters().len());
    /// # }
    /// ```
    #[must_use]
    pub fn masters(&self) -> &[Master] {
        &self.masters
    }

    /// Who owns the slot; `None` when nobody does.
    ///
    /// ```no_run
    /// # fn run(topology: shardlimit::Topology) {
    /// let owner = topology.master_of(shardlimit::Slot::of(b"some key"));
    /// # }
    /// ```
    #[must_use]
    pub fn master_of(&self, slot: Slot) -> Option<&Master> {
        self.index_of(slot).map(|index| &self.masters[index])
    }

    /// Whether it must not replace `known`. Another cluster under the same addresses counts its epochs anew.
    pub(crate) fn is_older_than(&self, known: &Self) -> bool {
        let related = known.masters.iter().any(|master| self.masters.iter().any(|other| other.id == master.id));
        related && self.epoch < known.epoch
    }

    /// Its index in [`masters`](Self::masters).
    pub(crate) fn index_of(&self, slot: Slot) -> Option<usize> {
        let index = self.owners[usize::from(slot.number())];
        (index != UNCOVERED).then_some(usize::from(index))
    }

    /// The slots of the master with this index, ascending; never none.
    pub(crate) fn slots_of(&self, index: usize) -> &[Slot] {
        &self.slots[usize::from(self.starts[index])..usize::from(self.starts[index + 1])]
    }

    /// How many slots have a master.
    ///
    /// ```no_run
    /// # fn run(topology: shardlimit::Topology) {
    /// println!("{} of 16384 slots have a master", topology.covered());
    /// # }
    /// ```
    #[must_use]
    pub fn covered(&self) -> usize {
        self.slots.len()
    }
}

/// 16,384 numbers help nobody who reads a log.
impl fmt::Debug for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Topology")
            .field("epoch", &self.epoch)
            .field("masters", &self.masters)
            .field("covered", &self.covered())
            .finish_non_exhaustive()
    }
}

fn nobody() -> Owners {
    // Through a Vec: 32 KiB are too much for the stack of a small thread.
    vec![UNCOVERED; COUNT].try_into().expect("it has the length it was made with")
}

/// Why a reply can't be a topology.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    OutOfRange { id: Box<str>, first: u16, last: u16 },
    Reversed { id: Box<str>, first: u16, last: u16 },
    OwnedTwice { slot: u16, ids: [Box<str>; 2] },
    TwoAddresses { one: Master, other: Master },
    TooManyMasters,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange { id, first, last } => {
                write!(f, "slots {first}-{last} of master {id} go beyond {}, the last slot", COUNT - 1)
            }
            Self::Reversed { id, first, last } => {
                write!(f, "slots {first}-{last} of master {id} end before they begin")
            }
            Self::OwnedTwice { slot, ids: [one, other] } => {
                write!(f, "slot {slot} is listed twice: for master {one} and for master {other}")
            }
            Self::TwoAddresses { one, other } => {
                write!(f, "master {} is listed with two addresses: {one} and {other}", one.id)
            }
            Self::TooManyMasters => {
                write!(f, "more than {MOST_MASTERS} masters are listed, which is one for each slot")
            }
        }
    }
}

impl std::error::Error for Malformed {}
