//! Where a command's limit lives. The one place that chooses a store.

use shardlimit::{Limit, Limiter, NamedLimit};

use crate::error::Failure;

/// The embedded store: the state is this process's own, and as new whenever it starts.
pub(crate) const STORE: &str = "local";
/// Every decision is made on the state itself.
pub(crate) const MODE: &str = "exact";

/// Gives the limit its name on the store.
pub(crate) fn define(name: &str, limit: Limit) -> Result<NamedLimit, Failure> {
    Ok(Limiter::local().define(name, limit)?)
}

/// Refuses what every one of a run's calls would be refused for, before the run and without a charge: the
/// question is put to a limiter of its own.
pub(crate) fn check(name: &str, limit: Limit, key: &[u8], permits: u64) -> Result<(), Failure> {
    let _as_new = Limiter::local().define(name, limit)?.try_acquire(key, permits)?;
    Ok(())
}
