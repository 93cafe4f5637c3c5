//! The ring store: independent servers, and each slot on one of them by consistent hashing.
//!
//! To everything above, a ring looks like a cluster: a topology says which master has which slot. What a cluster does by
//! itself is done here: `record` is who belongs to it, which every node has and the latest of which counts, so that clients with
//! different lists agree; `watcher` keeps up with it; `moving` takes a sub-key along when its slot has another node; `change`
//! has nodes come and go, by a record that `vote` has its nodes agree on. `member`: one node.

mod change;
mod member;
mod moving;
mod record;
mod vote;
mod watcher;

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::ops::RangeInclusive;

use arc_swap::ArcSwapOption;

pub(crate) use change::Change;
pub(crate) use member::{Member, Place};
pub(crate) use record::Record;
pub(super) use watcher::watch;

use super::cluster::{Address, Node, Settings};
use crate::error::{Error, ErrorKind};
use crate::key::Slot;
use crate::observe;
use crate::sync::{Arc, Mutex, lock};
use crate::topology::{Master, Topology, assign};

/// Sub-keys that are known to have come along. Beyond it some are looked for again.
const MOST_ARRIVED: usize = 200_000;

/// What a router knows of the ring that it serves.
pub(crate) struct Ring {
    /// As this process was told.
    own: Vec<Member>,
    prefix: Box<str>,
    known: ArcSwapOption<Known>,
    /// Where the masters are that Sentinels watch over, as they last said, and by which of their epochs.
    resolved: Mutex<HashMap<Box<str>, (u64, Address)>>,
    sentinels: Mutex<HashMap<Address, Arc<Node>>>,
    /// For those: no user, no password.
    anonymous: Settings,
    /// Hashes of sub-keys that came along in the present change.
    arrived: Mutex<HashSet<u64>>,
    hasher: RandomState,
}

/// The record in force.
pub(crate) struct Known {
    pub record: Record,
    /// Where the slots were before, until all that has moved is where it belongs.
    before: Option<Before>,
    addresses: Vec<Option<Address>>,
}

/// For each slot the index of the member that had it, in the record's `before`.
struct Before(Vec<Option<usize>>);

impl Before {
    fn new(record: &Record) -> Option<Self> {
        (!record.is_settled()).then(|| Self(assign(&weights(&record.before))))
    }

    fn owner<'a>(&self, record: &'a Record, slot: Slot) -> Option<&'a Member> {
        self.0[usize::from(slot.number())].map(|index| &record.before[index])
    }
}

fn weights(members: &[Member]) -> Vec<(&str, u16)> {
    members.iter().map(|member| (&*member.name, member.weight)).collect()
}

