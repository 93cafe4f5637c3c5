//! How far a run is, on stderr, if that is a terminal.

use std::fmt::Write;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::live::{Calls, Seen};
use crate::clock::{MILLI, Nanos, SECOND};
use crate::output::count;

/// A bar that fills with time, and the present rates of offered and allowed calls.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    duration: Nanos,
    /// The start of the stretch that the shown rates are of.
    since: (Nanos, Calls),
}

impl Progress {
    pub(crate) fn new(duration: Nanos) -> Self {
        // The target draws nothing where it finds no terminal.
        let bar = ProgressBar::with_draw_target(Some(duration / MILLI), ProgressDrawTarget::stderr());
        let style =
            ProgressStyle::with_template("{bar:20} {wide_msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style);
        Self { bar, duration, since: (0, Calls::default()) }
    }

    pub(crate) fn show(&mut self, seen: Seen) {
        let mut message =
            format!("{:.1} of {:.1} s", in_seconds(seen.elapsed.min(self.duration)), in_seconds(self.duration));
        let (then, before) = self.since;
        if let Some(now) = seen.calls
            && seen.elapsed > then
        {
            let rate = |now: u64, before: u64| {
                let calls = now.saturating_sub(before);
                count((calls as f64 / in_seconds(seen.elapsed - then)) as u64)
            };
            let _ = write!(
                message,
                "  offered {:>10}/s  allowed {:>10}/s",
                rate(now.offered, before.offered),
                rate(now.allowed, before.allowed),
            );
            // Rates of short stretches would flicker.
            if seen.elapsed - then >= SECOND / 2 {
                self.since = (seen.elapsed, now);
            }
        }
        self.bar.set_position(seen.elapsed / MILLI);
        self.bar.set_message(message);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn in_seconds(time: Nanos) -> f64 {
    time as f64 / SECOND as f64
}
