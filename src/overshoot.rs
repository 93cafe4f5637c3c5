//! How far a limit was exceeded, as it is seen while it is in use.

use std::time::Duration;

/// The interval of the last half minute that came the furthest above what the limit allows, or the closest to it: the
/// admissions of all processes together, by the clocks of the servers. See
/// [`NamedLimit::overshoot`](crate::NamedLimit::overshoot).
///
/// ```no_run
/// # fn run(limit: shardlimit::NamedLimit) {
/// if let Some(overshoot) = limit.overshoot() {
///     println!("{:+} permits over {:?}", overshoot.permits, overshoot.over);
/// }
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Overshoot {
    /// Permits above what the formula of docs/accuracy.md allows; below it if negative.
    pub permits: i64,
    /// The length of the interval.
    pub over: Duration,
}
