//! Runs the checker over a setup.

use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};

use super::forward::Ends;
use super::laws::Law;
use super::setup::Setup;
use super::story::tell;
use super::world::Explored;

/// Tests run beside each other; two threads bring a long one to its end while no other is left.
const THREADS: usize = 2;

/// Explores everything that can happen in a setup. Prints how many states that is.
///
/// # Panics
/// With the history of a state in which some law does not hold.
pub fn holds(name: &str, setup: &Setup) {
    if let Some(story) = explore(name, setup, Law::ALL) {
        panic!("{name}: {story}");
    }
}

/// Explores a setup until a law does not hold any more, which it has to. Prints the history of that.
///
/// # Panics
/// If it holds in every state.
pub fn breaks(name: &str, law: Law, setup: &Setup) {
    let story = explore(name, setup, law.alone()).unwrap_or_else(|| panic!("{name}: {} in every state", law.name()));
    println!("{story}");
}

/// The history of a state in which one of the laws does not hold.
fn explore(name: &str, setup: &Setup, laws: &'static [Law]) -> Option<String> {
    let began = Instant::now();
    let model = Explored { setup: setup.clone(), laws, ends: Ends::default() };
    let checker = model.checker().threads(THREADS).finish_when(HasDiscoveries::Any).spawn_bfs().join();
    let (states, seconds) = (checker.unique_state_count(), began.elapsed().as_secs_f64());
    println!("{name}: {states} states in {seconds:.1} s");
    let found = checker.discoveries().into_iter().map(|(law, path)| (law, path.into_vec()));
    let (law, history) = found.min_by_key(|(_, history)| history.len())?;
    Some(format!("not: {law}\n{}", tell(setup, &history)))
}
