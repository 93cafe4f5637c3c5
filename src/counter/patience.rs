//! How long calls wait.

#[cfg(feature = "redis")]
use std::time::Duration;

/// The deadline of the calls through one clone of counters, if that has its own; else they have the limiter's. The embedded store
/// needs none.
#[derive(Clone, Copy, Default)]
pub(super) struct Patience(#[cfg(feature = "redis")] pub(super) Option<Duration>);

#[cfg(feature = "redis")]
impl Patience {
    /// The same bounds as of a limit's.
    pub(super) fn new(deadline: Duration) -> Self {
        Self(Some(deadline.clamp(Duration::from_micros(1), Duration::from_secs(3_600))))
    }
}
