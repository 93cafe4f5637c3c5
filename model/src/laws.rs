//! What must hold in every state.

use stateright::Property;

use super::setup::Setup;
use super::world::{Explored, World};

/// A law of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Law {
    /// What was admitted, and all that anybody could still spend, is no more than the limit and the faults allow.
    Permits,
    /// No more is to be had at once than the limit in force holds, and what the faults allow.
    Burst,
    /// Home and all that it has lent refill no faster than the limit.
    Rate,
    /// A share comes back once.
    Once,
    /// Every ledger can be read.
    Readable,
    /// Without more faults the key comes to rest as it should be.
    Forward,
}

impl Law {
    pub(super) const ALL: &'static [Self] =
        &[Self::Permits, Self::Burst, Self::Rate, Self::Once, Self::Readable, Self::Forward];

    pub(super) fn alone(self) -> &'static [Self] {
        let index = Self::ALL.iter().position(|law| *law == self).expect("all are there");
        &Self::ALL[index..=index]
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Permits => "no more is admitted and left to spend than the limit and the faults allow",
            Self::Burst => "no more is to be had at once than the limit in force and the faults allow",
            Self::Rate => "home and all that it has lent refill no faster than the limit",
            Self::Once => "a share comes back once",
            Self::Readable => "every ledger can be read",
            Self::Forward => "without more faults the key comes to rest as it should be",
        }
    }

    pub(super) fn property(self) -> Property<Explored> {
        match self {
            Self::Permits => Property::always(self.name(), |model: &Explored, world| permits(&model.setup, world)),
            Self::Burst => Property::always(self.name(), |model: &Explored, world| burst(&model.setup, world)),
            Self::Rate => Property::always(self.name(), |model: &Explored, world: &World| {
                let rates = world.rates(&model.setup);
                let forgotten = if world.account.forgot { 0 } else { rates.forgotten };
                rates.in_ledger + forgotten <= rates.limit
            }),
            Self::Once => Property::always(self.name(), |_, world| once(world)),
            Self::Readable => Property::always(self.name(), |_, world: &World| world.unreadable.is_none()),
            Self::Forward => {
                Property::always(self.name(), |model: &Explored, world| model.ends.comes_to_rest(&model.setup, world))
            }
        }
    }
}

fn allowed(setup: &Setup, world: &World) -> i64 {
    if setup.strict { 0 } else { world.account.allowed }
}

fn permits(setup: &Setup, world: &World) -> bool {
    let account = &world.account;
    account.admitted + world.spendable(setup) <= account.budget + allowed(setup, world)
}

fn burst(setup: &Setup, world: &World) -> bool {
    let forgotten = if world.account.forgot { world.forgotten() } else { 0 };
    world.held(setup) - forgotten <= world.holds(setup) + allowed(setup, world)
}

fn once(world: &World) -> bool {
    let returned = world.home.key.as_ref().map_or(&[][..], |home| &home.returned);
    returned.iter().enumerate().all(|(index, id)| !returned[..index].contains(id))
}
