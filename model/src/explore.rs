//! Runs the checker over a setup.

use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model};

use super::setup::Setup;
use super::story::tell;
use super::world::Explored;

/// What a setup came to.
#[derive(Debug)]
pub struct Found {
    /// How many states there are.
    pub states: usize,
    /// How long that took.
    pub took: Duration,
    /// Each law that was broken, with the shortest way there that was found: what happened, and the state after it.
    pub broken: Vec<(&'static str, String)>,
}

/// Explores everything that can happen in a setup, or until some law is broken.
///
/// # Panics
/// If a setup's numbers can't be computed with.
#[must_use]
pub fn explore(setup: &Setup) -> Found {
    let began = Instant::now();
    let checker = Explored(setup.clone()).checker().threads(2).finish_when(HasDiscoveries::Any).spawn_bfs().join();
    let mut broken: Vec<(&'static str, String)> = Vec::new();
    for (law, path) in checker.discoveries() {
        broken.push((law, tell(setup, &path.into_vec())));
    }
    Found { states: checker.unique_state_count(), took: began.elapsed(), broken }
}
