//! Whether all clients agree on a key while they are told different things, while masters come and go, limits change, keys get hot
//! and clients and servers die: what `docs/agreement.md` promises, on real clusters.
//!
//! * `disagree`, `grow`, `change`, `heat`, `kill_steps`, `failovers`: a run each, with its own limit and its own cluster.
//! * `scene`: what they have in common. `verdict`: figures, and what is not as promised.

mod change;
mod disagree;
mod failovers;
mod grow;
mod heat;
mod kill_steps;
mod scene;
mod verdict;

pub(crate) use verdict::Verdict;

use crate::Failure;
use crate::fault::Place;
use crate::options::Suite;

/// One run, by its name.
pub(crate) struct Run {
    pub name: &'static str,
    pub about: &'static str,
    pub place: Place,
    pub show: fn(&Suite) -> Result<Verdict, Failure>,
}

/// All of them.
pub(crate) const ALL: [Run; 6] = [
    Run { name: disagree::NAME, about: disagree::ABOUT, place: Place::Loopback, show: disagree::run },
    Run { name: grow::NAME, about: grow::ABOUT, place: Place::Loopback, show: grow::run },
    Run { name: change::NAME, about: change::ABOUT, place: Place::Loopback, show: change::run },
    Run { name: heat::NAME, about: heat::ABOUT, place: Place::Loopback, show: heat::run },
    Run { name: kill_steps::NAME, about: kill_steps::ABOUT, place: Place::Proxied, show: kill_steps::run },
    Run { name: failovers::NAME, about: failovers::ABOUT, place: Place::Network, show: failovers::run },
];