impl Ring {
    /// # Errors
    /// [`ErrorKind::InvalidSetting`] if there is no node, or one is named twice.
    pub(crate) fn new(own: Vec<Member>, prefix: &str, settings: &Settings) -> Result<Self, Error> {
        let mut names: Vec<&str> = own.iter().map(|member| &*member.name).collect();
        names.sort_unstable();
        if let Some([twice, ..]) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Error::new(ErrorKind::InvalidSetting, "ring", format!("names {twice:?} twice")));
        }
        if !Record::first(&own).is_good() {
            let message =
                "has no nodes, more than 1,024, or one whose name has other characters than letters, digits and .-_:[]";
            return Err(Error::new(ErrorKind::InvalidSetting, "ring", message));
        }
        Ok(Self {
            own,
            prefix: prefix.into(),
            known: ArcSwapOption::empty(),
            resolved: Mutex::default(),
            sentinels: Mutex::default(),
            anonymous: settings.anonymous(),
            arrived: Mutex::default(),
            hasher: RandomState::new(),
        })
    }

    pub(crate) fn known(&self) -> Option<Arc<Known>> {
        self.known.load_full()
    }

    /// Whether sub-keys may have to come along.
    pub(super) fn is_moving(&self) -> bool {
        self.known.load().as_ref().is_some_and(|known| known.before.is_some())
    }

    /// Whether this process was told of other nodes than form the ring.
    pub(crate) fn differs(&self) -> bool {
        self.known().is_some_and(|known| Record::first(&self.own).members != known.record.members)
    }

    /// Where a member is, as far as that is known.
    pub(crate) fn address_of(&self, member: &Member) -> Option<Address> {
        match &member.place {
            Place::Server(address) => Some(address.clone()),
            Place::Sentinels(_) => lock(&self.resolved).get(&member.name).map(|(_, address)| address.clone()),
        }
    }

    /// Whether a connection to it is of use.
    pub(super) fn needs(&self, address: &Address) -> bool {
        self.known().is_some_and(|known| known.addresses.iter().flatten().any(|known| known == address))
    }

    /// Everybody who may know of the record: those that this process was told of, and those of the record.
    fn everybody(&self) -> Vec<Member> {
        let mut all: Vec<Member> = self.known().map_or_else(Vec::new, |known| known.record.all().cloned().collect());
        let is_lost =
            |name: &str| self.known().is_some_and(|known| known.record.lost.iter().any(|lost| **lost == *name));
        for member in &self.own {
            if !is_lost(&member.name) && all.iter().all(|known| known.name != member.name) {
                all.push(member.clone());
            }
        }
        all
    }

    /// Takes the record for the one in force. The topology that comes of it, if it is another one than before.
    fn take(&self, record: Record) -> Option<Topology> {
        let addresses: Vec<Option<Address>> = record.all().map(|member| self.address_of(member)).collect();
        let known = self.known();
        if let Some(known) = &known {
            if known.record == record && known.addresses == addresses {
                return None;
            }
            if known.record.is_later_than(&record) {
                return None;
            }
        }
        if known.is_none_or(|known| known.record != record) {
            lock(&self.arrived).clear();
            let is_known = |name: &str| record.all().any(|member| *member.name == *name);
            lock(&self.resolved).retain(|name, _| is_known(name));
            observe::ring_changed(&record, Record::first(&self.own).members != record.members);
        }
        let topology = self.topology(record.number, &record.members);
        let before = Before::new(&record);
        // First this: nobody may look for a sub-key at a new place without knowing of the old one.
        self.known.store(Some(Arc::new(Known { record, before, addresses })));
        Some(topology)
    }

    /// Slots of members that nobody knows the address of have no master.
    fn topology(&self, number: u64, members: &[Member]) -> Topology {
        let owners = assign(&weights(members));
        let masters = members.iter().enumerate().filter_map(|(index, member)| {
            let Address { host, port } = self.address_of(member)?;
            Some((Master { id: member.name.clone(), host, port }, slots_of(&owners, index)))
        });
        Topology::new(number, masters).expect("each slot has one owner, each name one address")
    }

    /// Under this very record: what came along under another may have to go on.
    fn has_arrived(&self, record: &Record, key: &[u8]) -> bool {
        lock(&self.arrived).contains(&self.hasher.hash_one((record.number, record.since, key)))
    }

    fn arrives(&self, record: &Record, key: &[u8]) {
        let arrived = &mut *lock(&self.arrived);
        if arrived.len() == MOST_ARRIVED {
            arrived.clear();
        }
        arrived.insert(self.hasher.hash_one((record.number, record.since, key)));
    }

    /// The key of the record, on every node.
    fn key(&self) -> Vec<u8> {
        format!("{}:ring", self.prefix).into_bytes()
    }
}

fn slots_of(owners: &[Option<usize>], index: usize) -> Vec<RangeInclusive<u16>> {
    let mut ranges: Vec<RangeInclusive<u16>> = Vec::new();
    for slot in Slot::all().filter(|slot| owners[usize::from(slot.number())] == Some(index)) {
        match ranges.last_mut() {
            Some(range) if *range.end() + 1 == slot.number() => *range = *range.start()..=slot.number(),
            _ => ranges.push(slot.number()..=slot.number()),
        }
    }
    ranges
}
